//! Who begins now, over all Shims and nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Effect, Key, Order, Piece, Planner, Starting};
use crate::shims::budget::{self, Allowance, Going, Group, Turn};
use crate::shims::facts::JobFacts;
use crate::shims::identity::{Identity, Part};
use crate::shims::record::{self, Begun, NodePatch};

impl Planner {
    /// Lets as many begin as there is room for. `changed` are the nodes of which anything was heard.
    pub(super) fn begin(&mut self, changed: &[String], now: i64, effects: &mut Vec<Effect>) {
        for node in changed {
            self.begin_again(node, now, effects);
            self.enter(node, now);
        }
        let cap = self.settings.max_in_flight.of(self.nodes.len());
        let hold = self.gather.holds(now);
        let mut turn = Turn::new(self.allowances(), cap, hold);
        while let Some(one) = turn.next(&self.ledger.queue, &self.ledger.books) {
            self.weighed += 1;
            let shims = self.together(&one, &turn);
            match self.start(&one.node, &shims, now) {
                Some(begun) => {
                    effects.extend(begun);
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
        self.alarms.set(node, self.wake(node, now));
    }

    /// When a node is to be looked at although nothing is heard of it: when a Job of it is late, whoever it is of, and when
    /// what failed may be tried again.
    fn wake(&self, node: &str, now: i64) -> Option<i64> {
        // One that went while it was written is looked at when that ends.
        self.nodes.get(node)?;
        let deadline = self.settings.deadline_seconds;
        let late = self.live(node, now).map(|job| job.late_from(deadline));
        let cells = self.ledger.of_node(node).into_iter().flatten();
        let wakes = late.chain(cells.filter_map(|(_, cell)| cell.wake));
        // Whose time has come waits for something else.
        wakes.map(|at| at.saturating_mul(1000)).filter(|at| *at > now).min()
    }

    /// Jobs of a node that have not ended and are not late.
    fn live(&self, node: &str, now: i64) -> impl Iterator<Item = &JobFacts> {
        let deadline = self.settings.deadline_seconds;
        let names = self.jobs_of.get(node).filter(|_| self.nodes.contains_key(node));
        let jobs = names.into_iter().flatten().filter_map(|name| self.jobs.get(name));
        let jobs = jobs.map(|kept| &kept.value);
        jobs.filter(move |job| job.is_live() && !job.is_late(now / 1000, deadline))
    }

    fn wants(&self, node: &str) -> Vec<(Group, bool)> {
        let Some(facts) = self.nodes.get(node) else { return Vec::new() };
        let control_plane = facts.value.is_control_plane();
        let cells = self.ledger.of_node(node).into_iter().flatten();
        let wants = cells.filter_map(|(shim, cell)| {
            let want = cell.want.as_ref()?;
            Some((want.group(shim), control_plane))
        });
        wants.collect()
    }

    /// What is under way on a node: Jobs that have not ended, and what was told to begin.
    fn going(&self, node: &str, now: i64) -> Vec<Going> {
        // Nobody runs what is for a node that is gone.
        let Some(facts) = self.nodes.get(node) else { return Vec::new() };
        let control_plane = facts.value.is_control_plane();
        let going = |shim: &str, hash: &str| Going {
            shim: shim.to_owned(),
            hash: hash.to_owned(),
            control_plane,
        };
        let live = self.live(node, now).flat_map(|job| job.identity.parts());
        let mut all: Vec<_> = live.map(|(shim, _, hash)| going(shim, hash)).collect();
        let starting = self.starting.get(node).map(|one| &one.order.identity);
        let starting = starting.into_iter().flat_map(Identity::parts);
        all.extend(starting.map(|(shim, _, hash)| going(shim, hash)));
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
        let (order, lasts, until) = (Arc::clone(&one.order), one.lasts(now), one.until);
        let identity = &order.identity;
        let same = identity.parts().all(|(shim, _, hash)| {
            let want = self.ledger.cell(node, shim).and_then(|cell| cell.want.as_ref());
            want.is_some_and(|want| want.hash == hash && want.operation == identity.operation)
        });
        match () {
            () if same => {
                self.starting.entry(node.to_owned()).and_modify(|one| one.told = true);
                let (patch, told) = self.announcement(identity).unwrap_or_default();
                effects.extend(told);
                let (node, uid) = (identity.node.clone(), identity.node_uid.clone());
                self.owed.settle(&node);
                effects.push(Effect::Start { node, uid, patch, order });
                self.busy.insert(key);
            }
            // By then it would have been heard of.
            () if !lasts => drop(self.starting.remove(node)),
            () => drop(self.timers.insert((until, key))),
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

    /// The Job, and what announces it. What is to be written on the node anyway is written with that.
    fn start(&mut self, node: &str, shims: &[String], now: i64) -> Option<Vec<Effect>> {
        let identity = self.identity(node, shims, now)?;
        let mut pieces = Vec::new();
        let mut again = false;
        for name in shims {
            let want = self.ledger.cell(node, name)?.want.as_ref()?;
            again |= want.nonce.is_some();
            let shim = Arc::clone(&self.shims.get(name)?.value);
            pieces.push(Piece { shim, artifact: want.artifact.clone() });
        }
        let order = Arc::new(Order { identity, pieces });
        let (node, uid) = (node.to_owned(), order.identity.node_uid.clone());
        let (patch, mut effects) = self.announcement(&order.identity)?;
        self.owed.settle(&node);
        self.starting.insert(node.clone(), Starting::new(Arc::clone(&order), again, now));
        // What is announced says so, too; of others it is remembered until it is written.
        self.begins(&node, shims);
        self.busy.insert(Key::Node(node.clone()));
        effects.push(Effect::Start { node, uid, patch, order });
        Some(effects)
    }

    /// Which Job would do what is wanted of these Shims.
    fn identity(&self, node: &str, shims: &[String], now: i64) -> Option<Identity> {
        let facts = &self.nodes.get(node)?.value;
        let mut nonces = Vec::new();
        let mut parts = Vec::new();
        for shim in shims {
            let want = self.ledger.cell(node, shim)?.want.as_ref()?;
            let shim_uid = self.shims.get(shim)?.value.metadata.uid.clone()?;
            nonces.push((want.operation, want.nonce));
            parts.push(Part { shim: shim.clone(), shim_uid, hash: want.hash.clone() });
        }
        let (operation, kept) = *nonces.first()?;
        // Only where these, and no others, were announced as one it may be that very Job that is missed.
        let kept = kept.filter(|nonce| {
            nonces.iter().all(|one| *one == (operation, kept))
                && shims.iter().collect::<BTreeSet<_>>() == record::announced(facts, *nonce)
        });
        let Part { shim, shim_uid, hash } = parts.remove(0);
        let mut identity = Identity {
            shim,
            shim_uid,
            node: facts.name.clone(),
            node_uid: facts.uid.clone(),
            operation,
            hash,
            nonce: kept.unwrap_or(now),
            also: parts,
        };
        while kept.is_none() && self.jobs.contains_key(&identity.job_name()) {
            identity.nonce += 1;
        }
        Some(identity)
    }

    /// What announces a Job, with all else that is to be written on its node and what is told of that.
    fn announcement(&mut self, of: &Identity) -> Option<(NodePatch, Vec<Effect>)> {
        let announced = self.announced(of)?;
        let shims: Vec<String> = of.parts().map(|(shim, ..)| shim.to_owned()).collect();
        let (mut patch, told) = self.owed(&of.node, &of.node_uid, &shims);
        patch.extend(&announced);
        Some((patch, told))
    }

    /// What has to be written on the node before this Job is made; nothing where that is there.
    fn announced(&self, of: &Identity) -> Option<NodePatch> {
        let node = &self.nodes.get(&of.node)?.value;
        let mut patch = NodePatch::default();
        for (name, _, hash) in of.parts() {
            let shim = &self.shims.get(name)?.value;
            let mut record = self.ledger.cell(&of.node, name)?.record.clone();
            record.begun = Some(Begun {
                operation: of.operation,
                hash: hash.to_owned(),
                nonce: of.nonce,
                handler: shim.spec.runtime_class.handler.clone(),
            });
            let marks = self.view(name, shim).marks();
            patch.extend(&record::patch(node, &marks, Some(&record)));
        }
        Some(patch)
    }
}
