//! The whole way for one image: resolve, collect, judge, decide.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use portolan_registry::ErrorClass;
use portolan_registry::images::{self, Place};

use crate::collect::{CollectError, Limits, Sought, collect};
use crate::decision::{self, Answer, Examined, Question};
use crate::subjects::{self, FindSubjectsError};

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
}

impl VerifyError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Subjects(error) => error.class(),
            Self::Collect(error) => error.class(),
        }
    }
}

/// Answers `question` about the image at `place`. A tag is asked for once.
pub async fn verify(
    place: &Place,
    question: &Question<'_>,
    limits: &Limits,
) -> Result<Answer, VerifyError> {
    let Question { reference, rule, wanted, now } = *question;
    let target = images::target(reference);
    let image = match subjects::find(place, target.as_ref(), wanted, rule.missing).await? {
        Ok(image) => image,
        Err(refusal) => return Ok(decision::not_found(question, &refusal)),
    };
    let examined: Vec<Examined> = stream::iter(decision::needed(&image, rule.index_policy))
        .map(|subject| async move {
            let found = collect(place, subject, Sought::everything(), limits).await?;
            Ok::<_, CollectError>(Examined::new(rule, subject.clone(), found, now))
        })
        .buffered(SUBJECTS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(decision::decide(question, &image, &examined))
}
