//! One question about one image is answered, from the caches or from the registry.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use portolan_core::{Digest, Platform, Reference, RegistryReference, Tag, Target};
use portolan_registry::client::Client;
use portolan_registry::images::Place;

use super::caches::{Caches, ImageKey, Kept, TagKey, VerdictKey};
use super::cluster::nodes::{Known, View};
use super::cluster::pull::PullSecrets;
use super::config::{Exempt, Pods};
use super::examine::examine;
use super::keeping::Keeping;
use super::metrics::{Metrics, Outcome, Selected};
use super::question::{Asked, Ground, Machines, Told};
use super::readers::{Asker, Reader};
use super::trouble::{Code, Trouble};
use super::turns::{Asking, Turn, Turns};
use super::watch::{InForce, Watched};
use crate::collect::Limits;
use crate::decision::{self, Answer, Question, SubjectAnswer, Undecided};
use crate::pod;
use crate::policy::{PlatformDefault, Rule};
use crate::subject::Subject;
use crate::subjects::{Contents, Subjects, Wanted};
use crate::verify::conclude;

/// Images of one request that are looked at at once, and subjects of one image: each may take one of
/// the places in which everybody waits for registries.
pub(super) const AT_ONCE: usize = 8;

/// What a question is decided by.
struct By<'a> {
    rule: &'a Arc<Rule>,
    in_force: &'a InForce,
    ground: Ground,
    mode: &'static str,
}

/// Everything that answering needs.
pub(super) struct Engine {
    pub(super) client: Client,
    pub(super) caches: Arc<Caches>,
    pub(super) watched: Arc<Watched>,
    /// The cluster's nodes, where they are watched.
    pub(super) nodes: Option<Arc<View>>,
    /// Logins of who asks, where they are looked for.
    pub(super) pull: Option<PullSecrets>,
    pub(super) exempt: Exempt,
    pub(super) pods: Pods,
    pub(super) host: Platform,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) turns: Turns,
}

/// A repository, by its name and where it is.
struct Spot {
    name: Arc<str>,
    /// What is read here is kept under this: another for each login.
    kept: Arc<str>,
    place: Place,
}

impl Engine {
    /// Whether the image may run on these machines.
    pub(super) async fn verify(&self, asked: Asked<'_>) -> Result<Told, Trouble> {
        let told = self.decide(asked).await;
        match &told {
            Ok(told) => self.metrics.outcome(told.outcome()),
            Err(trouble) => self.metrics.trouble(trouble.code),
        }
        told
    }

    /// The reference with the digest that it means now, as the operator is told.
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
        let readers = self.readers(None, reference).await?;
        first(&readers, |reader| self.resolve_as(spot(reader, reference), reference)).await
    }

    async fn resolve_as(
        &self,
        Spot { name, kept, place }: Spot,
        reference: &RegistryReference,
    ) -> Result<String, Trouble> {
        let digest = match reference.target() {
            Target::Digest(digest) => digest,
            Target::Tag(tag) => {
                let key = TagKey { repository: kept, tag: tag.to_string() };
                let work = || async move {
                    let top = place.resolve(Some(&Target::Tag(tag))).await;
                    Ok(top.map_err(|error| Trouble::of_image(&error))?.digest)
                };
                self.caches.tag(key, work).await?.value
            }
        };
        Ok(format!("{name}@{digest}"))
    }

    async fn decide(&self, asked: Asked<'_>) -> Result<Told, Trouble> {
        let Asked { namespace, may_exempt, reference, machines, asker } = asked;
        let believed = namespace.filter(|_| may_exempt);
        if let Some(why) = exemption(&self.exempt, believed, reference) {
            return Ok(Told::Exempt(why));
        }
        let remote = in_registry(reference)?;
        let in_force = self.watched.now();
        let Some(rule) = in_force.policy.rule(reference) else {
            let answer = Box::new(decision::no_policy(reference));
            return Ok(Told::Answer { answer, media_type: None, kept: None });
        };
        let known = self.known(&in_force);
        let ground = self.ground_of(&in_force, &known);
        let wanted = self.wanted(rule, &known, machines);
        let now = Timestamp::now();
        let question = Question { reference, namespace, rule, wanted: &wanted, now };
        let readers = self.readers(asker, remote).await?;
        let by = By { rule, in_force: &in_force, ground, mode: machines.word(rule) };
        let told = first(&readers, |reader| self.decide_as(spot(reader, remote), &question, &by));
        let mut told = told.await?;
        if matches!((machines, &rule.platforms), (Machines::Named([]), PlatformDefault::Host)) {
            told.warn_of_others();
        }
        // What a login of who asks had a part in is kept under that login alone, piece by piece.
        if let (Told::Answer { kept, .. }, Some(_), Some(_)) = (&mut told, &self.pull, asker) {
            *kept = None;
        }
        Ok(told)
    }

    /// All of it in one name.
    async fn decide_as(
        &self,
        spot: Spot,
        question: &Question<'_>,
        by: &By<'_>,
    ) -> Result<Told, Trouble> {
        let Question { reference, wanted, .. } = question;
        let By { rule, in_force, ground, mode } = by;
        let contents = self.contents(in_registry(reference)?, &spot).await?;
        let Kept { value: contents, mut until } = contents;
        let media_type = Some(contents.top().media_type.clone());
        let image = contents.subjects(wanted, rule.missing);
        let image = match image.map_err(|error| Trouble::of_subjects(&error))? {
            Ok(image) => image,
            Err(refusal) => {
                self.metrics.selection(mode, Selected::Nothing);
                let answer = Box::new(decision::not_found(question, &refusal));
                let kept = Some((until, ground.clone()));
                return Ok(Told::Answer { answer, media_type, kept });
            }
        };
        self.metrics.selection(
            mode,
            if image.index().is_some() { Selected::OfIndex } else { Selected::Single },
        );
        let needed = decision::needed(&image, rule.index_policy);
        let asking = needed.iter().map(|subject| self.subject(&spot, subject, rule, in_force));
        let asking: Vec<_> = asking.collect();
        let told: Vec<Kept<_>> = stream::iter(asking).buffered(AT_ONCE).try_collect().await?;
        // No longer than any of what it is made of.
        until = told.iter().map(|one| one.until).fold(until, Instant::min);
        let answer = Box::new(self.concluded(&spot, question, &image, told, by).await?);
        Ok(Told::Answer { answer, media_type, kept: Some((until, ground.clone())) })
    }

    /// The answer over all subjects. Policies in Rego have so many places as there are processors: an
    /// image for which one takes all its time must not have them all.
    async fn concluded(
        &self,
        spot: &Spot,
        question: &Question<'_>,
        image: &Subjects,
        told: Vec<Kept<SubjectAnswer>>,
        by: &By<'_>,
    ) -> Result<Answer, Trouble> {
        let undecided = |why: Undecided| Trouble::of_deciding(&why);
        let looks = told.iter().map(|one| one.until).collect();
        let subjects = told.into_iter().map(|one| one.value).collect();
        if by.rule.rego.is_none() {
            return conclude(question, image, subjects, |_| ()).await.map_err(undecided);
        }
        let key = ImageKey { repository: Arc::clone(&spot.kept), digest: image.top().digest };
        let asking = Asking::new(question, (key, by.ground.generation), looks);
        let Question { reference, namespace, wanted, now, .. } = *question;
        let (reference, namespace) = (reference.clone(), namespace.map(str::to_owned));
        let (rule, wanted, image) = (Arc::clone(by.rule), wanted.clone(), image.clone());
        let work = |turn: Turn| async move {
            let (reference, namespace) = (&reference, namespace.as_deref());
            let (rule, wanted) = (&rule, &wanted);
            let question = Question { reference, namespace, rule, wanted, now };
            conclude(&question, &image, subjects, |why| turn.note(why)).await
        };
        self.turns.decided(asking, work).await.map_err(undecided)
    }

    /// In whose names to ask: of who asks, then the operator's.
    async fn readers(
        &self,
        asker: Option<Asker<'_>>,
        reference: &RegistryReference,
    ) -> Result<Vec<Reader>, Trouble> {
        let mut readers = match &self.pull {
            Some(pull) => pull.readers(asker, reference).await?,
            None => Vec::new(),
        };
        readers.push(self.operator());
        Ok(readers)
    }

    fn operator(&self) -> Reader {
        Reader { client: self.client.clone(), login: None }
    }

    /// Of the cluster, where it is watched, else of the file.
    fn known(&self, in_force: &InForce) -> Arc<Known> {
        match &self.nodes {
            Some(view) => view.now(),
            None => Arc::new(Known::new(in_force.nodes.to_vec())),
        }
    }

    /// What an answer that is given now rests on.
    pub(super) fn ground(&self) -> Ground {
        let nodes = self.nodes.as_ref().map(|view| view.now());
        Ground { generation: self.watched.now().generation, nodes }
    }

    fn ground_of(&self, in_force: &InForce, known: &Arc<Known>) -> Ground {
        // A file of nodes is part of what is in force.
        let nodes = self.nodes.is_some().then(|| Arc::clone(known));
        Ground { generation: in_force.generation, nodes }
    }

    fn wanted(&self, rule: &Rule, known: &Known, machines: Machines<'_>) -> Wanted {
        match machines {
            Machines::Named(named) => {
                let host = || Ok::<_, Infallible>(self.host.clone());
                let Ok(wanted) = rule.wanted(named, known.platforms.as_ref(), host);
                wanted
            }
            Machines::Pod(pod) => pod::platforms(pod, &self.pod_settings(rule, known)),
        }
    }

    /// The policy says what to take where a pod says nothing, the configuration what labels mean.
    fn pod_settings(&self, rule: &Rule, known: &Known) -> pod::Settings {
        let default = match &rule.platforms {
            PlatformDefault::Host => pod::Default::Host,
            PlatformDefault::Nodes => pod::Default::Nodes,
            PlatformDefault::All => pod::Default::All,
            PlatformDefault::List(list) => pod::Default::List(list.clone()),
        };
        let mut settings = pod::Settings::new(default, self.host.clone());
        settings.partial = rule.partial;
        settings.nodes.clone_from(&known.nodes);
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
    ) -> Result<Kept<Arc<Contents>>, Trouble> {
        let Kept { value: digest, until } = match reference.target() {
            Target::Digest(digest) => self.caches.forever(digest),
            Target::Tag(tag) => {
                let key = TagKey { repository: Arc::clone(&spot.kept), tag: tag.to_string() };
                let (place, caches) = (spot.place.clone(), Arc::clone(&self.caches));
                let work = {
                    let key = key.clone();
                    move || by_tag(place, tag, key, caches)
                };
                self.caches.tag(key, work).await?
            }
        };
        let key = ImageKey { repository: Arc::clone(&spot.kept), digest };
        let place = spot.place.clone();
        let value = self.caches.image(key, || by_digest(place, digest)).await?;
        Ok(Kept { value, until })
    }

    async fn subject(
        &self,
        spot: &Spot,
        subject: &Subject,
        rule: &Arc<Rule>,
        in_force: &InForce,
    ) -> Result<Kept<SubjectAnswer>, Trouble> {
        let key = VerdictKey::new(&spot.kept, &subject.descriptor, in_force.generation);
        let work = || {
            let keeping = Keeping {
                place: spot.place.clone(),
                name: Arc::clone(&spot.name),
                kept: Arc::clone(&spot.kept),
                caches: Arc::clone(&self.caches),
            };
            let (rule, metrics) = (Arc::clone(rule), Arc::clone(&self.metrics));
            examine(keeping, subject.clone(), rule, (self.limits, metrics))
        };
        let Kept { value: answer, until } = self.caches.verdict(key, work).await?;
        // Another index may list the same image for another machine.
        let Subject { kind, platform, .. } = subject.clone();
        let value = SubjectAnswer { kind, platform, ..SubjectAnswer::clone(&answer) };
        Ok(Kept { value, until })
    }
}

fn spot(reader: &Reader, reference: &RegistryReference) -> Spot {
    let remote = reader.client.repository(&reference.registry, &reference.repository);
    let place = Place::Remote(remote);
    let name: Arc<str> = place.to_string().into();
    Spot { kept: reader.keeps_under(&name), name, place }
}

/// What comes of the first who is let in. Registries tell who may not look that there is nothing.
async fn first<'a, T, F: Future<Output = Result<T, Trouble>>>(
    readers: &'a [Reader],
    ask: impl Fn(&'a Reader) -> F,
) -> Result<T, Trouble> {
    let mut locked_out = None;
    let mut missing = None;
    for reader in readers {
        match ask(reader).await {
            Err(trouble) if trouble.code == Code::Denied => locked_out = Some(trouble),
            Err(trouble) if trouble.code == Code::NotFound => missing = Some(trouble),
            told => return told,
        }
    }
    let nobody = || Trouble::new(Code::Internal, "nobody asked");
    Err(locked_out.or(missing).unwrap_or_else(nobody))
}

/// What the tag is. What came with it is kept, so that it is not asked for once more by its digest; and
/// where it is known what is in what the tag was, it is only asked whether it still is that.
async fn by_tag(
    place: Place,
    tag: Tag,
    key: TagKey,
    caches: Arc<Caches>,
) -> Result<Digest, Trouble> {
    let image = |digest| ImageKey { repository: Arc::clone(&key.repository), digest };
    let target = Target::Tag(tag);
    let was = caches.was(&key).await;
    if was.is_some_and(|was| caches.has_image(&image(was))) {
        let top = place.resolve(Some(&target)).await;
        let digest = top.map_err(|error| Trouble::of_image(&error))?.digest;
        if was == Some(digest) {
            return Ok(digest);
        }
    }
    let top = place.manifest(&target).await.map_err(|error| Trouble::of_image(&error))?;
    let digest = top.descriptor.digest;
    if !caches.has_image(&image(digest)) {
        let contents = Contents::of(&place, top).await;
        let contents = contents.map_err(|error| Trouble::of_subjects(&error))?;
        caches.keep_image(image(digest), contents).await;
    }
    caches.note(key, digest).await;
    Ok(digest)
}

async fn by_digest(place: Place, digest: Digest) -> Result<Arc<Contents>, Trouble> {
    let top = place.manifest(&Target::Digest(digest)).await;
    let top = top.map_err(|error| Trouble::of_image(&error))?;
    let contents = Contents::of(&place, top).await;
    Ok(Arc::new(contents.map_err(|error| Trouble::of_subjects(&error))?))
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
