//! What was heard of the cluster, and what came of what was done.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portolan_api::shim::Shim;

use super::{
    FIRST_PAUSE, FIRST_PAUSE_REFUSED, Kept, Key, LONGEST_PAUSE, LONGEST_PAUSE_REFUSED, Planner,
};
use crate::shims::facts::{Job, JobFacts, Node, NodeFacts};
use crate::shims::outcome::Verdict;

/// An object that went. Another of its name may have come meanwhile, so the UID says which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Gone {
    pub(crate) fn new(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

/// Something of the cluster.
#[derive(Debug)]
pub(crate) enum Heard {
    Node(Box<Node>),
    NodeGone(Gone),
    Job(Box<Job>),
    JobGone(Gone),
    Shim(Box<Shim>),
    ShimGone(Gone),
    Class(Box<RuntimeClass>),
    ClassGone(Gone),
    /// All that there is of a kind: what is not named is gone.
    Nodes(BTreeSet<String>),
    Jobs(BTreeSet<String>),
    Shims(BTreeSet<String>),
    Classes(BTreeSet<String>),
}

/// What came of an effect.
#[derive(Debug)]
pub(crate) enum Done {
    /// It is written, and this is what is there now.
    Wrote(Vec<Heard>),
    /// What a Job that failed came to, by its UID.
    Collected(String, Verdict),
    /// The server does not take it; saying it again at once changes nothing. Some of it may be written.
    Refused { message: String, heard: Vec<Heard> },
    /// It is tried again later; some of it may be written.
    Failed(Vec<Heard>),
}

/// Versions of one kind are in order, whichever object they are of.
fn version(text: Option<&String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Planner {
    pub(crate) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Node(node) => self.hear_node(*node),
            Heard::NodeGone(Gone { name, uid }) => {
                if self.nodes.get(&name).is_some_and(|node| node.value.uid == uid) {
                    self.forget_node(name);
                }
                self.graves.bury(uid);
            }
            Heard::Job(job) => self.hear_job(*job),
            Heard::JobGone(Gone { name, uid }) => {
                if self.jobs.get(&name).is_some_and(|job| job.value.uid == uid) {
                    self.forget_job(&name);
                }
                self.graves.bury(uid);
            }
            Heard::Shim(shim) => self.hear_shim(*shim),
            Heard::ShimGone(Gone { name, uid }) => {
                let known = self.shims.get(&name).and_then(|shim| shim.value.metadata.uid.clone());
                if known.as_ref() == Some(&uid) {
                    self.forget_shim(&name);
                }
                self.graves.bury(uid);
            }
            Heard::Class(class) => self.hear_class(*class),
            Heard::ClassGone(Gone { name, uid }) => {
                let known = self.classes.get(&name).and_then(|class| class.metadata.uid.as_ref());
                if known == Some(&uid) {
                    self.classes.remove(&name);
                    self.all_shims_dirty();
                }
            }
            Heard::Nodes(there) => self.only_nodes(&there),
            Heard::Jobs(there) => self.only_jobs(&there),
            Heard::Shims(there) => self.only_shims(&there),
            Heard::Classes(there) => {
                self.classes.retain(|name, _| there.contains(name));
                self.all_shims_dirty();
            }
        }
    }

    fn only_nodes(&mut self, there: &BTreeSet<String>) {
        let gone = self.nodes.iter().filter(|(name, _)| !there.contains(*name));
        let gone: Vec<_> =
            gone.map(|(name, node)| (name.clone(), node.value.uid.clone())).collect();
        for (name, uid) in gone {
            self.forget_node(name);
            self.graves.bury(uid);
        }
    }

    /// Unlike others, a Job may be known from the answer to its making alone, and be younger than the list: it is
    /// forgotten then, and heard of again. One that is being deleted may be buried.
    fn only_jobs(&mut self, there: &BTreeSet<String>) {
        let gone = self.jobs.iter().filter(|(name, _)| !there.contains(*name));
        let gone: Vec<_> = gone.map(|(name, job)| (name.clone(), job.value.uid.clone())).collect();
        for (name, uid) in gone {
            self.forget_job(&name);
            if self.busy.contains(&Key::Job(name)) {
                self.graves.bury(uid);
            }
        }
    }

    fn only_shims(&mut self, there: &BTreeSet<String>) {
        let gone = self.shims.keys().filter(|name| !there.contains(*name));
        // One that cannot be read is not listed either, and may be put right.
        gone.cloned().collect::<Vec<_>>().iter().for_each(|name| self.forget_shim(name));
    }

    fn hear_node(&mut self, node: Node) {
        let version = version(node.metadata.resource_version.as_ref());
        let value = NodeFacts::from(node);
        if self.graves.hold(&value.uid) {
            return;
        }
        let name = value.name.clone();
        match self.nodes.get_mut(&name) {
            Some(old) if version < old.version => {}
            Some(old) if old.value == value => old.version = version,
            old => {
                // What was told to begin was for the machine before.
                if old.is_some_and(|old| old.value.uid != value.uid) {
                    self.starting.remove(&name);
                    self.rejected.remove(&name);
                }
                self.nodes.insert(name.clone(), Kept { version, value });
                self.dirty_nodes.insert(name);
            }
        }
    }

    fn forget_node(&mut self, name: String) {
        self.nodes.remove(&name);
        self.pauses.remove(&Key::Node(name.clone()));
        self.starting.remove(&name);
        self.rejected.remove(&name);
        self.dirty_nodes.insert(name);
    }

    fn hear_job(&mut self, job: Job) {
        let version = version(job.metadata.resource_version.as_ref());
        let name = job.metadata.name.clone().unwrap_or_default();
        let Some(mut value) = JobFacts::believed(job, self.settings.namespace()) else {
            tracing::debug!(name, "a Job with our label is not ours and is passed over");
            return;
        };
        if self.graves.hold(&value.uid) {
            return;
        }
        let old = self.jobs.get(&name).filter(|old| old.value.uid == value.uid);
        let since = old.map(|old| old.value.since);
        value.since = since.unwrap_or_default();
        match self.jobs.get_mut(&name) {
            Some(old) if version < old.version => {}
            Some(old) if old.value == value => old.version = version,
            _ => {
                // What comes late of one that had the name before gives nobody more time.
                self.unseen.extend(since.is_none().then(|| name.clone()));
                let node = value.identity.node.clone();
                self.is_made(&node, &name);
                self.jobs.insert(name.clone(), Kept { version, value });
                self.jobs_of.entry(node.clone()).or_default().insert(name);
                self.dirty_nodes.insert(node);
            }
        }
    }

    fn forget_job(&mut self, name: &str) {
        let Some(job) = self.jobs.remove(name) else { return };
        self.verdicts.remove(&job.value.uid);
        self.pauses.remove(&Key::Job(name.to_owned()));
        let node = job.value.identity.node;
        if let Some(all) = self.jobs_of.get_mut(&node) {
            all.remove(name);
            if all.is_empty() {
                self.jobs_of.remove(&node);
            }
        }
        self.dirty_nodes.insert(node);
    }

    fn hear_shim(&mut self, shim: Shim) {
        let version = version(shim.metadata.resource_version.as_ref());
        let name = shim.metadata.name.clone().unwrap_or_default();
        let old = self.shims.get(&name);
        let gone = shim.metadata.uid.as_ref().is_some_and(|uid| self.graves.hold(uid));
        if gone || old.is_some_and(|old| version < old.version) {
            return;
        }
        // Nodes are not asked again for what only a status or an annotation says.
        let decides = |shim: &Shim| {
            let meta = &shim.metadata;
            (meta.uid.clone(), meta.deletion_timestamp.is_some(), super::is_held(shim))
        };
        let same = old.is_some_and(|old| {
            decides(&old.value) == decides(&shim) && old.value.spec == shim.spec
        });
        if !same {
            self.refused_classes.remove(&name);
            self.pauses.remove(&Key::Class(name.clone()));
            self.dirty_nodes.extend(self.nodes.keys().cloned());
            if shim.metadata.deletion_timestamp.is_none() {
                self.gather.hear(&name);
            }
        }
        self.dirty_shims.insert(name.clone());
        self.shims.insert(name, Kept { version, value: Arc::new(shim) });
    }

    fn forget_shim(&mut self, name: &str) {
        self.shims.remove(name);
        self.refused_classes.remove(name);
        self.status_at.remove(name);
        self.pauses.remove(&Key::Shim(name.to_owned()));
        self.pauses.remove(&Key::Class(name.to_owned()));
        self.dirty_nodes.extend(self.nodes.keys().cloned());
    }

    fn hear_class(&mut self, class: RuntimeClass) {
        let name = class.metadata.name.clone().unwrap_or_default();
        let new = version(class.metadata.resource_version.as_ref());
        let old = self.classes.get(&name);
        let late = old.map(|old| version(old.metadata.resource_version.as_ref()));
        if late.is_none_or(|old| new >= old) {
            self.classes.insert(name, class);
            self.all_shims_dirty();
        }
    }

    fn all_shims_dirty(&mut self) {
        self.dirty_shims.extend(self.shims.keys().cloned());
    }

    /// What came of an effect.
    pub(crate) fn done(&mut self, key: &Key, done: Done, now: i64) {
        self.busy.remove(key);
        match key {
            Key::Node(node) => {
                self.dirty_nodes.insert(node.clone());
            }
            Key::Job(job) => {
                let node = self.jobs.get(job).map(|job| job.value.identity.node.clone());
                self.dirty_nodes.extend(node);
            }
            Key::Shim(shim) | Key::Class(shim) => {
                self.dirty_shims.insert(shim.clone());
            }
        }
        match done {
            Done::Wrote(heard) => self.wrote(key, heard),
            Done::Collected(uid, verdict) => {
                self.pauses.remove(key);
                // Of a Job that went meanwhile nobody would ever take it away again.
                let job = match key {
                    Key::Job(name) => self.jobs.get(name),
                    _ => None,
                };
                if job.is_some_and(|job| job.value.uid == uid) {
                    self.verdicts.insert(uid, verdict);
                }
            }
            Done::Refused { message, heard } => self.refused(key, (message, heard), now),
            Done::Failed(heard) => {
                if let Key::Node(node) = key {
                    self.is_written_in_part(node, &heard);
                    self.lose(node, now);
                }
                heard.into_iter().for_each(|heard| self.hear(heard));
                self.pause(key, now, FIRST_PAUSE, LONGEST_PAUSE);
            }
        }
    }

    fn wrote(&mut self, key: &Key, heard: Vec<Heard>) {
        self.pauses.remove(key);
        if let Key::Node(node) = key {
            self.is_written(node);
            // Labels alone say nothing of a Job that was told to begin before.
            let answers = |heard: &Heard| matches!(heard, Heard::Job(_) | Heard::NodeGone(_));
            if heard.iter().any(answers) {
                self.starting.remove(node);
            }
        }
        heard.into_iter().for_each(|heard| self.hear(heard));
    }

    fn refused(&mut self, key: &Key, (message, heard): (String, Vec<Heard>), now: i64) {
        match key {
            Key::Class(shim) if self.knows(key) => {
                self.refused_classes.insert(shim.clone(), message);
            }
            Key::Node(node) => {
                self.is_written_in_part(node, &heard);
                self.reject(node, &message, now);
            }
            Key::Class(_) | Key::Job(_) | Key::Shim(_) => {}
        }
        heard.into_iter().for_each(|heard| self.hear(heard));
        // Of a node it is written down as a failure, which has pauses of its own.
        match key {
            Key::Node(_) => self.pause(key, now, FIRST_PAUSE, LONGEST_PAUSE),
            _ => self.pause(key, now, FIRST_PAUSE_REFUSED, LONGEST_PAUSE_REFUSED),
        }
    }

    /// The node comes before the Job: it may be written where that is not made.
    fn is_written_in_part(&mut self, node: &str, heard: &[Heard]) {
        if heard.iter().any(|heard| matches!(heard, Heard::Node(_))) {
            self.is_written(node);
        }
    }

    /// Pauses double to a bound.
    fn pause(&mut self, key: &Key, now: i64, first: i64, longest: i64) {
        let pause = self.pauses.entry(key.clone()).or_default();
        pause.length = (first << i64::from(pause.times.min(10))).min(longest);
        pause.times += 1;
        pause.until = now + pause.length;
        self.timers.insert((pause.until, key.clone()));
    }
}
