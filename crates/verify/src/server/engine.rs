//! One question about one image, from the caches or from the registry.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use portolan_core::platform::PartialPlatform;
use portolan_core::{Digest, Platform, Reference, RegistryReference, Target};
use portolan_registry::client::Client;
use portolan_registry::images::Place;

use super::caches::{Caches, ImageKey, TagKey, VerdictKey};
use super::config::{Exempt, Pods};
use super::metrics::{Metrics, Outcome};
use super::trouble::{Code, Trouble};
use super::watch::{InForce, Watched};
use crate::collect::{Limits, collect};
use crate::decision::{self, Answer, Examined, Question, SubjectAnswer, Verdict};
use crate::pod::{self, PodSpec};
use crate::policy::{PlatformDefault, Rule};
use crate::subject::Subject;
use crate::subjects::{Contents, Wanted};
use crate::verify::conclude;

/// Images of one request that are looked at at once, and subjects of one image: each may take one of
/// the places in which everybody waits for registries.
pub(super) const AT_ONCE: usize = 8;

/// A question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Where from.
    pub(super) namespace: Option<&'a str>,
    /// About which image.
    pub(super) reference: &'a Reference,
    /// For which machines.
    pub(super) machines: Machines<'a>,
}

/// The machines that are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Machines<'a> {
    /// These; where there are none, the policy's own.
    Named(&'a [PartialPlatform]),
    /// Those that this pod might run on.
    Pod(&'a PodSpec),
}

/// What came of a question.
#[derive(Debug, Clone)]
pub(super) enum Told {
    /// Nobody looked, and why.
    Exempt(String),
    /// Somebody did.
    Answer {
        answer: Box<Answer>,
        /// What the reference named is of this type; none where nothing was resolved.
        media_type: Option<String>,
    },
}

impl Told {
    pub(super) fn is_yes(&self) -> bool {
        match self {
            Self::Exempt(_) => true,
            Self::Answer { answer, .. } => answer.verdict == Verdict::Verified,
        }
    }
}

/// Everything that answering needs.
pub(super) struct Engine {
    pub(super) client: Client,
    pub(super) caches: Caches,
    pub(super) watched: Arc<Watched>,
    pub(super) exempt: Exempt,
    pub(super) pods: Pods,
    pub(super) host: Platform,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
}

/// A repository, by its name and where it is.
struct Spot {
    name: Arc<str>,
    place: Place,
}

impl Engine {
    /// Whether the image may run on these machines.
    pub(super) async fn verify(&self, asked: Asked<'_>) -> Result<Told, Trouble> {
        let told = self.decide(asked).await;
        match &told {
            Ok(Told::Exempt(_)) => self.metrics.outcome(Outcome::Exempt),
            Ok(Told::Answer { answer, .. }) => self.metrics.outcome(match answer.verdict {
                Verdict::Verified => Outcome::Verified,
                Verdict::Refused => Outcome::Refused,
                Verdict::NoPolicy => Outcome::NoPolicy,
            }),
            Err(trouble) => self.metrics.trouble(trouble.code),
        }
        told
    }

    /// The reference with the digest that it means now.
    pub(super) async fn pin(&self, reference: &Reference) -> Result<String, Trouble> {
        let pinned = self.resolve(reference).await;
        match &pinned {
            Ok(_) => self.metrics.outcome(Outcome::Pinned),
            Err(trouble) => self.metrics.trouble(trouble.code),
        }
        pinned
    }

    async fn resolve(&self, reference: &Reference) -> Result<String, Trouble> {
        let reference = in_registry(reference)?;
        let Spot { name, place } = self.spot(reference);
        let digest = match reference.target() {
            Target::Digest(digest) => digest,
            Target::Tag(tag) => {
                let key = TagKey { repository: Arc::clone(&name), tag: tag.to_string() };
                let work = || async move {
                    let top = place.resolve(Some(&Target::Tag(tag))).await;
                    Ok(top.map_err(|error| Trouble::of_image(&error))?.digest)
                };
                self.caches.tag(key, work).await?
            }
        };
        Ok(format!("{name}@{digest}"))
    }

    async fn decide(&self, asked: Asked<'_>) -> Result<Told, Trouble> {
        let Asked { namespace, reference, machines } = asked;
        if let Some(why) = exemption(&self.exempt, namespace, reference) {
            return Ok(Told::Exempt(why));
        }
        let spot = self.spot(in_registry(reference)?);
        let in_force = self.watched.now();
        let Some(rule) = in_force.policy.rule(reference) else {
            let answer = Box::new(decision::no_policy(reference));
            return Ok(Told::Answer { answer, media_type: None });
        };
        let wanted = self.wanted(rule, &in_force, machines);
        let now = Timestamp::now();
        let question = Question { reference, namespace, rule, wanted: &wanted, now };
        let contents = self.contents(in_registry(reference)?, &spot).await?;
        let media_type = Some(contents.top().media_type.clone());
        let image = contents.subjects(&wanted, rule.missing);
        let image = match image.map_err(|error| Trouble::of_subjects(&error))? {
            Ok(image) => image,
            Err(refusal) => {
                let answer = Box::new(decision::not_found(&question, &refusal));
                return Ok(Told::Answer { answer, media_type });
            }
        };
        let needed = decision::needed(&image, rule.index_policy);
        let asking = needed.iter().map(|subject| self.subject(&spot, subject, rule, &in_force));
        let asking: Vec<_> = asking.collect();
        let subjects = stream::iter(asking).buffered(AT_ONCE).try_collect().await?;
        let answer = Box::new(conclude(&question, &image, subjects).await);
        Ok(Told::Answer { answer, media_type })
    }

    fn spot(&self, reference: &RegistryReference) -> Spot {
        let remote = self.client.repository(&reference.registry, &reference.repository);
        let place = Place::Remote(remote);
        Spot { name: place.to_string().into(), place }
    }

    fn wanted(&self, rule: &Rule, in_force: &InForce, machines: Machines<'_>) -> Wanted {
        match machines {
            Machines::Named(named) => {
                let own = in_force.nodes.iter().map(|node| PartialPlatform::from(&node.platform));
                let nodes = Wanted::of(own);
                let host = || Ok::<_, Infallible>(self.host.clone());
                let Ok(wanted) = rule.wanted(named, nodes.as_ref(), host);
                wanted
            }
            Machines::Pod(pod) => pod::platforms(pod, &self.pod_settings(rule, in_force)),
        }
    }

    /// The policy says what to take where a pod says nothing, the configuration what labels mean.
    fn pod_settings(&self, rule: &Rule, in_force: &InForce) -> pod::Settings {
        let default = match &rule.platforms {
            PlatformDefault::Host => pod::Default::Host,
            PlatformDefault::Nodes => pod::Default::Nodes,
            PlatformDefault::All => pod::Default::All,
            PlatformDefault::List(list) => pod::Default::List(list.clone()),
        };
        let mut settings = pod::Settings::new(default, self.host.clone());
        settings.partial = rule.partial;
        settings.nodes.clone_from(&*in_force.nodes);
        settings.os_labels.extend(self.pods.os_labels.iter().cloned());
        settings.arch_labels.extend(self.pods.arch_labels.iter().cloned());
        settings.values.clone_from(&self.pods.values);
        settings.labels.clone_from(&self.pods.labels);
        settings
    }

    /// What is in the image. A tag is asked for once, and what it was is what is looked at.
    async fn contents(
        &self,
        reference: &RegistryReference,
        spot: &Spot,
    ) -> Result<Arc<Contents>, Trouble> {
        let digest = match reference.target() {
            Target::Digest(digest) => digest,
            Target::Tag(tag) => {
                let key = TagKey { repository: Arc::clone(&spot.name), tag: tag.to_string() };
                let (place, name, images) =
                    (spot.place.clone(), Arc::clone(&spot.name), self.caches.images());
                let work = || async move {
                    let top = place.manifest(&Target::Tag(tag)).await;
                    let top = top.map_err(|error| Trouble::of_image(&error))?;
                    let digest = top.descriptor.digest;
                    let key = ImageKey { repository: name, digest };
                    // What came is kept, so that it is not asked for once more by its digest.
                    if !images.contains_key(&key) {
                        let contents = Contents::of(&place, top).await;
                        let contents = contents.map_err(|error| Trouble::of_subjects(&error))?;
                        images.insert(key, Arc::new(contents)).await;
                    }
                    Ok(digest)
                };
                self.caches.tag(key, work).await?
            }
        };
        let key = ImageKey { repository: Arc::clone(&spot.name), digest };
        let place = spot.place.clone();
        self.caches.image(key, || by_digest(place, digest)).await
    }

    async fn subject(
        &self,
        spot: &Spot,
        subject: &Subject,
        rule: &Arc<Rule>,
        in_force: &InForce,
    ) -> Result<SubjectAnswer, Trouble> {
        let key = VerdictKey::new(&spot.name, &subject.descriptor, in_force.generation);
        let work = || {
            let (rule, metrics) = (Arc::clone(rule), Arc::clone(&self.metrics));
            examine(spot.place.clone(), subject.clone(), rule, (self.limits, metrics))
        };
        let answer = self.caches.verdict(key, work).await?;
        // Another index may list the same image for another machine.
        let Subject { kind, platform, .. } = subject.clone();
        Ok(SubjectAnswer { kind, platform, ..SubjectAnswer::clone(&answer) })
    }
}

async fn by_digest(place: Place, digest: Digest) -> Result<Arc<Contents>, Trouble> {
    let top = place.manifest(&Target::Digest(digest)).await;
    let top = top.map_err(|error| Trouble::of_image(&error))?;
    let contents = Contents::of(&place, top).await;
    Ok(Arc::new(contents.map_err(|error| Trouble::of_subjects(&error))?))
}

async fn examine(
    place: Place,
    subject: Subject,
    rule: Arc<Rule>,
    (limits, metrics): (Limits, Arc<Metrics>),
) -> Result<Arc<SubjectAnswer>, Trouble> {
    let found = collect(&place, &subject, &limits).await;
    let found = found.map_err(|error| Trouble::of_collecting(&error))?;
    metrics.subject_examined();
    // Judging is arithmetic, which must not hold up who only waits.
    let judged = tokio::task::spawn_blocking(move || {
        let now = Timestamp::now();
        decision::decide_subject(&rule, &Examined::new(&rule, subject, found, now), now)
    });
    let judged = judged.await.map_err(|error| Trouble::new(Code::Internal, error.to_string()))?;
    Ok(Arc::new(judged))
}

fn in_registry(reference: &Reference) -> Result<&RegistryReference, Trouble> {
    match reference {
        Reference::Registry(reference) => Ok(reference),
        Reference::Layout(_) => {
            let what = "the reference names a directory; only images in registries are looked at";
            Err(Trouble::new(Code::BadKey, what))
        }
    }
}

/// Why nobody looks at the image; none where somebody does.
fn exemption(exempt: &Exempt, namespace: Option<&str>, reference: &Reference) -> Option<String> {
    let named = namespace.filter(|name| exempt.namespaces.iter().any(|one| one == name));
    let by_name = named.map(|name| format!("the namespace {name} is exempt"));
    by_name.or_else(|| {
        let pattern = exempt.images.iter().find(|one| one.0.matches(reference).is_some())?;
        Some(format!("images of {} are exempt", pattern.0))
    })
}
