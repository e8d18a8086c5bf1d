//! The whole way for one image: resolve, collect, judge, decide.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use portolan_registry::ErrorClass;
use portolan_registry::images::{self, Place};

use crate::collect::{CollectError, Limits, Sought, collect};
use crate::decision::{self, Answer, Examined, Question, SubjectAnswer, Undecided};
use crate::judges::RULERS;
use crate::subject::Subject;
use crate::subjects::{self, FindSubjectsError, Subjects};

/// Subjects that are looked at at the same time; each makes requests of its own.
const SUBJECTS_AT_ONCE: usize = 2;

/// Why there is no answer. Never a yes, and never taken for "not signed".
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It is not known what has to be signed.
    #[error(transparent)]
    Subjects(#[from] FindSubjectsError),
    /// It is not known what is attached to it.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// A policy in Rego did not decide.
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

impl VerifyError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Subjects(error) => error.class(),
            Self::Collect(error) => error.class(),
            Self::Undecided(_) => ErrorClass::Local,
        }
    }
}

impl From<UnansweredError> for VerifyError {
    fn from(error: UnansweredError) -> Self {
        match error {
            UnansweredError::Collect(error) => error.into(),
            UnansweredError::Undecided(why) => why.into(),
        }
    }
}

/// Why what is known of an image has no answer. Another time it may.
#[derive(Debug, thiserror::Error)]
pub enum UnansweredError {
    /// It is not known what is attached to it.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// A policy in Rego did not decide.
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

impl UnansweredError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Collect(error) => error.class(),
            Self::Undecided(_) => ErrorClass::Local,
        }
    }
}

/// Answers `question` about the image at `place`. A tag is asked for once.
pub async fn verify(
    place: &Place,
    question: &Question<'_>,
    limits: &Limits,
) -> Result<Answer, VerifyError> {
    let Question { reference, rule, wanted, .. } = *question;
    let target = images::target(reference);
    let image = match subjects::find(place, target.as_ref(), wanted, rule.missing).await? {
        Ok(image) => image,
        Err(refusal) => return Ok(decision::not_found(question, &refusal)),
    };
    Ok(verify_subjects(place, question, &image, limits).await?)
}

/// The same where it is known already what has to be signed.
pub async fn verify_subjects(
    place: &Place,
    question: &Question<'_>,
    image: &Subjects,
    limits: &Limits,
) -> Result<Answer, UnansweredError> {
    let needed = decision::needed(image, question.rule.index_policy);
    let looks: Vec<_> =
        needed.into_iter().map(|subject| look(place, question, subject, limits)).collect();
    let subjects = stream::iter(looks).buffered(SUBJECTS_AT_ONCE).try_collect().await?;
    Ok(conclude(question, image, subjects, |_| ()).await?)
}

async fn look(
    place: &Place,
    question: &Question<'_>,
    subject: &Subject,
    limits: &Limits,
) -> Result<SubjectAnswer, CollectError> {
    let Question { rule, now, .. } = *question;
    let found = collect(place, subject, Sought::everything(rule), limits).await?;
    let examined = Examined::new(rule, subject.clone(), found, now);
    Ok(decision::decide_subject(rule, &examined, now))
}

/// The answer over all subjects. A policy in Rego may take its time, which is not that of who only
/// waits, and begins when it has a processor. Once begun it goes on to its end, which `undecided` is
/// told where it is none, also where nobody waits for it any more.
pub(crate) async fn conclude(
    question: &Question<'_>,
    image: &Subjects,
    subjects: Vec<SubjectAnswer>,
    undecided: impl FnOnce(&Undecided) + Send + 'static,
) -> Result<Answer, Undecided> {
    if question.rule.rego.is_none() {
        return decision::try_combine(question, image, subjects);
    }
    let Question { reference, namespace, rule, wanted, now } = *question;
    let (reference, namespace) = (reference.clone(), namespace.map(str::to_owned));
    let (rule, wanted, whole) = (rule.clone(), wanted.clone(), image.clone());
    let decided = RULERS.work(move || {
        let namespace = namespace.as_deref();
        let question =
            Question { reference: &reference, namespace, rule: &rule, wanted: &wanted, now };
        decision::try_combine(&question, &whole, subjects).inspect_err(undecided)
    });
    decided.await.unwrap_or_else(|error| Err(Undecided::Failed(error.to_string())))
}
