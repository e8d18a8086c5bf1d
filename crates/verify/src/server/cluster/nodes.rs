//! The cluster's nodes, watched.
//!
//! What is told is never less than what is there: before the first list, when the watch has been
//! broken for a while, and when a node does not say what it is, nothing is known, and then `nodes`
//! means all that an image has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node as Object;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use portolan_core::causes::chain;
use portolan_core::platform::PartialPlatform;

use super::Cluster;
use crate::pod::{Node, node_from_object};
use crate::subjects::Wanted;

/// Watches end by themselves that often, so that one that nobody hears of any more is noticed.
const WATCH_SECONDS: u32 = 45;
/// A watch that is broken for longer is no view of the cluster.
const GRACE: Duration = Duration::from_secs(60);
/// After a failure a watch that was taken up again says nothing until a node changes. Tries that fail
/// are never that far apart.
const QUIET: Duration = Duration::from_secs(150);

/// What is known of the nodes.
#[derive(Debug, Default)]
pub(in crate::server) struct View(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// None before the first list. Of a node that does not say what it is, none.
    listed: Option<BTreeMap<String, Option<Node>>>,
    /// A list that is not complete yet.
    coming: Option<BTreeMap<String, Option<Node>>>,
    /// When the trouble began, and when there was last some.
    trouble: Option<(Instant, Instant)>,
    /// What [`View::now`] gives out.
    told: Arc<Known>,
    /// The same where nothing is known: always this one, so that answers by it can be told again.
    nothing: Arc<Known>,
}

/// All nodes; none where they are not known.
#[derive(Debug, Default)]
pub(in crate::server) struct Known {
    pub(in crate::server) nodes: Vec<Node>,
    /// What they are, each once. Questions come more often than nodes.
    pub(in crate::server) platforms: Option<Wanted>,
}

impl Known {
    pub(in crate::server) fn new(nodes: Vec<Node>) -> Self {
        let platforms = Wanted::of(nodes.iter().map(|node| PartialPlatform::from(&node.platform)));
        Self { nodes, platforms }
    }
}

impl View {
    /// What is known at this moment.
    pub(in crate::server) fn now(&self) -> Arc<Known> {
        let state = self.state();
        match state.is_lost(Instant::now()) {
            true => Arc::clone(&state.nothing),
            false => Arc::clone(&state.told),
        }
    }

    /// Whether the first list has come.
    pub(in crate::server) fn is_ready(&self) -> bool {
        self.state().listed.is_some()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches, for ever.
    pub(in crate::server) async fn watch(self: Arc<Self>, cluster: Cluster) {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let events = watcher::watcher(Api::<Object>::all(cluster.client), config);
        let mut events = std::pin::pin!(events.default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let mut state = self.state();
                    let before = state.told.nodes.len();
                    state.take(event);
                    let nodes = state.told.nodes.len();
                    if nodes != before {
                        tracing::info!(nodes, "the cluster's nodes");
                    }
                }
                Err(error) => {
                    self.state().failed(Instant::now());
                    let error = chain(&error);
                    tracing::warn!(error, "the nodes cannot be watched; nodes come to mean all");
                }
            }
        }
    }
}

impl State {
    fn take(&mut self, event: Event<Object>) {
        match event {
            // Said before the server is asked, and before it has told everything: while lists fail this
            // comes again and again.
            Event::Init => {
                self.coming = Some(BTreeMap::new());
                return;
            }
            Event::InitApply(node) => {
                let (name, node) = read(&node);
                self.coming.get_or_insert_default().insert(name, node);
                return;
            }
            Event::InitDone => self.listed = Some(self.coming.take().unwrap_or_default()),
            Event::Apply(node) => {
                let (name, node) = read(&node);
                self.trouble = None;
                // One node is not all of them.
                let Some(listed) = &mut self.listed else { return };
                // Kubelets say every few minutes that they are there.
                if listed.get(&name) == Some(&node) {
                    return;
                }
                listed.insert(name, node);
            }
            Event::Delete(node) => {
                let (name, _) = read(&node);
                self.listed.iter_mut().for_each(|listed| {
                    listed.remove(&name);
                });
            }
        }
        self.trouble = None;
        let all = self.listed.iter().flat_map(BTreeMap::values).cloned();
        self.told = Arc::new(Known::new(all.collect::<Option<Vec<_>>>().unwrap_or_default()));
    }

    fn failed(&mut self, now: Instant) {
        let (began, _) = self.trouble.unwrap_or((now, now));
        self.trouble = Some((began, now));
    }

    fn is_lost(&self, now: Instant) -> bool {
        self.trouble.is_some_and(|(began, last)| {
            now.duration_since(began) >= GRACE && now.duration_since(last) < QUIET
        })
    }
}

fn read(object: &Object) -> (String, Option<Node>) {
    let name = object.metadata.name.clone().unwrap_or_default();
    let node = serde_json::to_value(object).ok().and_then(|value| node_from_object(&value));
    (name, node)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn node(name: &str, arch: Option<&str>) -> Object {
        let info = arch.map(|arch| {
            json!({"operatingSystem": "linux", "architecture": arch, "bootID": "", "containerRuntimeVersion": "",
                   "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                   "osImage": "", "systemUUID": ""})
        });
        let object = json!({"metadata": {"name": name}, "status": {"nodeInfo": info}});
        serde_json::from_value(object).unwrap()
    }

    fn told(state: &State) -> Vec<String> {
        state.told.nodes.iter().map(|one| format!("{} {}", one.name, one.platform)).collect()
    }

    #[test]
    fn nodes_come_and_go_and_one_that_does_not_say_what_it_is_makes_all_unknown() {
        let mut state = State::default();
        state.take(Event::Init);
        state.take(Event::InitApply(node("a", Some("amd64"))));
        assert!(state.listed.is_none() && state.told.nodes.is_empty(), "the list is not complete");
        state.take(Event::InitDone);
        assert_eq!(told(&state), ["a linux/amd64"]);
        state.take(Event::Apply(node("b", Some("arm64"))));
        assert_eq!(told(&state), ["a linux/amd64", "b linux/arm64"]);
        state.take(Event::Apply(node("c", None)));
        assert!(state.told.nodes.is_empty(), "a node of which nothing is known may be anything");
        state.take(Event::Delete(node("c", None)));
        assert_eq!(told(&state), ["a linux/amd64", "b linux/arm64"]);
        // A new list begins: the old one counts until it is complete.
        state.take(Event::Init);
        state.take(Event::InitApply(node("b", Some("arm64"))));
        assert_eq!(told(&state).len(), 2);
        state.take(Event::InitDone);
        assert_eq!(told(&state), ["b linux/arm64"]);
    }

    #[test]
    fn a_watch_that_is_broken_for_a_while_is_no_view_and_one_that_was_taken_up_is() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut state = State::default();
        state.take(Event::Init);
        state.take(Event::InitDone);
        assert!(!state.is_lost(at(1000)), "silence is not trouble");
        state.failed(at(0));
        assert!(!state.is_lost(at(59)), "a moment is not");
        assert!(state.is_lost(at(60)));
        for seconds in (0..=600).step_by(120) {
            state.failed(at(seconds));
        }
        assert!(state.is_lost(at(600)) && state.is_lost(at(749)));
        assert!(!state.is_lost(at(750)), "nothing failed for longer than tries are apart");
        state.failed(at(800));
        assert!(state.is_lost(at(800)), "the same trouble as before");
        state.take(Event::Apply(node("a", Some("amd64"))));
        assert!(!state.is_lost(at(801)));
    }

    /// As a watcher does whose lists fail: it says that a list begins, and fails.
    #[test]
    fn lists_that_begin_and_fail_are_no_view_until_one_is_complete() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut state = State::default();
        state.take(Event::Init);
        state.take(Event::InitApply(node("a", Some("amd64"))));
        state.take(Event::InitDone);
        for seconds in (0..=90).step_by(30) {
            state.failed(at(seconds));
            state.take(Event::Init);
            state.take(Event::InitApply(node("b", Some("arm64"))));
        }
        assert!(state.is_lost(at(90)), "the old list may be less than there is");
        state.take(Event::InitDone);
        assert!(!state.is_lost(at(91)));
        assert_eq!(told(&state), ["b linux/arm64"]);
    }

    #[test]
    fn before_the_first_list_one_node_is_not_taken_for_all() {
        let mut state = State::default();
        state.take(Event::Apply(node("a", Some("amd64"))));
        state.take(Event::Delete(node("b", Some("arm64"))));
        assert!(state.listed.is_none() && state.told.platforms.is_none(), "{state:?}");
    }

    #[test]
    fn what_is_told_while_the_watch_is_broken_is_one_thing() {
        let view = View::default();
        let long_ago = Instant::now() - GRACE - Duration::from_secs(1);
        view.state().failed(long_ago);
        view.state().failed(Instant::now());
        assert!(Arc::ptr_eq(&view.now(), &view.now()), "answers by it may be told again");
        assert!(view.now().platforms.is_none());
    }

    proptest! {
        /// Whatever comes in whatever order: who is told has the platform of every node that was told
        /// of, or is told nothing, and that only where a node does not say what it is.
        #[test]
        fn never_fewer_platforms_than_there_are(
            events in prop::collection::vec((0..4_u8, 0..4_u8, prop::option::weighted(0.9, 0..3_u8)), 0..40),
        ) {
            let arch = |n: u8| ["amd64", "arm64", "s390x"][usize::from(n)];
            let mut state = State::default();
            let mut model = BTreeMap::new();
            let mut listed = false;
            for (kind, name, what) in events {
                let object = node(&name.to_string(), what.map(arch));
                match kind {
                    // A new list: this node and those that were there.
                    0 => {
                        model.insert(name, what);
                        state.take(Event::Init);
                        for (name, what) in &model {
                            state.take(Event::InitApply(node(&name.to_string(), what.map(arch))));
                        }
                        state.take(Event::InitDone);
                        listed = true;
                    }
                    1 => {
                        model.remove(&name);
                        state.take(Event::Delete(object));
                    }
                    _ => {
                        model.insert(name, what);
                        state.take(Event::Apply(object));
                    }
                }
                let found: Vec<_> = told(&state);
                let mut all = model.values().copied().map(|what| what.map(arch)).collect::<Option<Vec<_>>>();
                all = all.filter(|_| listed);
                prop_assert_eq!(found.len(), all.as_ref().map_or(0, Vec::len), "{:?}", state);
                for arch in all.iter().flatten() {
                    prop_assert!(found.iter().any(|one| one.ends_with(arch)), "{arch}: {found:?}");
                }
            }
        }
    }
}
