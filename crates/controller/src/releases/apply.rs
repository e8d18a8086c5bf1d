//! One look: the registry is asked, and what differs is written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource};
use portolan_api::release::{Release, ReleaseStatus};
use portolan_core::causes::chain;
use portolan_registry::client::{Client as Registry, CredentialStore};
use portolan_registry::images::Place;
use portolan_release::look::Asked;
use portolan_release::status::{self, News, Refusal};
use portolan_release::{Findings, Request, look};
use tokio::time::timeout;

use super::gather;
use super::memory::Memory;
use super::places::Places;
use super::plan::{self, Next};
use super::settings::Settings;
use crate::context::{RESYNC, ReconcileError, Shared, now};
use crate::metrics::Metrics;
use crate::{patch, write};

/// Where a registry has no place at the moment.
const NO_PLACE: Duration = Duration::from_millis(300);

/// What every look uses.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) registry: Registry,
    pub(crate) recorder: Recorder,
    pub(crate) releases: Store<Release>,
    pub(crate) memory: Memory,
    pub(crate) places: Places,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
}

impl Shared for Context {
    fn workers(&self) -> u16 {
        self.settings.workers
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

fn milliseconds() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Looks at one Release, if it is time.
pub(crate) async fn reconcile(
    release: Arc<Release>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let uid = release.metadata.uid.clone().ok_or(ReconcileError::Incomplete("uid"))?;
    if release.metadata.deletion_timestamp.is_some() {
        context.memory.forget(&uid);
        return Ok(Action::await_change());
    }
    let before = context.memory.of(&uid);
    let (pinned, follows) = match plan::next(&release, before, milliseconds()) {
        Next::Settled => {
            context.memory.forget(&uid);
            return Ok(Action::await_change());
        }
        Next::Wait(rest) => return Ok(Action::requeue(rest)),
        Next::Look(pinned) => (pinned, None),
        Next::Follow(digest) => (None, Some(digest)),
    };
    let begun = Instant::now();
    let (status, outcome) = match Request::of(&release.spec) {
        Err(error) => {
            let refused = Err(error.into());
            (Some(status::after(&release, &refused, &now())), Outcome::Refused)
        }
        Ok(request) => {
            let Some(_place) = context.places.take(&request.reference.registry) else {
                return Ok(Action::requeue(NO_PLACE));
            };
            let look = Look { release: &release, request: &request, context: &context };
            match look.at(pinned, follows.as_deref()).await? {
                None => (None, Outcome::Unmoved),
                Some(found) => {
                    let outcome = Outcome::of(&found);
                    (Some(status::after(&release, &found, &now())), outcome)
                }
            }
        }
    };
    context.metrics.releases.looked(outcome.as_str(), begun.elapsed());
    let status = match status {
        Some(status) => written(&release, &context, status).await?,
        None => release.status.clone().unwrap_or_default(),
    };
    let time = (milliseconds(), context.settings.poll);
    let looked = plan::looked(&release, &status, outcome == Outcome::Trouble, before, time);
    let is_there =
        |uid: &str| context.releases.find(|one| one.metadata.uid.as_deref() == Some(uid)).is_some();
    context.memory.keep(&uid, looked, context.releases.len(), is_there);
    let rest = u64::try_from(looked.due - time.0).unwrap_or_default();
    Ok(Action::requeue(Duration::from_millis(rest).min(RESYNC)))
}

/// How a look ended, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Found,
    Unmoved,
    Refused,
    Trouble,
}

impl Outcome {
    fn of(found: &Result<Findings, Refusal>) -> Self {
        match found {
            Ok(_) => Self::Found,
            Err(refusal) if refusal.will_pass() => Self::Trouble,
            Err(_) => Self::Refused,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Unmoved => "unmoved",
            Self::Refused => "refused",
            Self::Trouble => "trouble",
        }
    }
}

/// One look at a registry.
struct Look<'a> {
    release: &'a Release,
    request: &'a Request,
    context: &'a Context,
}

impl Look<'_> {
    /// What is there now; none where a tag is still on the digest that is followed.
    async fn at(
        &self,
        pinned: Option<portolan_core::Digest>,
        follows: Option<&str>,
    ) -> Result<Option<Result<Findings, Refusal>>, ReconcileError> {
        let Self { release, request, context } = *self;
        let namespace = release.metadata.namespace.as_deref().unwrap_or_default();
        let found = gather::logins(&context.client, namespace, &release.spec, &request.reference);
        let found = found.await?;
        for why in &found.passed_over {
            tracing::warn!(
                namespace,
                name = release.metadata.name,
                why,
                "a pull secret is passed over"
            );
        }
        let host = &request.reference.registry;
        let mut clients: Vec<Registry> = found
            .credentials
            .into_iter()
            .map(|login| CredentialStore::anonymous().with(host.clone(), login))
            .map(|store| context.registry.with_credentials(store))
            .collect();
        if clients.is_empty() {
            clients.push(context.registry.clone());
        }
        let target = request.target(pinned);
        let places: Vec<Place> = clients
            .iter()
            .map(|client| Place::Remote(client.repository(host, &request.reference.repository)))
            .collect();
        let waits = release.status.as_ref().is_some_and(|status| status.candidate.is_some());
        if let (Some(digest), false) = (follows, waits)
            && self.is_still(&places, &target, digest).await
        {
            return Ok(None);
        }
        let judge = gather::judge(&context.client, namespace, &release.spec).await?;
        let asked = Asked {
            request,
            target: &target,
            policy: judge.policy(),
            namespace: Some(namespace),
            now: Timestamp::now(),
        };
        let looked = timeout(context.settings.deadline, with_each(&places, &asked)).await;
        let seconds = context.settings.deadline.as_secs();
        let looked = looked.unwrap_or(Err(Refusal::Late { seconds }));
        Ok(Some(looked.map_err(|refusal| refusal.with_notes(&found.passed_over))))
    }

    /// Whether a tag is where it was: one small question, whoever is let in. No answer within the time of one look, for
    /// all of them together, is no answer here.
    async fn is_still(
        &self,
        places: &[Place],
        target: &portolan_core::Target,
        digest: &str,
    ) -> bool {
        let asked = async {
            for place in places {
                if let Ok(found) = place.resolve(Some(target)).await {
                    return found.digest.to_string() == digest;
                }
            }
            false
        };
        timeout(self.context.settings.deadline, asked).await.unwrap_or(false)
    }
}

/// With each login until one is let in.
async fn with_each(places: &[Place], asked: &Asked<'_>) -> Result<Findings, Refusal> {
    let mut last = None;
    for place in places {
        match look(place, asked).await {
            Err(error) if error.is_denied() => last = Some(error),
            other => return other.map_err(Refusal::Look),
        }
    }
    Err(Refusal::Look(last.expect("there is at least one place")))
}

/// Writes a status, if it differs, and tells people what is new.
async fn written(
    release: &Release,
    context: &Context,
    status: ReleaseStatus,
) -> Result<ReleaseStatus, ReconcileError> {
    let patch = patch::of_part(&release.metadata, "status", &release.status, &Some(status.clone()));
    if patch.is_none() {
        return Ok(status);
    }
    let namespace = release.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Release> = write::beside(&context.client, namespace);
    write::status(&api, release.clone(), patch).await?;
    let name = release.metadata.name.as_deref();
    for news in status::news(release.status.as_ref(), &status) {
        tracing::info!(
            namespace,
            name,
            digest = status.digest,
            reason = news.reason,
            note = news.note,
            "a Release changed"
        );
        tell(&context.recorder, release, &news).await;
    }
    Ok(status)
}

/// Writes an Event; one that cannot be written is no reason to stop.
pub(crate) async fn tell<K: Resource<DynamicType = ()>>(
    recorder: &Recorder,
    object: &K,
    news: &News,
) {
    let event = Event {
        type_: if news.warning { EventType::Warning } else { EventType::Normal },
        reason: news.reason.clone(),
        note: Some(news.note.chars().take(1000).collect()),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = recorder.publish(&event, &object.object_ref(&())).await {
        let name = object.meta().name.as_deref();
        tracing::warn!(name, error = chain(&error), "an Event could not be written");
    }
}
