//! A changed configuration that the runtime takes: started again and asked; or the one from before, and the
//! runtime started with that.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::config::load;
use super::error::{NodeError, Untaken};
use super::exec::Context;
use super::preset::{Site, daemons, running_all};
use super::ready::{self, Expect, ReadyError};
use super::restart::{self, Method, RestartError};
use super::root::HostRoot;
use super::settle::{Plan, Restart, Settled, Work};
use crate::report::Phase;

/// Processes, each by its number and when it began: numbers come again.
type Processes = Vec<(u32, Option<u64>)>;

/// Where the runtime answers, here.
fn socket(root: &HostRoot, site: &Site) -> PathBuf {
    let loaded = load(root, &site.config).unwrap_or_default();
    ready::socket_here(root, &ready::socket(site, &loaded))
}

/// How the runtime is to be started again. A runtime that runs and cannot be reached is no tree of files.
async fn choose(
    root: &HostRoot,
    site: &Site,
    context: &Context,
    restart: &Restart,
) -> Result<Method, RestartError> {
    let method = restart::choose(root, context, site, restart.command.as_deref())?;
    let lives = || async { site.daemon.is_some() || ready::accepts(&socket(root, site)).await };
    if method == Method::Nothing && lives().await {
        return Err(RestartError::Unreachable);
    }
    Ok(method)
}

/// How the runtime will be started again for these plans, if they change anything. Asked before anything is made: who is
/// refused here has nothing on the node that was not there.
pub(crate) async fn foresee(
    root: &HostRoot,
    site: &Site,
    context: &Context,
    restart: &Restart,
    plans: &[Plan],
) -> Result<Option<Method>, NodeError> {
    if restart.off || plans.iter().all(|plan| plan.changes.is_empty()) {
        return Ok(None);
    }
    choose(root, site, context, restart).await.map(Some).map_err(NodeError::NoRestart)
}

impl Work<'_, '_> {
    fn socket(&self) -> PathBuf {
        socket(self.store.root, self.site)
    }

    pub(super) async fn choose(&self) -> Result<Method, RestartError> {
        choose(self.store.root, self.site, self.context, self.restart).await
    }

    /// Starts the runtime again if it has not read this configuration yet, and waits for it. True where it
    /// has read it now.
    pub(super) async fn take_effect(
        &mut self,
        method: Option<Method>,
        expect: Expect<'_>,
        settled: &mut Settled,
    ) -> Result<bool, NodeError> {
        let socket = self.socket();
        let was_there = socket.exists();
        // A handler that the configuration names and the runtime does not know: it was never read.
        let stale = self.context.is_host()
            && !settled.changed
            && matches!(ready::look(&socket, expect).await, Err(ReadyError::Unknown { .. }));
        let old = self.processes();
        let mut chosen = method;
        if stale || (self.store.state.restart_due && !self.was_read()) {
            let method = self.start(chosen, &old, was_there).await?;
            settled.restarted = method != Method::Nothing;
            chosen = Some(method);
        }
        let nothing = chosen == Some(Method::Nothing);
        if !settled.restarted && settled.changed {
            let text = "the runtime was not started again: this is a tree of files";
            settled.warnings.push(text.to_owned());
            return Ok(!nothing);
        }
        if !self.can_be_asked(was_there) {
            if settled.restarted {
                let text = "the runtime was not asked: it has no socket below this root";
                settled.warnings.push(text.to_owned());
            }
            return Ok(!nothing);
        }
        (self.phase)(Phase::Ready);
        let is_old = || settled.restarted && self.is_old(&old);
        match ready::wait(&socket, expect, self.restart.patience, is_old).await {
            Ok(status) => {
                settled.version = status.version;
                Ok(!nothing)
            }
            // It was so before, and nothing that is taken back would make it well.
            Err(error)
                if !settled.changed && !settled.restarted && self.store.state.before.is_empty() =>
            {
                Err(NodeError::Unanswered(error))
            }
            Err(error) => {
                let method = match chosen {
                    Some(method) => method,
                    None => self.choose().await.map_err(NodeError::NoRestart)?,
                };
                Err(self.go_back(&method, &old, error.into(), was_there).await?)
            }
        }
    }

    /// Starts the runtime again, by `method` if that is known already.
    async fn start(
        &mut self,
        method: Option<Method>,
        old: &Processes,
        was_there: bool,
    ) -> Result<Method, NodeError> {
        (self.phase)(Phase::Restart);
        let method = match method {
            Some(method) => method,
            None => match self.choose().await {
                Ok(method) => method,
                Err(error) => {
                    self.undo(true)?;
                    return Err(NodeError::NoRestart(error));
                }
            },
        };
        match restart::act(self.store.root, self.context, self.site, &method, false) {
            Ok(()) => Ok(method),
            Err(error) => Err(self.go_back(&method, old, error.into(), was_there).await?),
        }
    }

    fn can_be_asked(&self, was_there: bool) -> bool {
        self.context.is_host() || was_there || self.socket().exists()
    }

    /// The processes that read this configuration.
    fn processes(&self) -> Processes {
        let running = daemons(self.store.root.dir());
        let own = running_all(&running, self.site.preset, &self.site.config);
        own.iter().map(|daemon| (daemon.pid, daemon.ticks)).collect()
    }

    /// Whether those that ran before have not yet made room for a new one.
    fn is_old(&self, old: &Processes) -> bool {
        let now = self.processes();
        !old.is_empty() && (now.is_empty() || now.iter().any(|process| old.contains(process)))
    }

    /// Whether the daemon that runs was started after the configuration changed: by an earlier run that
    /// ended there, or by somebody else.
    fn was_read(&self) -> bool {
        let running = daemons(self.store.root.dir());
        let own = running_all(&running, self.site.preset, &self.site.config);
        let started = own.first().and_then(|daemon| daemon.started);
        let changed = self.store.state.before.iter().filter_map(|saved| self.modified(&saved.path));
        let changed = changed.max();
        matches!((started, changed), (Some(started), Some(changed)) if started > changed)
    }

    /// A file that is gone leaves its trace in its directory.
    fn modified(&self, path: &str) -> Option<SystemTime> {
        let here = self.store.here(path).ok()?;
        let there: &Path = if here.exists() { &here } else { here.parent()? };
        std::fs::metadata(there).and_then(|m| m.modified()).ok()
    }

    /// The runtime did not take it: everything back, and started again. `first` ran before all of this.
    async fn go_back(
        &mut self,
        method: &Method,
        first: &Processes,
        cause: Untaken,
        was_there: bool,
    ) -> Result<NodeError, NodeError> {
        self.undo(true)?;
        let old = self.processes();
        let again = restart::act(self.store.root, self.context, self.site, method, true);
        if let Err(error) = &again {
            let error = portolan_core::causes::chain(error);
            tracing::error!(error, "the runtime was not started with its former configuration");
        }
        self.store.state.restart_due = again.is_err();
        self.store.save()?;
        if !self.can_be_asked(was_there) {
            return Ok(cause.rolled_back());
        }
        // One that was never ended has the former configuration already.
        let stayed = || self.processes().iter().any(|process| first.contains(process));
        let is_old = || again.is_ok() && !stayed() && self.is_old(&old);
        let socket = self.socket();
        match ready::wait(&socket, Expect::Well, self.restart.patience, is_old).await {
            Ok(_) => Ok(cause.rolled_back()),
            Err(_) => Ok(NodeError::RuntimeDown(cause)),
        }
    }
}
