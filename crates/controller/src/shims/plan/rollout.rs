//! Who begins now, over all Shims and nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Effect, Key, Order, Planner, Starting, UNSURE};
use crate::shims::budget::{self, Allowance, Amount, Candidate, Going};
use crate::shims::cell::{Cell, State};
use crate::shims::identity::Identity;
use crate::shims::record::{self, Begun};

/// How far the nodes of a rolling Shim are.
#[derive(Debug, Default)]
struct Standing {
    /// All that have to do with it, also those that it is taken away from.
    nodes: usize,
    selected: usize,
    failed: usize,
    behind: usize,
    /// Artifacts that at least one node has, and those that failed somewhere.
    proven: BTreeSet<String>,
    suspect: BTreeSet<String>,
}

impl Standing {
    fn add(&mut self, cell: &Cell) {
        self.nodes += 1;
        self.selected += usize::from(cell.state.is_some());
        // What failed counts until it works, also while it is tried again. What a policy refuses says nothing of
        // the artifacts of others.
        if cell.has_failed() {
            self.failed += 1;
            self.suspect.extend(cell.hash.clone());
            return;
        }
        match &cell.state {
            Some(State::Ready { updated: true }) => self.proven.extend(cell.hash.clone()),
            Some(State::Pending | State::Ready { updated: false }) => self.behind += 1,
            _ => {}
        }
    }

    fn is_paused(&self, max_failed: Amount) -> bool {
        let first_failed = self.suspect.iter().any(|hash| !self.proven.contains(hash));
        self.behind > 0
            && self.failed > 0
            && (first_failed || self.failed >= max_failed.of(self.selected))
    }
}

impl Planner {
    /// Lets as many begin as there is room for.
    pub(super) fn begin(&mut self, now: i64, effects: &mut Vec<Effect>) {
        let written: BTreeSet<Key> = effects.iter().filter_map(Effect::key).collect();
        self.begin_again(now, &written, effects);
        let cap = self.settings.max_in_flight.of(self.nodes.len());
        let going = self.going(now);
        let occupied: BTreeSet<&str> = going.iter().map(|one| one.node.as_str()).collect();
        if occupied.len() >= cap {
            return;
        }
        let candidates = self.candidates(&occupied, &written);
        if candidates.is_empty() {
            return;
        }
        let started = budget::admit(candidates, &going, &self.allowances(), cap);
        for one in started {
            effects.extend(self.start(&one, now));
        }
    }

    /// Who would begin, of the nodes where nothing goes on.
    fn candidates(&self, occupied: &BTreeSet<&str>, written: &BTreeSet<Key>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (node, cells) in &self.cells {
            if cells.values().all(|cell| cell.want.is_none()) || occupied.contains(node.as_str()) {
                continue;
            }
            let key = Key::Node(node.clone());
            // What was just written of a node must be there before more is.
            let taken = self.busy.contains(&key) || written.contains(&key);
            if taken || self.dirty_nodes.contains(node) || self.starting.contains_key(node) {
                continue;
            }
            let Some(facts) = self.nodes.get(node) else { continue };
            let control_plane = facts.value.is_control_plane();
            candidates.extend(cells.iter().filter_map(|(shim, cell)| {
                let want = cell.want.as_ref()?;
                Some(Candidate {
                    node: node.clone(),
                    shim: shim.clone(),
                    operation: want.operation,
                    hash: want.hash.clone(),
                    again: want.retry || want.repair,
                    control_plane,
                })
            }));
        }
        candidates
    }

    /// What is under way: Jobs that have not ended, and what was told to begin.
    pub(crate) fn going(&self, now: i64) -> Vec<Going> {
        let deadline = self.settings.deadline_seconds;
        let control_plane =
            |node: &str| self.nodes.get(node).is_some_and(|node| node.value.is_control_plane());
        let mut all = Vec::new();
        for (node, names) in &self.jobs_of {
            // Nobody runs what is for a node that is gone.
            if !self.nodes.contains_key(node) {
                continue;
            }
            let jobs = names.iter().filter_map(|name| self.jobs.get(name)).map(|kept| &kept.value);
            all.extend(jobs.filter(|job| job.is_live() && !job.is_late(now / 1000, deadline)).map(
                |job| Going {
                    node: node.clone(),
                    shim: job.identity.shim.clone(),
                    hash: job.identity.hash.clone(),
                    control_plane: control_plane(node),
                },
            ));
        }
        all.extend(self.starting.iter().map(|(node, one)| Going {
            node: node.clone(),
            shim: one.shim.clone(),
            hash: one.hash.clone(),
            control_plane: control_plane(node),
        }));
        // What has failed and has not said why yet.
        let known: BTreeSet<_> =
            all.iter().map(|one| (one.node.clone(), one.shim.clone())).collect();
        for (node, cells) in &self.cells {
            let ended = cells.iter().filter(|(_, cell)| cell.collect.is_some());
            let ended = ended.filter(|(shim, _)| !known.contains(&(node.clone(), (*shim).clone())));
            all.extend(ended.map(|(shim, cell)| Going {
                node: node.clone(),
                shim: shim.clone(),
                hash: cell.hash.clone().unwrap_or_default(),
                control_plane: control_plane(node),
            }));
        }
        all
    }

    /// What was told to begin and not answered may have begun, so it holds its place. It is said again in the same
    /// words: the server knows by the name whether it is there.
    fn begin_again(&mut self, now: i64, written: &BTreeSet<Key>, effects: &mut Vec<Effect>) {
        let lost: Vec<String> = self.starting.keys().cloned().collect();
        for node in lost {
            let key = Key::Node(node.clone());
            if self.busy.contains(&key)
                || self.dirty_nodes.contains(&node)
                || !self.may_write(&key, now)
            {
                continue;
            }
            let Some(one) = self.starting.get(&node) else { continue };
            let cell = self.cells.get(&node).and_then(|cells| cells.get(&one.shim));
            let want = cell.and_then(|cell| cell.want.as_ref());
            let same =
                want.is_some_and(|want| want.hash == one.hash && want.operation == one.operation);
            match () {
                () if written.contains(&key) => {}
                () if same => effects.push(one.effect.clone()),
                // By then it would have been heard of.
                () if now >= one.until || one.until > now + UNSURE => {
                    drop(self.starting.remove(&node))
                }
                () => drop(self.timers.insert((one.until, key))),
            }
        }
    }

    fn allowances(&self) -> BTreeMap<String, Allowance> {
        let rolling = self.shims.iter().filter_map(|(name, shim)| {
            budget::max_update(&shim.value.spec.rollout_strategy).map(|amount| (name, amount))
        });
        rolling
            .map(|(name, amount)| {
                let standing = self.standing(name);
                let allowance = Allowance {
                    max_update: Some(amount.of(standing.nodes)),
                    paused: standing.is_paused(self.settings.max_failed),
                    proven: standing.proven,
                    suspect: standing.suspect,
                };
                (name.clone(), allowance)
            })
            .collect()
    }

    fn standing(&self, shim: &str) -> Standing {
        let mut standing = Standing::default();
        let cells = self.cells.values().filter_map(|cells| cells.get(shim));
        cells.for_each(|cell| standing.add(cell));
        standing
    }

    /// Whether so many nodes of a rolling Shim failed that the others wait.
    pub(super) fn is_paused(&self, shim: &str) -> bool {
        let spec = self.shims.get(shim).map(|shim| &shim.value.spec);
        if spec.is_none_or(|spec| budget::max_update(&spec.rollout_strategy).is_none()) {
            return false;
        }
        self.standing(shim).is_paused(self.settings.max_failed)
    }

    /// The Job, and what announces it.
    fn start(&mut self, one: &Candidate, now: i64) -> Option<Effect> {
        let node = &self.nodes.get(&one.node)?.value;
        let shim = &self.shims.get(&one.shim)?.value;
        let cell = self.cells.get(&one.node)?.get(&one.shim)?;
        let want = cell.want.as_ref()?;
        let mut nonce = want.nonce.unwrap_or(now);
        let mut identity = Identity {
            shim: one.shim.clone(),
            shim_uid: shim.metadata.uid.clone()?,
            node: node.name.clone(),
            node_uid: node.uid.clone(),
            operation: want.operation,
            hash: want.hash.clone(),
            nonce,
        };
        while want.nonce.is_none() && self.jobs.contains_key(&identity.job_name()) {
            nonce += 1;
            identity.nonce = nonce;
        }
        let mut announced = cell.record.clone();
        let (hash, handler) = (want.hash.clone(), shim.spec.runtime_class.handler.clone());
        announced.begun = Some(Begun { operation: want.operation, hash, nonce, handler });
        let patch = record::patch(node, &self.view(&one.shim, shim).marks(), Some(&announced));
        let (shim, artifact) = (Arc::clone(shim), want.artifact.clone());
        let effect = Effect::Start {
            node: node.name.clone(),
            uid: node.uid.clone(),
            patch,
            order: Arc::new(Order { identity, shim, artifact }),
        };
        let starting = Starting {
            shim: one.shim.clone(),
            hash: one.hash.clone(),
            operation: one.operation,
            effect: effect.clone(),
            until: now + UNSURE,
        };
        self.starting.insert(one.node.clone(), starting);
        // What is announced says so, too.
        self.rejected.remove(&one.node);
        Some(effect)
    }
}
