//! A cluster of a few kinds for tests: what is written is there, what is there is heard of later, and Jobs end
//! when the test says so. It plays the server; the planner under test is the real one.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use portolan_api::shim::Shim;
use portolan_shim::resolve::Policy;
use serde_json::{Value, json};

use super::budget::Amount;
use super::class::ClassStep;
use super::facts::{Condition, Job, Node, NodeInfo, NodeStatus};
use super::identity::{Identity, Operation};
use super::outcome::{Outcome, Verdict};
use super::plan::{Done, Effect, Gone, Heard, Notice, Planner};
use super::record::NodePatch;
use super::settings::Settings;
use crate::patch::merge;

pub(super) const NAMESPACE: &str = "portolan-shims";

pub(super) fn settings() -> Settings {
    Settings {
        namespace: Some(NAMESPACE.into()),
        image: "registry.example/portolan:1".into(),
        service_account: "portolan-node-installer".into(),
        config_map: Some("downloads".into()),
        deadline_seconds: 600,
        look_every: None,
        ttl_seconds: 600,
        max_in_flight: Amount::Count(3),
        max_failed: Amount::Percent(50),
        policy: Policy::default(),
        bare_labels: true,
        install_dir: None,
        config: None,
        distro: None,
        restart_command: None,
        takeover: false,
        workers: 4,
    }
}

/// The server's side of the cluster.
#[derive(Default)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) jobs: BTreeMap<String, Job>,
    pub(super) shims: BTreeMap<String, Shim>,
    pub(super) classes: BTreeMap<String, RuntimeClass>,
    /// What is to be heard of, by kind: watches of different kinds run apart.
    pub(super) events: [VecDeque<Heard>; 4],
    pub(super) failures: BTreeMap<String, Verdict>,
    pub(super) rendered: BTreeMap<String, Value>,
    pub(super) notices: Vec<Notice>,
    /// Node patches, Jobs made, statuses.
    pub(super) writes: [usize; 3],
    pub(super) now: i64,
    /// How far the server's clock is behind, in milliseconds.
    pub(super) behind: i64,
    pub(super) version: u64,
}

/// How a Job ends, by what a node says. Some reasons are found before anything is put there, one is the
/// kubelet's.
pub(super) fn outcome(reason: &str, permanent: bool) -> Outcome {
    let untouched = ["DownloadFailed", "DigestMismatch", "WrongArchitecture"].contains(&reason);
    let said = reason != "ImagePullBackOff";
    Outcome { reason: reason.into(), message: "so it was".into(), permanent, untouched, said }
}

pub(super) fn label(node: &Node, key: &str) -> Option<String> {
    node.metadata.labels.as_ref()?.get(key).cloned()
}

pub(super) fn shim(name: &str, location: &str, rollout: Value) -> Shim {
    serde_json::from_value(json!({
        "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"shim": "yes"},
            "fetchStrategy": {"platforms": [
                {"os": "linux", "arch": "x86_64", "location": location, "sha256": "1".repeat(64)},
                {"os": "linux", "arch": "aarch64", "location": location, "sha256": "2".repeat(64)},
            ]},
            "runtimeClass": {"name": format!("class-{name}"), "handler": name},
            "rolloutStrategy": rollout,
        },
    }))
    .unwrap()
}

impl World {
    fn stamp(&mut self, meta: &mut ObjectMeta) {
        self.version += 1;
        meta.resource_version = Some(self.version.to_string());
        if meta.uid.is_none() {
            meta.uid = Some(format!("uid-{}", self.version));
            let now = Timestamp::from_millisecond(self.now - self.behind).unwrap();
            meta.creation_timestamp = Some(Time(now));
        }
    }

    pub(super) fn put_node(&mut self, mut node: Node) {
        self.stamp(&mut node.metadata);
        self.events[0].push_back(Heard::Node(Box::new(node.clone())));
        self.nodes.insert(node.metadata.name.clone().unwrap(), node);
    }

    /// A machine that is ready and selected.
    pub(super) fn add_node(&mut self, name: &str, arch: &str) {
        let mut labels = BTreeMap::from([("shim".to_owned(), "yes".to_owned())]);
        if name.starts_with("cp") {
            labels.insert("node-role.kubernetes.io/control-plane".into(), String::new());
        }
        let ready =
            Condition { kind: "Ready".into(), status: "True".into(), ..Condition::default() };
        self.put_node(Node {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            status: NodeStatus {
                node_info: NodeInfo {
                    operating_system: "linux".into(),
                    architecture: arch.into(),
                    container_runtime_version: "containerd://1.7.2".into(),
                    boot_id: "boot-1".into(),
                },
                conditions: vec![ready],
            },
        });
    }

    pub(super) fn edit_node(&mut self, name: &str, edit: impl FnOnce(&mut Node)) {
        if let Some(mut node) = self.nodes.get(name).cloned() {
            edit(&mut node);
            self.put_node(node);
        }
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.events[0].push_back(Heard::NodeGone(Gone::new(&node.metadata)));
        }
    }

    pub(super) fn put_shim(&mut self, mut shim: Shim) {
        let name = shim.metadata.name.clone().unwrap();
        if let Some(old) = self.shims.get(&name) {
            let same = old.spec == shim.spec;
            let generation = old.metadata.generation.unwrap_or_default() + i64::from(!same);
            shim.metadata = ObjectMeta { generation: Some(generation), ..shim.metadata };
        } else {
            shim.metadata.generation = Some(1);
        }
        self.stamp(&mut shim.metadata);
        let held = shim.metadata.finalizers.iter().flatten().count() > 0;
        if shim.metadata.deletion_timestamp.is_some() && !held {
            self.shims.remove(&name);
            self.events[2].push_back(Heard::ShimGone(Gone::new(&shim.metadata)));
            return;
        }
        self.events[2].push_back(Heard::Shim(Box::new(shim.clone())));
        self.shims.insert(name, shim);
    }

    pub(super) fn edit_shim(&mut self, name: &str, edit: impl FnOnce(&mut Shim)) {
        let mut shim = self.shims[name].clone();
        edit(&mut shim);
        self.put_shim(shim);
    }

    pub(super) fn delete_shim(&mut self, name: &str) {
        let now = Time(Timestamp::from_millisecond(self.now).unwrap());
        if self.shims.contains_key(name) {
            self.edit_shim(name, |shim| shim.metadata.deletion_timestamp = Some(now));
        }
    }

    pub(super) fn put_job(&mut self, mut job: Job) {
        self.stamp(&mut job.metadata);
        self.events[1].push_back(Heard::Job(Box::new(job.clone())));
        self.jobs.insert(job.metadata.name.clone().unwrap(), job);
    }

    pub(super) fn remove_job(&mut self, name: &str) {
        if let Some(job) = self.jobs.remove(name) {
            self.events[1].push_back(Heard::JobGone(Gone::new(&job.metadata)));
        }
    }

    /// Ends a Job, the same for all of its Shims.
    pub(super) fn end(&mut self, name: &str, failure: Option<(&str, bool)>) {
        self.end_so(name, failure.map(|(reason, permanent)| outcome(reason, permanent).into()));
    }

    /// Ends a Job that is of several Shims as its node says.
    pub(super) fn end_so(&mut self, name: &str, failure: Option<Verdict>) {
        let mut job = self.jobs[name].clone();
        let kind = if failure.is_some() { "Failed" } else { "Complete" };
        job.status.conditions = vec![Condition {
            kind: kind.into(),
            status: "True".into(),
            reason: "BackoffLimitExceeded".into(),
            message: String::new(),
        }];
        if let Some(verdict) = failure {
            self.failures.insert(job.metadata.uid.clone().unwrap(), verdict);
        }
        self.put_job(job);
    }

    pub(super) fn identity(&self, job: &str) -> Identity {
        Identity::read(self.jobs[job].metadata.annotations.as_ref().unwrap()).unwrap()
    }

    /// Jobs that have not ended.
    pub(super) fn live(&self) -> Vec<String> {
        let live = self.jobs.iter().filter(|(_, job)| job.status.conditions.is_empty());
        live.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn live_operations(&self) -> Vec<(String, Operation)> {
        let all = self.live().into_iter().map(|name| self.identity(&name));
        all.map(|identity| (identity.node, identity.operation)).collect()
    }

    /// What a server does with it.
    pub(super) fn apply(&mut self, effect: &Effect) -> Done {
        match effect {
            Effect::Patch { node, uid, patch } => self.patch_node(node, uid, patch),
            Effect::Start { node, uid, patch, order } => {
                let done = if patch.is_empty() {
                    Done::Wrote(Vec::new())
                } else {
                    self.patch_node(node, uid, patch)
                };
                let Done::Wrote(mut heard) = done else { return done };
                if !self.nodes.contains_key(node) {
                    return Done::Wrote(heard);
                }
                let job = order.render(&settings());
                let name = job["metadata"]["name"].as_str().unwrap().to_owned();
                if !self.jobs.contains_key(&name) {
                    self.writes[1] += 1;
                    self.rendered.insert(name.clone(), job.clone());
                    self.put_job(serde_json::from_value(job).unwrap());
                }
                heard.push(Heard::Job(Box::new(self.jobs[&name].clone())));
                Done::Wrote(heard)
            }
            Effect::Collect { uid, .. } => Done::Collected(uid.clone(), self.failures[uid].clone()),
            Effect::Kill { job, uid } => {
                let same = |job: &&Job| job.metadata.uid.as_ref() == Some(uid);
                let Some(mut there) = self.jobs.get(job).filter(same).cloned() else {
                    let (name, uid) = (job.clone(), uid.clone());
                    return Done::Wrote(vec![Heard::JobGone(Gone { name, uid })]);
                };
                // Pods go first: the answer is a Job that is still there.
                let now = Timestamp::from_millisecond(self.now).unwrap();
                there.metadata.deletion_timestamp = Some(Time(now));
                self.put_job(there);
                let answer = self.jobs[job].clone();
                self.remove_job(job);
                Done::Wrote(vec![Heard::Job(Box::new(answer))])
            }
            Effect::Finalizers { shim, finalizers } => {
                let new = Some(finalizers.clone());
                self.write_shim(shim, |shim| shim.metadata.finalizers = new)
            }
            Effect::Status { shim, status } => {
                self.writes[2] += 1;
                let new = Some((**status).clone());
                self.write_shim(shim, |shim| shim.status = new)
            }
            Effect::Class { name, step, .. } => self.write_class(name, step),
            Effect::Tell(notice) => {
                self.notices.push(notice.clone());
                Done::Wrote(Vec::new())
            }
        }
    }

    fn patch_node(&mut self, name: &str, uid: &str, patch: &NodePatch) -> Done {
        let Some(node) = self.nodes.get(name) else {
            return Done::Wrote(vec![Heard::NodeGone(Gone { name: name.into(), uid: uid.into() })]);
        };
        if node.metadata.uid.as_deref() != Some(uid) {
            return Done::Failed(Vec::new());
        }
        self.writes[0] += 1;
        self.edit_node(name, |node| {
            let change = |map: &mut Option<BTreeMap<String, String>>,
                          by: &BTreeMap<String, Option<String>>| {
                let map = map.get_or_insert_default();
                for (key, value) in by {
                    match value {
                        Some(value) => drop(map.insert(key.clone(), value.clone())),
                        None => drop(map.remove(key)),
                    }
                }
            };
            change(&mut node.metadata.labels, &patch.labels);
            change(&mut node.metadata.annotations, &patch.annotations);
        });
        Done::Wrote(vec![Heard::Node(Box::new(self.nodes[name].clone()))])
    }

    fn write_shim(&mut self, shim: &Shim, edit: impl FnOnce(&mut Shim)) -> Done {
        let name = shim.metadata.name.clone().unwrap();
        match self.shims.get(&name) {
            None => Done::Wrote(vec![Heard::ShimGone(Gone::new(&shim.metadata))]),
            Some(now) if now.metadata.resource_version != shim.metadata.resource_version => {
                Done::Failed(Vec::new())
            }
            Some(_) => {
                self.edit_shim(&name, edit);
                let written = self.shims.get(&name);
                Done::Wrote(
                    written.map(|shim| Heard::Shim(Box::new(shim.clone()))).into_iter().collect(),
                )
            }
        }
    }

    fn write_class(&mut self, name: &str, step: &ClassStep) -> Done {
        match step {
            ClassStep::Create(class) => {
                self.put_class((**class).clone());
                Done::Wrote(vec![Heard::Class(Box::new(self.classes[name].clone()))])
            }
            ClassStep::Delete(class) => {
                let gone = Gone::new(&class.metadata);
                self.classes.remove(name);
                self.events[3].push_back(Heard::ClassGone(gone.clone()));
                Done::Wrote(vec![Heard::ClassGone(gone)])
            }
            ClassStep::Patch(change) => {
                let now = &self.classes[name];
                let version = &change["metadata"]["resourceVersion"];
                if *version != json!(now.metadata.resource_version) {
                    return Done::Failed(Vec::new());
                }
                let stored = serde_json::to_value(now).unwrap();
                let class = serde_json::from_value(merge(&stored, change)).unwrap();
                self.put_class(class);
                Done::Wrote(vec![Heard::Class(Box::new(self.classes[name].clone()))])
            }
            other => panic!("{other:?}"),
        }
    }

    /// A RuntimeClass, of whomever.
    pub(super) fn put_class(&mut self, mut class: RuntimeClass) {
        self.stamp(&mut class.metadata);
        self.events[3].push_back(Heard::Class(Box::new(class.clone())));
        self.classes.insert(class.metadata.name.clone().unwrap(), class);
    }

    pub(super) fn remove_class(&mut self, name: &str) {
        if let Some(class) = self.classes.remove(name) {
            self.events[3].push_back(Heard::ClassGone(Gone::new(&class.metadata)));
        }
    }

    /// A planner that has listed everything, as after a start.
    pub(super) fn planner(&mut self, settings: Settings) -> Planner {
        self.events.iter_mut().for_each(VecDeque::clear);
        let mut planner = Planner::new(settings);
        self.nodes.values().for_each(|node| planner.hear(Heard::Node(Box::new(node.clone()))));
        self.jobs.values().for_each(|job| planner.hear(Heard::Job(Box::new(job.clone()))));
        self.shims.values().for_each(|shim| planner.hear(Heard::Shim(Box::new(shim.clone()))));
        self.classes.values().for_each(|one| planner.hear(Heard::Class(Box::new(one.clone()))));
        planner
    }

    /// Lists a kind anew, as when a watch breaks off: what went meanwhile is not told one by one.
    pub(super) fn relist(&mut self, kind: usize, planner: &mut Planner) {
        self.events[kind].clear();
        let all = match kind {
            0 => {
                self.nodes
                    .values()
                    .for_each(|one| planner.hear(Heard::Node(Box::new(one.clone()))));
                Heard::Nodes(self.nodes.keys().cloned().collect())
            }
            1 => {
                self.jobs.values().for_each(|one| planner.hear(Heard::Job(Box::new(one.clone()))));
                Heard::Jobs(self.jobs.keys().cloned().collect())
            }
            2 => {
                self.shims
                    .values()
                    .for_each(|one| planner.hear(Heard::Shim(Box::new(one.clone()))));
                Heard::Shims(self.shims.keys().cloned().collect())
            }
            _ => {
                let classes = self.classes.values();
                classes.for_each(|one| planner.hear(Heard::Class(Box::new(one.clone()))));
                Heard::Classes(self.classes.keys().cloned().collect())
            }
        };
        planner.hear(all);
    }

    /// Lets the planner hear and act, without faults, until nothing more comes of it.
    pub(super) fn settle(&mut self, planner: &mut Planner) -> Vec<Effect> {
        let mut all = Vec::new();
        for _ in 0..1000 {
            for kind in &mut self.events {
                kind.drain(..).for_each(|heard| planner.hear(heard));
            }
            let effects = planner.step(self.now, usize::MAX);
            if effects.is_empty() && self.events.iter().all(VecDeque::is_empty) {
                match planner.gathers(self.now) {
                    // What comes together begins a moment later.
                    Some(at) => self.now = at,
                    None => return all,
                }
            }
            for effect in effects {
                let done = self.apply(&effect);
                if let Some(key) = effect.key() {
                    planner.done(&key, done, self.now);
                }
                all.push(effect);
            }
        }
        panic!("it never comes to rest");
    }

    /// The same, with every Job done at once, for so many rounds.
    pub(super) fn finish(&mut self, planner: &mut Planner) {
        for _ in 0..200 {
            self.settle(planner);
            let live = self.live();
            if live.is_empty() {
                return;
            }
            live.iter().for_each(|name| self.end(name, None));
            self.now += 2000;
        }
        panic!("there is always one more Job");
    }
}
