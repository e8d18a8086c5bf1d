//! One subject: its evidence is looked for, as far as that is needed, and judged.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::keeping::Keeping;
use super::metrics::Metrics;
use super::trouble::{Code, Trouble};
use crate::collect::{Carriers, Collected, Collector, Limits, Sought};
use crate::decision::{self, Examined, SubjectAnswer};
use crate::judges::JUDGES;
use crate::policy::Rule;
use crate::subject::Subject;

/// What comes of a subject. Where more evidence can only help, it is looked for first where what
/// counted was last found at this registry, and elsewhere only if that is not enough.
pub(super) async fn examine(
    keeping: Keeping,
    subject: Subject,
    rule: Arc<Rule>,
    (limits, metrics): (Limits, Arc<Metrics>),
) -> Result<Arc<SubjectAnswer>, Trouble> {
    let begun = Instant::now();
    let sought = Sought::of(&rule);
    let first = match sought.more_only_helps() {
        true => keeping.caches.first(&keeping.name).await,
        false => Carriers::ALL,
    };
    let mut collector = Collector::new(&keeping, subject.descriptor.digest, sought, &limits);
    let failed = |error| Trouble::of_collecting(&error);
    let mut found = collector.look(first).await.map_err(failed)?;
    let mut judged = judge(&rule, &subject, found.clone()).await?;
    if !judged.verified && first != Carriers::ALL {
        let Collected { evidence, passed_over } =
            collector.look(first.others()).await.map_err(failed)?;
        found.evidence.extend(evidence);
        found.passed_over.extend(passed_over);
        judged = judge(&rule, &subject, found).await?;
    }
    if let Some(carriers) = carriers(&judged) {
        keeping.caches.found(&keeping.name, carriers).await;
    }
    metrics.subject_examined(judged.verified, begun.elapsed());
    Ok(Arc::new(judged))
}

/// So much arithmetic is done where it is; more would hold up who only waits.
const FEW_JUDGEMENTS: usize = 4;
/// The same for reading: strangers choose how much there is to read.
const FEW_BYTES: usize = 64 * 1024;

async fn judge(
    rule: &Arc<Rule>,
    subject: &Subject,
    found: Collected,
) -> Result<SubjectAnswer, Trouble> {
    let judge = |rule: &Rule, subject: Subject, found: Collected| {
        let now = Timestamp::now();
        decision::decide_subject(rule, &Examined::new(rule, subject, found, now), now)
    };
    let subject = subject.clone();
    let bytes: usize = found.evidence.iter().map(|one| one.content.size()).sum();
    if found.evidence.len() * rule.signers.len() <= FEW_JUDGEMENTS && bytes <= FEW_BYTES {
        return Ok(judge(rule, subject, found));
    }
    let rule = Arc::clone(rule);
    // Evidence that is read is many times its size: so much at once as there are processors to read it.
    let judged = JUDGES.work(move || judge(&rule, subject, found)).await;
    judged.map_err(|error| Trouble::new(Code::Internal, error.to_string()))
}

/// Where all that counts was found; none where nothing did, or where it was in both.
fn carriers(judged: &SubjectAnswer) -> Option<Carriers> {
    let mut accepted =
        judged.signatures.iter().filter(|one| one.accepted).map(|one| one.tag.is_some());
    let first = accepted.next().filter(|_| judged.verified)?;
    let all = accepted.all(|one| one == first);
    all.then_some(if first { Carriers::TAGS } else { Carriers::REFERRERS })
}
