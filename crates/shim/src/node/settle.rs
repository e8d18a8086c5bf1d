//! A planned change of the configuration, made to hold: kept for going back, checked by containerd, written,
//! then taken by the runtime (see `effect`); or all of it undone.

use std::time::Duration;

use portolan_core::Digest;

use super::config::{
    self, Change, ConfigError, Layout, Loaded, Look, MAX_FILE, Version, handler_table, parse,
    same_foreign,
};
use super::error::NodeError;
use super::exec::{Context, ExecError};
use super::preset::Site;
use super::ready::Expect;
use super::restart::Method;
use super::root::HostRoot;
use super::state::{Saved, StateError, Store};
use super::upstream;
use crate::report::Phase;

/// Containerd reads its configuration in milliseconds.
const DUMP: Duration = Duration::from_secs(30);

/// How the runtime is started again.
#[derive(Debug, Clone)]
pub struct Restart {
    /// Not at all.
    pub off: bool,
    /// By this command line.
    pub command: Option<String>,
    /// How long it may take until it answers as it should.
    pub patience: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Self { off: false, command: None, patience: Duration::from_secs(90) }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) changed: bool,
    pub(crate) restarted: bool,
    pub(crate) version: Option<String>,
    pub(crate) warnings: Vec<String>,
}

/// A node that is worked on.
pub(crate) struct Work<'a, 'b> {
    pub(crate) store: &'b mut Store<'a>,
    pub(crate) site: &'b Site,
    pub(crate) context: &'b Context,
    pub(crate) restart: &'b Restart,
    /// Is told how far it is.
    pub(crate) phase: &'b mut (dyn FnMut(Phase) + Send + Sync),
}

/// The runtime's major version, where its program says it.
pub(crate) fn major(context: &Context, site: &Site) -> Option<u64> {
    let said = context.run(site.program.as_deref()?, &["--version"], DUMP).ok()?;
    // containerd github.com/containerd/containerd/v2 v2.0.1 …
    let number = said.split_whitespace().nth(2)?.trim_start_matches('v');
    number.split('.').next()?.parse().ok()
}

/// The configuration as it is, for planning.
pub(crate) fn look<'a>(
    root: &'a HostRoot,
    site: &'a Site,
    major: Option<u64>,
    loaded: &'a [Loaded],
    known: &'a [String],
) -> Look<'a> {
    let (main, layout) = (site.config.as_str(), site.preset.layout);
    Look { root, main, layout, major, loaded, known }
}

/// What is to change for a shim.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) owner: String,
    pub(crate) changes: Vec<Change>,
}

/// What takes away what a run that was killed wrote for shims that nobody asks for now, as far as the runtime has not
/// taken it: it may be what it does not take, and whoever comes next is not to answer for it.
pub(crate) fn strays(
    store: &Store<'_>,
    ahead: &mut HostRoot,
    asked: &[&str],
) -> Result<Vec<Plan>, NodeError> {
    let mut plans = Vec::new();
    let shims = store.state.shims.iter().filter(|(_, shim)| !shim.installed);
    for (owner, shim) in shims.filter(|(name, _)| !asked.contains(&name.as_str())) {
        let mut changes = Vec::new();
        for Saved { path, text, .. } in &store.state.before {
            let before = ahead.read(path, MAX_FILE)?.map(String::from_utf8).transpose();
            let before = before.map_err(|_| ConfigError::NotText { path: path.clone() })?;
            let (now, was) = (before.as_deref(), text.as_deref());
            let after = config::one_as_in(path, now, was, owner, &shim.handler)?;
            if after != before {
                ahead.expect(path, after.as_deref());
                changes.push(Change { path: path.clone(), before, after });
            }
        }
        plans.push(Plan { owner: owner.clone(), changes });
    }
    plans.retain(|plan| !plan.changes.is_empty());
    Ok(plans)
}

/// What the plans come to together, file by file: each was made on what those before it will have written.
fn merged(plans: &[Plan]) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    for change in plans.iter().flat_map(|plan| &plan.changes) {
        match all.iter_mut().find(|one| one.path == change.path) {
            Some(one) => one.after.clone_from(&change.after),
            None => all.push(change.clone()),
        }
    }
    all.retain(|change| change.before != change.after);
    all
}

/// What a configuration is called while containerd is asked about it. No pattern for `*.toml` takes it.
fn trial(site: &Site) -> String {
    let dir = site.config.rsplit_once('/').map_or("/", |(dir, _)| dir);
    format!("{dir}/.portolan-trial")
}

/// Removes what a run that was killed while containerd was asked left.
pub(crate) fn sweep(store: &Store<'_>, site: &Site) -> Result<(), StateError> {
    let here = store.here(&trial(site))?;
    store.disk.sweep(&here)?;
    store.disk.remove_file(&here)?;
    Ok(())
}

pub(crate) fn dump(context: &Context, program: &str, config: &str) -> Result<String, ExecError> {
    context.run(program, &["--config", config, "config", "dump"], DUMP)
}

impl Work<'_, '_> {
    /// Whoever changes a configuration needs a place to write down how it was: upstream's installer may
    /// have left its block and nothing of ours.
    pub(crate) fn begin(&mut self) -> Result<(), StateError> {
        self.store.create().map(drop)
    }

    /// Makes what is planned hold: written at once, and read by the runtime once, by `method` if that was foreseen.
    pub(crate) async fn settle(
        &mut self,
        plans: &[Plan],
        expect: Expect<'_>,
        mut method: Option<Method>,
    ) -> Result<Settled, NodeError> {
        let changes = &merged(plans)[..];
        let mut settled = Settled { changed: !changes.is_empty(), ..Settled::default() };
        if !changes.is_empty() {
            (self.phase)(Phase::Configure);
            // Whoever changed a file since it was planned made a change of what was none.
            if method.is_none() && !self.restart.off {
                method = Some(self.choose().await.map_err(NodeError::NoRestart)?);
            }
            self.check_first(changes, expect, &mut settled.warnings)?;
            let was_due = self.store.state.restart_due;
            self.remember(changes, plans)?;
            if let Err(error) = self.write_all(changes) {
                // As far as it can be; what cannot, the next run does.
                if let Err(left) = self.undo(was_due) {
                    tracing::warn!(error = portolan_core::causes::chain(&left), "not undone");
                }
                return Err(error.into());
            }
            if let Err(error) = self.check_after(changes, expect) {
                self.undo(was_due)?;
                return Err(error.into());
            }
        }
        if self.restart.off {
            // Nobody will look whether it holds, so nobody will go back.
            self.store.state.before.clear();
            self.store.save()?;
            return Ok(settled);
        }
        let taken = self.take_effect(method, expect, &mut settled).await?;
        self.store.state.before.clear();
        self.store.state.restart_due &= !taken;
        self.store.save()?;
        Ok(settled)
    }

    /// Writes down how files were, before they change. What an earlier run kept is older and counts, unless
    /// somebody has changed the file since: that must not be lost.
    fn remember(&mut self, changes: &[Change], plans: &[Plan]) -> Result<(), StateError> {
        let state = &mut self.store.state;
        for change in changes {
            let now = change.before.as_deref();
            let wrote = change.after.as_deref().map(fingerprint);
            let fresh =
                || Saved { path: change.path.clone(), text: change.before.clone(), wrote: None };
            let index = state.before.iter().position(|saved| saved.path == change.path);
            let index = index.unwrap_or_else(|| {
                state.before.push(fresh());
                state.before.len() - 1
            });
            let saved = &mut state.before[index];
            if !is_untouched(saved, now) {
                *saved = fresh();
            }
            saved.wrote = wrote;
        }
        for Plan { owner, changes } in plans {
            let Some(shim) = state.shims.get_mut(owner) else { continue };
            for change in changes {
                if !shim.files.contains(&change.path) {
                    shim.files.push(change.path.clone());
                }
                let own = change.after.as_deref();
                match own.and_then(|text| config::own_text(&change.path, text, owner)) {
                    Some(own) => shim.wrote.insert(change.path.clone(), fingerprint(own)),
                    None => shim.wrote.remove(&change.path),
                };
            }
        }
        state.restart_due = true;
        self.store.save()
    }

    fn write(&mut self, path: &str, text: Option<&str>) -> Result<(), StateError> {
        write(self.store, path, text)
    }

    fn write_all(&mut self, changes: &[Change]) -> Result<(), StateError> {
        let mut each = changes.iter();
        each.try_for_each(|change| self.write(&change.path, change.after.as_deref()))
    }

    /// Puts back how files were. Where somebody has changed one meanwhile, only what is ours in it goes back.
    pub(super) fn undo(&mut self, restart_due: bool) -> Result<(), NodeError> {
        for saved in self.store.state.before.clone() {
            let now = self.store.root.read(&saved.path, MAX_FILE)?;
            let now = now.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            match now.as_deref() {
                // On a disk that is full, not even the same can be written.
                now if now == saved.text.as_deref() => {}
                now if is_untouched(&saved, now) => {
                    self.write(&saved.path, saved.text.as_deref())?
                }
                Some(now) => {
                    let model = saved.text.as_deref().unwrap_or_default();
                    let mut merged = config::ours_as_in(&saved.path, now, model)?;
                    for shim in self.store.state.shims.values() {
                        merged = upstream::put_back(&merged, model, &shim.handler);
                    }
                    self.write(&saved.path, Some(&merged))?;
                }
                // Somebody removed it.
                None => {}
            }
        }
        self.store.state.before.clear();
        self.store.state.restart_due = restart_due;
        Ok(self.store.save()?)
    }

    /// A changed main file is shown to containerd under another name before it has its own.
    fn check_first(
        &self,
        changes: &[Change],
        expect: Expect<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(), NodeError> {
        let main = changes.iter().find(|change| change.path == self.site.config);
        let Some(text) = main.and_then(|change| change.after.as_deref()) else { return Ok(()) };
        let Some(program) = self.site.program.as_deref().filter(|_| self.context.is_host()) else {
            warnings.push("containerd was not asked whether it takes the configuration: its program was not found".to_owned());
            return Ok(());
        };
        let trial = trial(self.site);
        let here = self.store.here(&trial)?;
        if !here.parent().is_some_and(std::path::Path::is_dir) {
            return Ok(());
        }
        self.store.disk.replace(&here, text.as_bytes(), 0o600)?;
        let dumped = dump(self.context, program, &trial);
        self.store.disk.remove_file(&here)?;
        Ok(seen(dumped, expect)?)
    }

    /// Drop-ins are seen where they are, or not at all.
    fn check_after(&self, changes: &[Change], expect: Expect<'_>) -> Result<(), ConfigError> {
        let main_changed = changes.iter().any(|change| change.path == self.site.config);
        let rendered = self.site.preset.layout != Layout::File;
        let program = self.site.program.as_deref().filter(|_| self.context.is_host());
        match program {
            Some(program) if !main_changed && !rendered => {
                seen(dump(self.context, program, &self.site.config), expect)
            }
            _ => Ok(()),
        }
    }
}

/// Makes a file of the configuration say this; none is: not there.
pub(crate) fn write(
    store: &mut Store<'_>,
    path: &str,
    text: Option<&str>,
) -> Result<(), StateError> {
    let here = store.here(path)?;
    match text {
        Some(text) => {
            let dir = path.rsplit_once('/').map_or("/", |(dir, _)| dir);
            store.ensure_dir(dir)?;
            store.disk.replace(&here, text.as_bytes(), 0o644)?;
        }
        None => {
            store.disk.sweep(&here)?;
            store.disk.remove_file(&here)?;
        }
    }
    Ok(())
}

/// What tells one text from another.
pub(crate) fn fingerprint(text: &str) -> String {
    Digest::sha256(text.as_bytes()).hex()
}

/// Whether nobody but us has changed a file since it was kept.
fn is_untouched(saved: &Saved, now: Option<&str>) -> bool {
    let as_written = saved.wrote.is_some() && saved.wrote == now.map(fingerprint);
    as_written
        || saved.text.as_deref() == now
        || same_foreign(&saved.path, saved.text.as_deref(), now)
}

/// Whether containerd took a configuration and sees in it what it should.
fn seen(dumped: Result<String, ExecError>, expect: Expect<'_>) -> Result<(), ConfigError> {
    let text = match dumped {
        Ok(text) => text,
        Err(ExecError::Failed { said, .. }) => return Err(ConfigError::Rejected { said }),
        Err(error) => {
            tracing::warn!(%error, "containerd could not be asked about the configuration");
            return Ok(());
        }
    };
    let Expect::Known(handlers) = expect else { return Ok(()) };
    if text.len() as u64 > MAX_FILE {
        return Ok(());
    }
    let document = parse("containerd config dump", &text)?;
    let version = Version::of("containerd config dump", &document)?;
    let unseen = |handler: &&&str| handler_table(&document, version, handler).is_none();
    match handlers.iter().find(unseen) {
        None => Ok(()),
        Some(handler) => Err(ConfigError::NotSeen { handler: (*handler).to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What containerd says of a configuration that is only tried.
    #[test]
    fn a_configuration_that_containerd_refuses_or_does_not_see_is_told() {
        let failed = |said: &str| ExecError::Failed {
            program: "containerd".into(),
            status: "exit status: 1".into(),
            said: said.into(),
        };
        let known = Expect::Known(&["spin"]);
        let refused = seen(Err(failed("unknown version 9")), known).unwrap_err();
        assert!(matches!(&refused, ConfigError::Rejected { said } if said.contains("version 9")));
        let table = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.spin]";
        assert!(seen(Ok(format!("version = 3\n{table}\nruntime_type = 'x'\n")), known).is_ok());
        for unseen in ["version = 3\n".to_owned(), format!("version = 2\n{table}\n")] {
            let error = seen(Ok(unseen), known).unwrap_err();
            assert!(matches!(error, ConfigError::NotSeen { .. }), "{error}");
        }
        assert!(seen(Ok("version = 3\n".to_owned()), Expect::Gone("spin")).is_ok());
        // One that cannot be asked says nothing.
        let late = ExecError::Late { program: "containerd".into(), limit: DUMP };
        assert!(seen(Err(late), known).is_ok());
    }
}
