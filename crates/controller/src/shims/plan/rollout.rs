//! Who begins now, over all Shims and nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Effect, Key, Order, Planner, Starting, UNSURE};
use crate::shims::budget::{self, Allowance, Candidate, Going, Group, Turn};
use crate::shims::facts::GRACE_SECONDS;
use crate::shims::identity::{Identity, Operation};
use crate::shims::record::{self, Begun, NodePatch};

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
                let order = Arc::clone(&one.order);
                let announced = self.announced(&order.identity).unwrap_or_default();
                let identity = &order.identity;
                let (node, uid) = (identity.node.clone(), identity.node_uid.clone());
                self.owed.hold(&node);
                effects.push(Effect::Start { node, uid, patch: announced, order });
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

    /// The Job, and what announces it. What is to be written on the node anyway is written with that, and what of
    /// other Shims comes there next is announced with it.
    fn start(&mut self, one: &Candidate, now: i64) -> Option<Vec<Effect>> {
        let name = &one.group.shim;
        let identity = self.identity(&one.node, name, now)?;
        let want = self.ledger.cell(&one.node, name)?.want.as_ref()?;
        let shim = Arc::clone(&self.shims.get(name)?.value);
        let order = Arc::new(Order { identity, shim, artifact: want.artifact.clone() });
        let (node, uid) = (order.identity.node.clone(), order.identity.node_uid.clone());
        let mut patch = self.announced(&order.identity)?;
        let mut effects = Vec::new();
        // Where it was announced before nothing has to be written first.
        if !patch.is_empty() {
            let next = self.next_on(&node, name, now);
            let named: Vec<&str> =
                next.iter().map(|one| one.shim.as_str()).chain([&**name]).collect();
            let (mut whole, told) = self.owed(&node, &uid, &named);
            whole.extend(&patch);
            next.iter().filter_map(|one| self.announced(one)).for_each(|one| whole.extend(&one));
            patch = whole;
            effects = told;
            self.owed.settle(&node);
        }
        self.owed.hold(&node);
        let starting = Starting {
            shim: name.clone(),
            hash: one.group.hash.clone(),
            operation: one.group.operation,
            order: Arc::clone(&order),
            until: now + UNSURE,
        };
        self.starting.insert(node.clone(), starting);
        // What is announced says so, too.
        self.rejected.remove(&node);
        self.busy.insert(Key::Node(node.clone()));
        effects.push(Effect::Start { node, uid, patch, order });
        Some(effects)
    }

    /// What will be begun on a node when this is over: where nothing is there yet that pods use, and no budget of a
    /// Shim's own has a say.
    fn next_on(&self, node: &str, but: &str, now: i64) -> Vec<Identity> {
        let cells = self.ledger.of_node(node).into_iter().flatten();
        let fresh = cells.filter(|(shim, cell)| {
            let spec = self.shims.get(*shim).map(|shim| &shim.value.spec);
            let free =
                spec.is_some_and(|spec| budget::max_update(&spec.rollout_strategy).is_none());
            let want = cell.want.as_ref();
            let want = want.filter(|want| want.operation == Operation::Install && !want.retry);
            let record = &cell.record;
            let new = record.applied.is_none() && record.begun.is_none() && record.failed.is_none();
            **shim != but && free && new && want.is_some()
        });
        fresh.filter_map(|(shim, _)| self.identity(node, shim, now)).collect()
    }

    /// Which Job would do what is wanted.
    fn identity(&self, node: &str, shim: &str, now: i64) -> Option<Identity> {
        let facts = &self.nodes.get(node)?.value;
        let want = self.ledger.cell(node, shim)?.want.as_ref()?;
        let mut identity = Identity {
            shim: shim.to_owned(),
            shim_uid: self.shims.get(shim)?.value.metadata.uid.clone()?,
            node: facts.name.clone(),
            node_uid: facts.uid.clone(),
            operation: want.operation,
            hash: want.hash.clone(),
            nonce: want.nonce.unwrap_or(now),
        };
        while want.nonce.is_none() && self.jobs.contains_key(&identity.job_name()) {
            identity.nonce += 1;
        }
        Some(identity)
    }

    /// What has to be written on the node before this Job is made; nothing where that is there.
    fn announced(&self, of: &Identity) -> Option<NodePatch> {
        let shim = &self.shims.get(&of.shim)?.value;
        let mut record = self.ledger.cell(&of.node, &of.shim)?.record.clone();
        record.begun = Some(Begun {
            operation: of.operation,
            hash: of.hash.clone(),
            nonce: of.nonce,
            handler: shim.spec.runtime_class.handler.clone(),
        });
        let marks = self.view(&of.shim, shim).marks();
        Some(record::patch(&self.nodes.get(&of.node)?.value, &marks, Some(&record)))
    }
}
