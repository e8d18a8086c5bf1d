//! A planned change of the configuration, made to hold: kept for going back, checked by containerd, written,
//! the runtime started again and asked; or all of it undone.

use std::time::{Duration, SystemTime};

use super::config::{
    Change, ConfigError, Loaded, Look, MAX_FILE, Version, handler_table, load, parse, same_foreign,
};
use super::error::NodeError;
use super::exec::{Context, ExecError};
use super::preset::{Site, daemons, running_for};
use super::ready::{self, Expect, ReadyError};
use super::restart::{self, Method, RestartError};
use super::state::{Saved, StateError, Store};
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
    pub(crate) phase: &'b mut (dyn FnMut(Phase) + Send),
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
    store: &'a Store<'_>,
    site: &'a Site,
    context: &Context,
    loaded: &'a [Loaded],
    known: &'a [String],
) -> Look<'a> {
    let (main, layout) = (site.config.as_str(), site.preset.layout);
    Look { root: store.root, main, layout, major: major(context, site), loaded, known }
}

impl Work<'_, '_> {
    /// Whoever changes a configuration needs a place to write down how it was: upstream's installer may
    /// have left its block and nothing of ours.
    pub(crate) fn begin(&mut self) -> Result<(), StateError> {
        self.store.create()
    }

    /// Makes `changes` hold. `owner` is the shim whose they are.
    pub(crate) async fn settle(
        &mut self,
        changes: &[Change],
        owner: &str,
        expect: Expect<'_>,
    ) -> Result<Settled, NodeError> {
        let mut settled = Settled { changed: !changes.is_empty(), ..Settled::default() };
        if !changes.is_empty() {
            (self.phase)(Phase::Configure);
            self.check_first(changes, expect, &mut settled.warnings)?;
            self.remember(changes, owner)?;
            for change in changes {
                self.write(&change.path, change.after.as_deref())?;
            }
            if let Err(error) = self.check_after(changes, expect) {
                self.undo()?;
                return Err(error.into());
            }
        }
        if self.restart.off {
            // Nobody will look whether it holds, so nobody will go back.
            self.store.state.before.clear();
            self.store.save()?;
            return Ok(settled);
        }
        self.take_effect(expect, &mut settled).await?;
        self.store.state.before.clear();
        self.store.state.restart_due = false;
        self.store.save()?;
        Ok(settled)
    }

    /// Writes down how files were, before they change. What an earlier run kept is older and counts, unless
    /// somebody has changed the file since: that must not be lost.
    fn remember(&mut self, changes: &[Change], owner: &str) -> Result<(), StateError> {
        let state = &mut self.store.state;
        for change in changes {
            let now = Saved { path: change.path.clone(), text: change.before.clone() };
            match state.before.iter_mut().find(|saved| saved.path == change.path) {
                Some(saved)
                    if same_foreign(&saved.path, saved.text.as_deref(), now.text.as_deref()) => {}
                Some(saved) => *saved = now,
                None => state.before.push(now),
            }
            let shim = state.shims.get_mut(owner).filter(|shim| !shim.files.contains(&change.path));
            if let Some(shim) = shim {
                shim.files.push(change.path.clone());
            }
        }
        state.restart_due = true;
        self.store.save()
    }

    fn write(&mut self, path: &str, text: Option<&str>) -> Result<(), StateError> {
        let here = self.store.here(path)?;
        match text {
            Some(text) => {
                let dir = path.rsplit_once('/').map_or("/", |(dir, _)| dir);
                self.store.ensure_dir(dir)?;
                self.store.disk.replace(&here, text.as_bytes(), 0o644)?;
            }
            None => {
                self.store.disk.sweep(&here)?;
                self.store.disk.remove_file(&here)?;
            }
        }
        Ok(())
    }

    /// Puts back how files were.
    fn undo(&mut self) -> Result<(), StateError> {
        for saved in self.store.state.before.clone() {
            self.write(&saved.path, saved.text.as_deref())?;
        }
        self.store.state.before.clear();
        self.store.state.restart_due = false;
        self.store.save()
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
        let dir = self.site.config.rsplit_once('/').map_or("/", |(dir, _)| dir);
        let trial = format!("{dir}/.portolan-trial");
        let here = self.store.here(&trial)?;
        if !here.parent().is_some_and(std::path::Path::is_dir) {
            return Ok(());
        }
        self.store.disk.replace(&here, text.as_bytes(), 0o600)?;
        let dumped = self.dump(program, &trial);
        self.store.disk.remove_file(&here)?;
        Ok(seen(dumped, expect)?)
    }

    /// Drop-ins are seen where they are, or not at all.
    fn check_after(&self, changes: &[Change], expect: Expect<'_>) -> Result<(), ConfigError> {
        let main_changed = changes.iter().any(|change| change.path == self.site.config);
        let rendered = self.site.preset.layout != super::config::Layout::File;
        let program = self.site.program.as_deref().filter(|_| self.context.is_host());
        match program {
            Some(program) if !main_changed && !rendered => {
                seen(self.dump(program, &self.site.config), expect)
            }
            _ => Ok(()),
        }
    }

    fn dump(&self, program: &str, config: &str) -> Result<String, ExecError> {
        self.context.run(program, &["--config", config, "config", "dump"], DUMP)
    }

    /// Starts the runtime again if it has not read this configuration yet, and waits for it.
    async fn take_effect(
        &mut self,
        expect: Expect<'_>,
        settled: &mut Settled,
    ) -> Result<(), NodeError> {
        let loaded = load(self.store.root, &self.site.config).unwrap_or_default();
        let socket = ready::socket_here(self.store.root, &ready::socket(self.site, &loaded));
        let was_there = socket.exists();
        // A handler that the configuration names and the runtime does not know: it was never read.
        let stale = self.context.is_host()
            && !settled.changed
            && matches!(ready::look(&socket, expect).await, Err(ReadyError::Unknown { .. }));
        if stale || (self.store.state.restart_due && !self.was_read()) {
            (self.phase)(Phase::Restart);
            match self.start_again() {
                Ok(done) => settled.restarted = done,
                Err(error) => {
                    self.undo()?;
                    return Err(NodeError::NotRestarted(error));
                }
            }
        }
        if !settled.restarted && settled.changed {
            settled
                .warnings
                .push("the runtime was not started again: this is a tree of files".to_owned());
            return Ok(());
        }
        if !self.context.is_host() && !was_there && !socket.exists() {
            if settled.restarted {
                settled
                    .warnings
                    .push("the runtime was not asked: it has no socket below this root".to_owned());
            }
            return Ok(());
        }
        (self.phase)(Phase::Ready);
        match ready::wait(&socket, expect, self.restart.patience).await {
            Ok(status) => {
                settled.version = status.version;
                Ok(())
            }
            Err(error) => Err(self.go_back(&socket, error).await?),
        }
    }

    fn start_again(&self) -> Result<bool, RestartError> {
        let (root, command) = (self.store.root, self.restart.command.as_deref());
        let method = restart::choose(root, self.context, self.site, command)?;
        restart::act(root, self.context, &method)?;
        Ok(method != Method::Nothing)
    }

    /// Whether the daemon that runs was started after the configuration changed: by an earlier run that
    /// ended there, or by somebody else.
    fn was_read(&self) -> bool {
        let running = daemons(self.store.root.dir());
        let daemon = running_for(&running, self.site.preset, &self.site.config);
        let started = daemon.and_then(|daemon| daemon.started);
        let changed = self.store.state.before.iter().filter_map(|saved| self.modified(&saved.path));
        let changed = changed.max();
        // A file that is gone leaves its trace in its directory.
        matches!((started, changed), (Some(started), Some(changed)) if started > changed)
    }

    fn modified(&self, path: &str) -> Option<SystemTime> {
        let here = self.store.here(path).ok()?;
        let there = if here.exists() { here.as_path() } else { here.parent()? };
        std::fs::metadata(there).and_then(|m| m.modified()).ok()
    }

    /// The runtime is not as it should be: everything back, and started again.
    async fn go_back(
        &mut self,
        socket: &std::path::Path,
        error: ReadyError,
    ) -> Result<NodeError, NodeError> {
        self.undo()?;
        if let Err(restart) = self.start_again() {
            tracing::error!(%restart, "the runtime cannot be started with its former configuration");
            return Ok(NodeError::RuntimeDown(error));
        }
        match ready::wait(socket, Expect::Well, self.restart.patience).await {
            Ok(_) => Ok(NodeError::RolledBack(error)),
            Err(_) => Ok(NodeError::RuntimeDown(error)),
        }
    }
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
    let Expect::Known(handler) = expect else { return Ok(()) };
    if text.len() as u64 > MAX_FILE {
        return Ok(());
    }
    let document = parse("containerd config dump", &text)?;
    let version = Version::of("containerd config dump", &document)?;
    match handler_table(&document, version, handler) {
        Some(_) => Ok(()),
        None => Err(ConfigError::NotSeen { handler: handler.to_owned() }),
    }
}
