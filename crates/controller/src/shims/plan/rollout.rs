//! Who begins now, over all Shims and nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Effect, Key, Order, Planner, Starting, UNSURE};
use crate::shims::budget::{self, Allowance, Candidate, Going, Group, Turn};
use crate::shims::facts::GRACE_SECONDS;
use crate::shims::identity::Identity;
use crate::shims::record::{self, Begun};

impl Planner {
    /// Lets as many begin as there is room for. `changed` are the nodes of which anything was heard.
    pub(super) fn begin(&mut self, changed: &[String], now: i64, effects: &mut Vec<Effect>) {
        for node in changed {
            self.begin_again(node, now, effects);
            self.enter(node, now);
        }
        let cap = self.settings.max_in_flight.of(self.nodes.len());
        let mut turn = Turn::new(self.allowances(), cap);
        while let Some(one) = turn.next(&self.ledger.queue, &self.ledger.books) {
            self.weighed += 1;
            match self.start(&one, now) {
                Some(effect) => {
                    self.busy.insert(Key::Node(one.node.clone()));
                    effects.push(effect);
                    self.enter(&one.node, now);
                }
                None => self.ledger.queue.set(&one.node, Vec::new()),
            }
        }
    }

    /// Enters what goes on on a node, and what would begin there if nothing does.
    pub(super) fn enter(&mut self, node: &str, now: i64) {
        let going = self.going(node, now);
        let free = going.is_empty()
            && !self.busy.contains(&Key::Node(node.to_owned()))
            && !self.waiting.contains(node);
        let wants = if free { self.wants(node) } else { Vec::new() };
        self.ledger.books.set(node, going);
        self.ledger.queue.set(node, wants);
    }

    fn wants(&self, node: &str) -> Vec<(Group, bool)> {
        let Some(facts) = self.nodes.get(node) else { return Vec::new() };
        let control_plane = facts.value.is_control_plane();
        let cells = self.ledger.of_node(node).into_iter().flatten();
        let wants = cells.filter_map(|(shim, cell)| {
            let want = cell.want.as_ref()?;
            let (shim, hash) = (shim.clone(), want.hash.clone());
            let again = want.retry || want.repair;
            Some((Group { shim, operation: want.operation, hash, again }, control_plane))
        });
        wants.collect()
    }

    /// What is under way on a node: Jobs that have not ended, and what was told to begin. A Job that never ends
    /// is looked at again when it is late.
    fn going(&mut self, node: &str, now: i64) -> Vec<Going> {
        // Nobody runs what is for a node that is gone.
        let Some(facts) = self.nodes.get(node) else { return Vec::new() };
        let (control_plane, deadline) =
            (facts.value.is_control_plane(), self.settings.deadline_seconds);
        let going = |shim: &str, hash: &str| Going {
            shim: shim.to_owned(),
            hash: hash.to_owned(),
            control_plane,
        };
        let names = self.jobs_of.get(node).into_iter().flatten();
        let jobs = names.filter_map(|name| self.jobs.get(name)).map(|kept| &kept.value);
        let live = jobs.filter(|job| job.is_live() && !job.is_late(now / 1000, deadline));
        let mut all = Vec::new();
        for job in live {
            let late = (job.since + deadline + GRACE_SECONDS + 1).saturating_mul(1000);
            self.timers.insert((late, Key::Node(node.to_owned())));
            all.push(going(&job.identity.shim, &job.identity.hash));
        }
        all.extend(self.starting.get(node).map(|one| going(&one.shim, &one.hash)));
        // What has failed and has not said why yet.
        let cells = self.ledger.of_node(node).into_iter().flatten();
        for (shim, cell) in cells.filter(|(_, cell)| cell.collect.is_some()) {
            if all.iter().all(|one| one.shim != *shim) {
                all.push(going(shim, cell.hash.as_deref().unwrap_or_default()));
            }
        }
        all
    }

    /// What was told to begin and not answered may have begun, so it holds its place. It is said again in the same
    /// words: the server knows by the name whether it is there.
    fn begin_again(&mut self, node: &str, now: i64, effects: &mut Vec<Effect>) {
        let key = Key::Node(node.to_owned());
        if !self.starting.contains_key(node)
            || self.busy.contains(&key)
            || self.waiting.contains(node)
            || !self.may_write(&key, now)
        {
            return;
        }
        let Some(one) = self.starting.get(node) else { return };
        let cell = self.ledger.cell(node, &one.shim);
        let want = cell.and_then(|cell| cell.want.as_ref());
        let same =
            want.is_some_and(|want| want.hash == one.hash && want.operation == one.operation);
        match () {
            () if same => {
                effects.push(one.effect.clone());
                self.busy.insert(key);
            }
            // By then it would have been heard of.
            () if now >= one.until || one.until > now + UNSURE => drop(self.starting.remove(node)),
            () => drop(self.timers.insert((one.until, key))),
        }
    }

    fn allowances(&self) -> BTreeMap<String, Allowance> {
        let rolling = self.shims.iter().filter_map(|(name, shim)| {
            budget::max_update(&shim.value.spec.rollout_strategy).map(|amount| (name, amount))
        });
        rolling
            .map(|(name, amount)| {
                let standing = self.ledger.sums(name).map(|sums| &sums.standing);
                let allowance = match standing {
                    None => Allowance { max_update: Some(amount.of(0)), ..Allowance::default() },
                    Some(standing) => Allowance {
                        max_update: Some(amount.of(standing.nodes)),
                        paused: standing.is_paused(self.settings.max_failed),
                        proven: standing.proven(),
                        suspect: standing.suspect(),
                    },
                };
                (name.clone(), allowance)
            })
            .collect()
    }

    /// Whether so many nodes of a rolling Shim failed that the others wait.
    pub(super) fn is_paused(&self, shim: &str) -> bool {
        let spec = self.shims.get(shim).map(|shim| &shim.value.spec);
        let rolling = spec.is_some_and(|spec| budget::max_update(&spec.rollout_strategy).is_some());
        let sums = self.ledger.sums(shim).filter(|_| rolling);
        sums.is_some_and(|sums| sums.standing.is_paused(self.settings.max_failed))
    }

    /// The Job, and what announces it.
    fn start(&mut self, one: &Candidate, now: i64) -> Option<Effect> {
        let node = &self.nodes.get(&one.node)?.value;
        let name = &one.group.shim;
        let shim = &self.shims.get(name)?.value;
        let cell = self.ledger.cell(&one.node, name)?;
        let want = cell.want.as_ref()?;
        let mut nonce = want.nonce.unwrap_or(now);
        let mut identity = Identity {
            shim: name.clone(),
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
        let patch = record::patch(node, &self.view(name, shim).marks(), Some(&announced));
        let (shim, artifact) = (Arc::clone(shim), want.artifact.clone());
        let effect = Effect::Start {
            node: node.name.clone(),
            uid: node.uid.clone(),
            patch,
            order: Arc::new(Order { identity, shim, artifact }),
        };
        let starting = Starting {
            shim: one.group.shim.clone(),
            hash: one.group.hash.clone(),
            operation: one.group.operation,
            effect: effect.clone(),
            until: now + UNSURE,
        };
        self.starting.insert(one.node.clone(), starting);
        // What is announced says so, too.
        self.rejected.remove(&one.node);
        Some(effect)
    }
}
