//! What planning needs to know of a node: what is to change for a shim there, and what of it containerd has by itself.

use std::sync::OnceLock;

use super::config::{self, ConfigError, Layout, MAX_FILE, Version, handler_table, parse};
use super::error::NodeError;
use super::exec::Context;
use super::preset::Site;
use super::request::Wanted;
use super::root::HostRoot;
use super::settle::{self, Plan};
use super::state::Store;

/// A node, before anything is changed on it.
pub(crate) struct Survey<'a> {
    pub(crate) site: &'a Site,
    pub(crate) context: &'a Context,
    major: Option<u64>,
    /// What containerd says that it would run with, where it can be asked.
    dumped: OnceLock<Option<String>>,
}

/// Files that earlier runs changed for a shim.
pub(crate) fn known_files(store: &Store<'_>, name: &str) -> Vec<String> {
    store.state.shims.get(name).map(|shim| shim.files.clone()).unwrap_or_default()
}

impl<'a> Survey<'a> {
    pub(crate) fn new(site: &'a Site, context: &'a Context) -> Self {
        Self { site, context, major: settle::major(context, site), dumped: OnceLock::new() }
    }

    /// What is to change for a shim whose program goes to `path`, on a host as those before it will have left it; then as it
    /// itself will have.
    pub(crate) fn plan(
        &self,
        store: &Store<'_>,
        ahead: &mut HostRoot,
        (wanted, path): (&Wanted, &str),
    ) -> Result<Plan, NodeError> {
        let name = wanted.name.as_str();
        let loaded = config::load(ahead, &self.site.config)?;
        let known = known_files(store, name);
        let look = settle::look(ahead, self.site, self.major, &loaded, &known);
        let changes = config::install(&look, wanted, path)?;
        for change in &changes {
            ahead.expect(&change.path, change.after.as_deref());
        }
        Ok(Plan { owner: name.to_owned(), changes })
    }

    /// Refuses a handler that containerd has and no file of its configuration says: it would be another program
    /// from then on, for pods that know nothing of it. Where the file is made anew at every start, what is ours in
    /// it cannot be told from that.
    pub(crate) fn refuse_built_in(
        &self,
        store: &Store<'_>,
        wanted: &Wanted,
    ) -> Result<(), NodeError> {
        let loaded = config::load(store.root, &self.site.config)?;
        let look = settle::look(store.root, self.site, self.major, &loaded, &[]);
        if look.layout != Layout::File || look.has_ours(wanted) {
            return Ok(());
        }
        let Some(dumped) = self.dumped() else { return Ok(()) };
        let ours = store.state.shims.values().map(|shim| shim.handler.as_str());
        Ok(refuse(dumped, ours, wanted.handler.as_str())?)
    }

    /// The same for each shim of a run: it is asked once.
    fn dumped(&self) -> Option<&str> {
        let ask = || {
            let program = self.site.program.as_deref().filter(|_| self.context.is_host())?;
            let text = settle::dump(self.context, program, &self.site.config).ok()?;
            Some(text).filter(|text| text.len() as u64 <= MAX_FILE)
        };
        self.dumped.get_or_init(ask).as_deref()
    }
}

/// Refuses what is in `dumped` and is none of `ours`: what a run that was killed wrote for a shim is there until whoever comes
/// next has taken it away, and is not containerd's.
fn refuse<'a>(
    dumped: &str,
    mut ours: impl Iterator<Item = &'a str>,
    handler: &str,
) -> Result<(), ConfigError> {
    let document = parse("containerd config dump", dumped)?;
    let version = Version::of("containerd config dump", &document)?;
    match handler_table(&document, version, handler) {
        Some(_) if ours.all(|one| one != handler) => {
            Err(ConfigError::BuiltIn { handler: handler.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_of_containerds_own_is_refused_and_one_that_a_killed_run_left_is_not() {
        let table = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.spin]";
        let dumped = format!("version = 3\n{table}\nruntime_type = 'x'\n");
        let refuse = |ours: &[&str], handler| refuse(&dumped, ours.iter().copied(), handler);
        let told = refuse(&["slight"], "spin").unwrap_err();
        assert!(matches!(told, ConfigError::BuiltIn { .. }), "{told}");
        assert!(refuse(&[], "spin").is_err() && refuse(&[], "slight").is_ok());
        assert!(refuse(&["slight", "spin"], "spin").is_ok());
    }
}
