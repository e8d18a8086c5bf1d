//! Shims on a node: fetched, checked, put in their places, made known; one, or several as one change.
//!
//! What can be refused is refused before the node is touched: the location, the digest, the archive, the
//! program's architecture, the kind of node, the configuration. Every later step is written down before it
//! is made, so that a run that dies anywhere is finished by the next one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_core::Digest;

use super::archive::Program;
use super::disk::{Disk, Watch};
use super::effect;
use super::elf;
use super::error::NodeError;
use super::exec::Context;
use super::lock;
pub use super::obtain::{Source, fetch_stage, leave_refusal};
use super::obtain::{copy, obtain, platform};
use super::place;
use super::preset::{Overrides, detect};
pub use super::progress::Outcome;
use super::progress::Progress;
use super::ready::Expect;
use super::request::{self, RequestError, Wanted};
use super::restart::Method;
use super::retire;
use super::root::HostRoot;
pub use super::settle::Restart;
use super::settle::{self, Plan, Work};
use super::state::{Shim, Store};
use super::survey::Survey;
use crate::report::{MAX_PARTS, Operation, Part, Phase, Reason};

/// Where shims are installed unless said otherwise: where upstream's installer has them.
pub const INSTALL_DIR: &str = "/opt/rcm";

/// What holds for every operation on a node.
#[derive(Debug, Clone)]
pub struct Node {
    /// The host's root directory.
    pub root: PathBuf,
    /// Where shims are kept, as the host names it.
    pub install_dir: String,
    /// What a person says of the node.
    pub overrides: Overrides,
    /// How the runtime is started again.
    pub restart: Restart,
    /// How long to wait for another installer.
    pub lock: Duration,
}

/// Installs a shim.
pub async fn install(node: &Node, wanted: &Wanted, source: &Source, watch: &dyn Watch) -> Outcome {
    let mut progress = Progress::new(Operation::Install, Phase::Fetch);
    let mut one = [Item::new(wanted, source)];
    let result = run(node, &mut one, watch, &mut progress).await;
    let [Item { refused, fetched: (archive, binary), .. }] = one;
    (progress.report.archive_sha256, progress.report.binary_sha256) = (archive, binary);
    progress.end(result.and_then(|()| refused.map_or(Ok(()), Err)))
}

/// A shim that is asked for with others.
#[derive(Debug)]
pub struct Asked {
    /// As it was given.
    pub name: String,
    /// What is wanted and where it is, or why that makes no sense.
    pub shim: Result<(Wanted, Source), NodeError>,
}

impl From<(Wanted, Source)> for Asked {
    fn from((wanted, source): (Wanted, Source)) -> Self {
        Self { name: wanted.name.to_string(), shim: Ok((wanted, source)) }
    }
}

/// Installs several shims as one change. What is refused before the node is touched is refused for that shim alone;
/// the others are all taken by the runtime, which is started again once, or none of them.
pub async fn install_all(node: &Node, asked: Vec<Asked>, watch: &dyn Watch) -> Outcome {
    let names: BTreeSet<_> = asked.iter().map(|one| &one.name).collect();
    let count = asked.len();
    if names.len() != count || count > MAX_PARTS {
        let error = RequestError::Parts { asked: count };
        return Outcome::refused(Operation::Install, error.into());
    }
    let mut progress = Progress::new(Operation::Install, Phase::Fetch);
    let sound = asked.iter().filter_map(|one| one.shim.as_ref().ok());
    let mut items: Vec<_> = sound.map(|(wanted, source)| Item::new(wanted, source)).collect();
    let result = run(node, &mut items, watch, &mut progress).await;
    let together = result.as_ref().err().map(NodeError::reason);
    let told: Vec<_> = items.into_iter().map(|item| (item.part(together), item.refused)).collect();
    let mut told = told.into_iter();
    let all = asked.into_iter().filter_map(|one| match one.shim {
        Ok(_) => told.next(),
        Err(error) => Some((part(&request::shown(&one.name), Some(&error), None), Some(error))),
    });
    let (parts, errors): (Vec<_>, Vec<_>) = all.unzip();
    let first =
        parts.iter().zip(errors).find_map(|(part, error)| Some((part.name.clone(), error?)));
    let refused = parts.iter().filter(|part| part.reason.is_some() && !part.together).count();
    progress.report.parts = parts;
    progress.end(match (result, first) {
        (Ok(()), Some((name, error))) => {
            let source = Box::new(error);
            Err(NodeError::InPart { refused, asked: count, name, source })
        }
        (result, _) => result,
    })
}

/// What is said of one of several: why it was refused, or why all that were not refused failed.
fn part(name: &str, own: Option<&NodeError>, together: Option<Reason>) -> Part {
    Part {
        name: name.to_owned(),
        reason: own.map(NodeError::reason).or(together),
        message: own.map(|error| portolan_core::causes::chain(error)).unwrap_or_default(),
        together: own.is_none() && together.is_some(),
        ..Part::default()
    }
}

/// One of the shims of a run.
struct Item<'a> {
    wanted: &'a Wanted,
    source: &'a Source,
    /// SHA-256 of the archive and of the program, hex.
    fetched: (Option<String>, Option<String>),
    program: Option<Program>,
    /// Where the program goes, as the host names it.
    path: String,
    /// What was there before this run.
    former: Option<Shim>,
    /// Why nothing is done for it.
    refused: Option<NodeError>,
}

impl<'a> Item<'a> {
    fn new(wanted: &'a Wanted, source: &'a Source) -> Self {
        let (fetched, path) = Default::default();
        Self { wanted, source, fetched, program: None, path, former: None, refused: None }
    }

    fn name(&self) -> &'a str {
        self.wanted.name.as_str()
    }

    /// SHA-256 of the program, which it has unless it is refused.
    fn sha256(&self) -> &str {
        self.fetched.1.as_deref().unwrap_or_default()
    }

    /// The program, made for this node.
    async fn obtain(&mut self, node: &Node, progress: &mut Progress) -> Result<(), NodeError> {
        let obtained = obtain(self.wanted, self.source, progress).await;
        let report = &mut progress.report;
        self.fetched = (report.archive_sha256.take(), report.binary_sha256.take());
        let program = obtained?;
        elf::check(self.wanted.binary.as_str(), &program.head, &platform(&node.root)?)?;
        self.program = Some(program);
        Ok(())
    }

    /// What is said of it where several were asked for; `together` is why all that were not refused failed.
    fn part(&self, together: Option<Reason>) -> Part {
        let (archive_sha256, binary_sha256) = self.fetched.clone();
        let said = part(self.name(), self.refused.as_ref(), together);
        Part { archive_sha256, binary_sha256, ..said }
    }
}

/// Those that are not refused.
fn left<'b, 'a>(items: &'b mut [Item<'a>]) -> impl Iterator<Item = &'b mut Item<'a>> {
    items.iter_mut().filter(|item| item.refused.is_none())
}

fn names<'a>(items: &mut [Item<'a>]) -> Vec<&'a str> {
    left(items).map(|item| item.name()).collect()
}

async fn run(
    node: &Node,
    items: &mut [Item<'_>],
    watch: &dyn Watch,
    progress: &mut Progress,
) -> Result<(), NodeError> {
    let root = open_root(&node.root)?;
    for item in items.iter_mut() {
        progress.phase(Phase::Fetch);
        item.refused = item.obtain(node, progress).await.err();
    }
    if left(items).next().is_none() {
        return Ok(());
    }
    progress.phase(Phase::Detect);
    let context = Context::of(&root);
    let _lock = lock::lock(&root, &context, node.lock)?;
    let site = detect(&root, &node.overrides)?;
    progress.report.distro = Some(site.preset.name.to_owned());
    let mut store = Store::open(&root, Disk { watch }, &node.install_dir)?;
    place::check_directory(&store)?;
    let survey = Survey::new(&site, &context);
    // Planned once before anything is made: a configuration that is refused leaves the node as it was.
    let mut plans = planned(&survey, &store, items)?;
    if left(items).next().is_none() {
        return Ok(());
    }
    // Who was refused is nobody that is asked for.
    plans.extend(settle::strays(&store, &mut root.clone(), &names(items))?);
    let method = effect::foresee(&root, &site, &context, &node.restart, &plans).await?;
    progress.phase(Phase::Place);
    let mut unwritten = false;
    for item in left(items) {
        item.former = store.state.shims.get(item.name()).cloned();
        unwritten |= note_wanted(&mut store, item)?;
    }
    unwritten &= !store.create()?;
    store.sweep()?;
    settle::sweep(&store, &site)?;
    let mut work = Making { store: &mut store, survey: &survey, node, method, unwritten };
    match work.make(items, progress).await {
        Ok(()) => {
            let unread = store.state.restart_due && site.may_run(&root, &context);
            finish(&mut store, items, unread)
        }
        Err(error) => {
            abandon(&mut store, items);
            Err(error)
        }
    }
}

/// What is to change for each of them, where what a killed run left is gone. Who cannot be had is refused.
fn planned(
    survey: &Survey<'_>,
    store: &Store<'_>,
    items: &mut [Item<'_>],
) -> Result<Vec<Plan>, NodeError> {
    let mut ahead = store.root.clone();
    settle::strays(store, &mut ahead, &names(items))?;
    let mut plans = Vec::new();
    for item in left(items) {
        let (name, binary) = (item.name(), item.wanted.binary.as_str());
        item.path = place::path(&store.install_dir, name, item.sha256(), binary);
        let plan = survey.plan(store, &mut ahead, (item.wanted, &item.path));
        match plan.and_then(|plan| survey.refuse_built_in(store, item.wanted).map(|()| plan)) {
            Ok(plan) => plans.push(plan),
            Err(error) => item.refused = Some(error),
        }
    }
    Ok(plans)
}

/// A node that is being changed.
struct Making<'a, 'b> {
    store: &'b mut Store<'a>,
    survey: &'b Survey<'b>,
    node: &'b Node,
    /// How the runtime is started again, where that was foreseen.
    method: Option<Method>,
    /// Whether what is about to be there is still to be written down.
    unwritten: bool,
}

impl Making<'_, '_> {
    /// The programs in their places, and the runtime told.
    async fn make(
        &mut self,
        items: &mut [Item<'_>],
        progress: &mut Progress,
    ) -> Result<(), NodeError> {
        if self.unwritten {
            self.store.save()?;
        }
        for item in left(items) {
            progress.report.changed |= self.place(item)?;
        }
        progress.phase(Phase::Configure);
        let mut ahead = self.store.root.clone();
        let mut plans = settle::strays(self.store, &mut ahead, &names(items))?;
        let mut handlers = Vec::new();
        for item in left(items) {
            plans.push(self.survey.plan(self.store, &mut ahead, (item.wanted, &item.path))?);
            handlers.push(item.wanted.handler.as_str());
        }
        let mut phase = |phase| progress.phase(phase);
        let mut work = Work {
            store: self.store,
            site: self.survey.site,
            context: self.survey.context,
            restart: &self.node.restart,
            phase: &mut phase,
        };
        let method = self.method.take();
        let settled = work.settle(&plans, Expect::Known(&handlers), method).await?;
        progress.settled(settled);
        Ok(())
    }

    /// A program in its place; true where it was not.
    fn place(&mut self, item: &mut Item<'_>) -> Result<bool, NodeError> {
        let Some(program) = item.program.take() else { return Ok(false) };
        let mut changed = false;
        if !place::is_right(&self.store.here(&item.path)?, &program.digest) {
            // On the file system that it goes to.
            let temp = self.store.temp()?;
            self.store.disk.make_dir(&temp)?;
            let copied = copy(&program, &temp)?;
            place::put(self.store, copied, &item.path)?;
            changed = true;
        }
        Ok(place::correct_mode(self.store, &item.path)? || changed)
    }
}

pub(crate) fn open_root(root: &Path) -> Result<HostRoot, NodeError> {
    HostRoot::open(root).map_err(|source| NodeError::Root { path: root.to_owned(), source })
}

/// Notes what is about to be there, before any of it is made; true where that has to be written down.
fn note_wanted(store: &mut Store<'_>, item: &Item<'_>) -> Result<bool, NodeError> {
    let expected = store.expect_dir(place::dir_of(&item.path))?;
    let shim = store.state.shims.entry(item.name().to_owned()).or_default();
    let former = shim.clone();
    item.wanted.handler.as_str().clone_into(&mut shim.handler);
    item.wanted.binary.as_str().clone_into(&mut shim.binary);
    item.sha256().clone_into(&mut shim.sha256);
    shim.archive_sha256.clone_from(&item.fetched.0);
    if !shim.versions.iter().any(|version| version == item.sha256()) {
        shim.versions.push(item.sha256().to_owned());
    }
    let changed = *shim != former || !shim.installed;
    if changed {
        shim.installed = false;
    }
    Ok(expected || changed)
}

/// The configuration is as before: so is the rest, as far as it can be.
fn abandon(store: &mut Store<'_>, items: &mut [Item<'_>]) {
    // Another try is due; the changes are back only if nothing is left to go back to.
    if !store.state.before.is_empty() {
        return;
    }
    let tidy = (|| {
        for item in left(items) {
            let (name, sha256) = (item.name(), item.sha256());
            let former = item.former.as_ref();
            // One that was there before may run, or be what the runtime goes by.
            let kept = former.is_some_and(|shim| shim.versions.iter().any(|one| one == sha256));
            if !kept {
                place::remove(store, name, sha256)?;
            }
            match former {
                Some(former) => store.state.shims.insert(name.to_owned(), former.clone()),
                None => store.state.shims.remove(name),
            };
        }
        store.remove_unused_dirs()?;
        store.finish()?;
        Ok::<(), NodeError>(())
    })();
    if let Err(error) = tidy {
        tracing::warn!(%error, "what was put in place for nothing could not be removed");
    }
}

/// All holds: what is no longer needed goes. `unread`: the runtime still goes by the configuration from
/// before, and calls the programs that it names.
fn finish(store: &mut Store<'_>, items: &mut [Item<'_>], unread: bool) -> Result<(), NodeError> {
    if !unread {
        for item in left(items) {
            retire::retire(store, item.name(), true)?;
            place::collect(store, item.name())?;
        }
        let others = store.state.shims.iter().filter(|(_, shim)| shim.installed);
        for other in others.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            place::collect(store, &other)?;
        }
    }
    store.remove_unused_dirs()?;
    for item in left(items) {
        if let Some(shim) = store.state.shims.get_mut(item.name()) {
            shim.installed = true;
        }
    }
    let temp = store.temp()?;
    store.disk.remove_tree(&temp)?;
    Ok(store.save()?)
}

/// A digest that a person gave, or none where the text is empty.
///
/// # Errors
/// It is no digest.
pub fn digest(text: Option<&str>) -> Result<Option<Digest>, RequestError> {
    text.filter(|text| !text.is_empty()).map(request::sha256).transpose()
}
