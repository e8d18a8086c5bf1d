//! A cluster played through: random failures, churn and restarts, each from a seed, so that what was found once
//! is found again. At every write the budget holds; when the trouble ends everything comes to rest, done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use portolan_api::shim::Shim;
use serde_json::json;

use super::budget::Amount;
use super::facts::{GRACE_SECONDS, Node};
use super::identity::{Identity, Operation};
use super::outcome::Verdict;
use super::plan::{Done, Effect, Key, Planner};
use super::record::{NodePatch, Record};
use super::settings::Settings;
use super::world::{World, label, outcome, settings, shim};

/// Random numbers that are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

const CAP: usize = 3;
/// So many nodes that failed hold up the others.
const FAILED: usize = 2;
const DEADLINE: i64 = 60;
/// Shims and how many nodes of each at once. A fifth of twelve nodes is two.
const SHIMS: [(&str, Option<usize>); 4] =
    [("all", None), ("two", Some(2)), ("one", Some(1)), ("fifth", Some(2))];

fn new_shim(name: &str, most: Option<usize>, location: &str) -> Shim {
    let rollout = match most {
        None => json!({"type": "recreate"}),
        Some(_) if name == "fifth" => json!({"type": "rolling", "rolling": {"maxUpdate": "20%"}}),
        Some(most) => json!({"type": "rolling", "rolling": {"maxUpdate": most}}),
    };
    shim(name, location, rollout)
}

fn tight() -> Settings {
    let max_failed = Amount::Count(u32::try_from(FAILED).unwrap());
    Settings { deadline_seconds: DEADLINE, max_failed, ..settings() }
}

struct Run {
    seed: u64,
    world: World,
    planner: Planner,
    dice: Dice,
    waiting: Vec<Effect>,
    /// Answers that are on their way.
    answers: Vec<(Key, Done)>,
    /// Artifacts that worked somewhere, by Shim and hash.
    worked: BTreeSet<(String, String)>,
    /// Jobs that nobody will ever hear of again.
    silent: BTreeSet<String>,
    /// How often it mattered: fresh installs that were held against what had failed.
    held: usize,
    trouble: bool,
    restarts: usize,
    revision: usize,
    /// Jobs of several Shims that ended, and those of them that failed for some alone.
    shared: usize,
    in_part: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World { now: 1_000_000, ..World::default() };
        for number in 0..9 {
            world.add_node(&format!("n{number}"), if number % 3 == 0 { "arm64" } else { "amd64" });
        }
        (0..3).for_each(|number| world.add_node(&format!("cp{number}"), "amd64"));
        for (name, most) in SHIMS {
            world.put_shim(new_shim(name, most, "https://x.example/1"));
        }
        let planner = world.planner(tight());
        Self {
            seed,
            world,
            planner,
            dice: Dice(seed),
            waiting: Vec::new(),
            answers: Vec::new(),
            worked: BTreeSet::new(),
            silent: BTreeSet::new(),
            held: 0,
            trouble: true,
            restarts: 0,
            revision: 1,
            shared: 0,
            in_part: 0,
        }
    }

    /// What holds whatever happens: seen from the server, not from what the planner believes.
    fn check(&self) {
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        let mut shims: BTreeMap<String, usize> = BTreeMap::new();
        let mut firsts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for identity in self.running() {
            *nodes.entry(identity.node.clone()).or_default() += 1;
            for (shim, _, hash) in identity.parts() {
                *shims.entry(shim.to_owned()).or_default() += 1;
                let artifact = (shim.to_owned(), hash.to_owned());
                if identity.operation == Operation::Install && !self.worked.contains(&artifact) {
                    *firsts.entry(artifact).or_default() += 1;
                }
            }
            let again = |(shim, ..): (&str, &str, &str)| {
                self.record(&identity.node, shim).is_some_and(|record| record.failed.is_some())
            };
            assert!(
                !(identity.is_shared() && identity.parts().any(again)),
                "seed {}: what failed is tried alone: {identity:?}",
                self.seed
            );
        }
        for ((name, hash), count) in firsts {
            let rolling = name != "all";
            assert!(
                !rolling || count == 1,
                "seed {}: {name}: {count} nodes try {hash}, which never worked",
                self.seed
            );
        }
        assert!(
            nodes.values().all(|count| *count == 1),
            "seed {}: one Job for each node: {nodes:?}",
            self.seed
        );
        assert!(nodes.len() <= CAP, "seed {}: {nodes:?}", self.seed);
        let control = nodes.keys().filter(|node| node.starts_with("cp")).count();
        assert!(control <= 1, "seed {}: {nodes:?}", self.seed);
        for (name, most) in SHIMS {
            let count = shims.get(name).copied().unwrap_or_default();
            assert!(most.is_none_or(|most| count <= most), "seed {}: {name}: {count}", self.seed);
        }
    }

    /// Jobs that do something on a machine that there is. One that is over its time has nobody who runs it.
    fn running(&self) -> Vec<Identity> {
        let of = |name: String| {
            let made = self.world.jobs[&name].metadata.creation_timestamp.as_ref()?.0;
            let age = self.world.now / 1000 - made.as_second();
            let identity = self.world.identity(&name);
            let node = self.world.nodes.get(&identity.node)?;
            let same = node.metadata.uid.as_ref() == Some(&identity.node_uid);
            (same && age <= DEADLINE + GRACE_SECONDS).then_some(identity)
        };
        self.world.live().into_iter().filter_map(of).collect()
    }

    /// What a node carries of a Shim, as the server has it.
    fn record(&self, node: &str, shim: &str) -> Option<Record> {
        let annotations = self.world.nodes.get(node)?.metadata.annotations.as_ref()?;
        serde_json::from_str(annotations.get(&format!("runtime.spinkube.dev/{shim}"))?).ok()
    }

    /// Where enough nodes failed nobody new begins. Asked when everything was heard.
    fn check_pause(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Start { order, patch, .. } = effect else { continue };
            for (shim, _, hash) in order.identity.parts() {
                self.check_pause_of((shim, hash), &order.identity, patch, effects);
            }
        }
    }

    fn check_pause_of(
        &mut self,
        (shim, hash): (&str, &str),
        of: &Identity,
        patch: &NodePatch,
        effects: &[Effect],
    ) {
        let failed_there = |record: &Record| {
            let failed = record.failed.as_ref();
            failed.is_some_and(|failed| failed.is_of(Operation::Install, hash))
        };
        // What is announced also says what was refused before; without it the Job was announced before.
        let announced = patch.annotations.get(&format!("runtime.spinkube.dev/{shim}"));
        let Some(Some(own)) = announced else { return };
        let own: Record = serde_json::from_str(own).unwrap();
        let had = own.applied.as_ref().is_some_and(|applied| applied.hash == hash);
        // What is said again was decided earlier.
        let fresh = !failed_there(&own) && !had && of.nonce == self.world.now;
        if shim == "all" || of.operation != Operation::Install || !fresh {
            return;
        }
        let selected = self.world.nodes.iter().filter(|(_, node)| {
            // What is written of a node right now, or owed, is not what the server has.
            let name = node.metadata.name.clone().unwrap();
            let written = effects.iter().any(|effect| match effect {
                Effect::Patch { node, .. } | Effect::Start { node, .. } => *node == name,
                _ => false,
            });
            label(node, "shim").is_some() && !written && !self.planner.owes(&name)
        });
        let failed = selected
            .filter_map(|(name, node)| Some((self.record(name, shim)?, node)))
            .filter(|(record, node)| Some(&record.node) == node.metadata.uid.as_ref())
            .filter(|(record, _)| failed_there(record))
            .count();
        self.held += usize::from(failed > 0);
        assert!(failed < FAILED, "seed {}: {of:?} begins although {failed} failed", self.seed);
    }

    /// Hears some of what happened, decides, and has some of it done.
    fn tick(&mut self) {
        self.world.now += i64::try_from(self.dice.roll(1500)).unwrap();
        for kind in 0..4 {
            let some = self.dice.roll(6);
            for _ in 0..some {
                if let Some(heard) = self.world.events[kind].pop_front() {
                    self.planner.hear(heard);
                }
            }
        }
        if self.trouble && self.dice.one_in(40) {
            let kind = usize::try_from(self.dice.roll(4)).unwrap();
            self.world.relist(kind, &mut self.planner);
        }
        let heard_all = self.world.events.iter().all(VecDeque::is_empty) && self.answers.is_empty();
        let idle = usize::try_from(self.dice.roll(4)).unwrap();
        let effects = self.planner.step(self.world.now, idle);
        if self.dice.one_in(4) {
            self.planner.audit(self.world.now);
        }
        let written = |effect: &Effect| !matches!(effect, Effect::Patch { .. });
        if heard_all && self.waiting.iter().all(written) {
            self.check_pause(&effects);
        }
        self.waiting.extend(effects);
        for _ in 0..self.dice.roll(8) {
            if self.waiting.is_empty() {
                break;
            }
            let at = usize::try_from(self.dice.roll(self.waiting.len() as u64)).unwrap();
            let effect = self.waiting.swap_remove(at);
            let done = self.attempt(&effect);
            self.check();
            self.answers.extend(effect.key().map(|key| (key, done)));
        }
        for _ in 0..self.dice.roll(9).min(self.answers.len() as u64) {
            let at = usize::try_from(self.dice.roll(self.answers.len() as u64)).unwrap();
            let (key, done) = self.answers.swap_remove(at);
            self.planner.done(&key, done, self.world.now);
        }
        if self.trouble {
            self.upset();
        }
        self.work();
    }

    /// A request that is done, is not done, is done without an answer, or is done, heard of, and answered with no: it was said
    /// before, to another server.
    fn attempt(&mut self, effect: &Effect) -> Done {
        match self.dice.roll(if self.trouble { 12 } else { 1 }) {
            1 => Done::Failed(Vec::new()),
            2 => {
                drop(self.world.apply(effect));
                Done::Failed(Vec::new())
            }
            3 if matches!(effect, Effect::Start { .. } | Effect::Patch { .. }) => {
                Done::Refused { message: "not allowed".into(), heard: Vec::new() }
            }
            4 if matches!(effect, Effect::Start { .. }) => {
                drop(self.world.apply(effect));
                self.world.events[1].drain(..).for_each(|heard| self.planner.hear(heard));
                Done::Refused { message: "exceeded quota".into(), heard: Vec::new() }
            }
            _ => self.world.apply(effect),
        }
    }

    /// Jobs end, well or not, and old ones go.
    fn work(&mut self) {
        for job in self.world.live() {
            if self.silent.contains(&job) || !self.dice.one_in(6) {
                continue;
            }
            if self.trouble && self.dice.one_in(30) {
                self.silent.insert(job);
                continue;
            }
            let of = self.world.identity(&job);
            let failure = self.failure(&of);
            for (shim, _, hash) in of.parts() {
                let worked = failure.as_ref().is_none_or(|one| one.of(shim, true).is_none());
                if worked {
                    self.worked.insert((shim.to_owned(), hash.to_owned()));
                }
            }
            self.shared += usize::from(of.is_shared());
            self.in_part += usize::from(failure.as_ref().is_some_and(|one| !one.parts.is_empty()));
            self.world.end_so(&job, failure);
        }
        let ended = self.world.jobs.iter().filter(|(_, job)| !job.status.conditions.is_empty());
        let old: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        if old.len() > 12 {
            self.world.remove_job(&old[0]);
        }
    }

    /// How a Job fails, if it does: by all of its Shims, or by some of several.
    fn failure(&mut self, of: &Identity) -> Option<Verdict> {
        let mut roll = || match self.dice.roll(if self.trouble { 8 } else { 1 }) {
            1 => Some(outcome("DownloadFailed", false)),
            2 => Some(outcome("HostTrouble", false)),
            3 | 5 => Some(outcome("DigestMismatch", true)),
            4 => Some(outcome("ImagePullBackOff", false)),
            _ => None,
        };
        let all = roll();
        if !of.is_shared() || all.is_some() {
            return all.map(Verdict::from);
        }
        let parts: BTreeMap<_, _> =
            of.parts().map(|(shim, ..)| (shim.to_owned(), roll())).collect();
        let first = parts.values().find_map(Clone::clone)?;
        Some(Verdict { all: first, parts })
    }

    fn upset(&mut self) {
        let node = format!("n{}", self.dice.roll(9));
        match self.dice.roll(60) {
            0 | 1 => self.world.remove_node(&node),
            2..=5 if !self.world.nodes.contains_key(&node) => self.world.add_node(&node, "amd64"),
            6 => {
                self.world.remove_node(&node);
                self.world.add_node(&node, "arm64");
            }
            7 | 8 => self.world.edit_node(&node, |node| {
                let labels = node.metadata.labels.get_or_insert_default();
                if labels.remove("shim").is_none() {
                    labels.insert("shim".into(), "yes".into());
                }
            }),
            9 => self.world.edit_node(&node, |node| node.status.node_info.boot_id.push('x')),
            10 => self.change("two"),
            11 | 12 => self.restart(),
            13 => {
                // Somebody removes what we wrote.
                self.world.edit_node(&node, |node| node.metadata.annotations = None);
            }
            14 | 15 => self.world.edit_node(&node, |node| {
                let status = &mut node.status.conditions[0].status;
                *status = if status == "True" { "False".into() } else { "True".into() };
            }),
            16 => self.world.delete_shim("fifth"),
            17..=19 => self.put_back(),
            _ => {}
        }
    }

    fn change(&mut self, name: &str) {
        self.revision += 1;
        let location = format!("https://x.example/{}", self.revision);
        if !self.world.shims.contains_key(name) {
            return;
        }
        self.world.edit_shim(name, |shim| {
            for one in &mut shim.spec.fetch_strategy.platforms {
                one.location.clone_from(&location);
            }
        });
    }

    /// Makes anew what was deleted, once it is gone.
    fn put_back(&mut self) {
        for (name, most) in SHIMS {
            if !self.world.shims.contains_key(name) {
                let location = format!("https://x.example/{}", self.revision);
                self.world.put_shim(new_shim(name, most, &location));
            }
        }
    }

    /// The process ends: some of what it had sent arrives nevertheless.
    fn restart(&mut self) {
        self.restarts += 1;
        for effect in std::mem::take(&mut self.waiting) {
            if self.dice.one_in(2) {
                drop(self.world.apply(&effect));
                self.check();
            }
        }
        self.answers.clear();
        self.planner = self.world.planner(tight());
    }

    fn is_done(&self) -> bool {
        let provisioned = |name: &str| {
            let there = self.world.nodes.values().filter(|node| label(node, "shim").is_some());
            let key = format!("runtime.spinkube.dev/{name}");
            there.into_iter().all(|node| {
                label(node, &key).as_deref() == Some("provisioned")
                    && label(node, name).as_deref() == Some("provisioned")
            })
        };
        let status = |name: &str| {
            let shim = self.world.shims.get(name);
            let shim = shim.filter(|shim| shim.metadata.deletion_timestamp.is_none());
            let status = shim.and_then(|shim| shim.status.clone()).unwrap_or_default();
            status.nodes > 0 && status.nodes_updated == status.nodes
        };
        SHIMS.iter().all(|(name, _)| provisioned(name) && status(name))
            && self.world.live().is_empty()
    }

    /// No more trouble, from now on.
    fn calm(&mut self) {
        self.trouble = false;
        for name in self.world.nodes.keys().cloned().collect::<Vec<_>>() {
            self.world.edit_node(&name, |node| node.status.conditions[0].status = "True".into());
        }
    }

    /// Does whatever is left, and lets every pause end.
    fn come_to_rest(&mut self) {
        for effect in std::mem::take(&mut self.waiting) {
            let done = self.world.apply(&effect);
            self.answers.extend(effect.key().map(|key| (key, done)));
        }
        for (key, done) in std::mem::take(&mut self.answers) {
            self.planner.done(&key, done, self.world.now);
        }
        for _ in 0..3 {
            self.world.now += 1_900_000;
            self.world.finish(&mut self.planner);
        }
    }
}

fn simulate(seed: u64) -> [usize; 4] {
    let mut run = Run::new(seed);
    (0..400).for_each(|_| run.tick());
    // The trouble ends; what failed for good is put right.
    run.calm();
    SHIMS.iter().for_each(|(name, _)| run.change(name));
    let mut ticks = 0;
    while !run.is_done() {
        run.tick();
        run.put_back();
        ticks += 1;
        assert!(ticks < 20_000, "seed {seed} does not converge");
    }
    // Whatever is left of nodes that are not selected goes, too.
    run.come_to_rest();
    for node in run.world.nodes.values().filter(|node| label(node, "shim").is_none()) {
        assert_eq!(label(node, "all"), None, "seed {seed}");
    }
    // At rest nothing is written.
    run.world.now += 600_000;
    let idle = run.world.settle(&mut run.planner);
    assert_eq!(idle, [], "seed {seed}");
    // And everything can be taken away.
    SHIMS.iter().for_each(|(name, _)| run.world.delete_shim(name));
    run.world.finish(&mut run.planner);
    assert!(run.world.shims.is_empty() && run.world.classes.is_empty(), "seed {seed}");
    for node in run.world.nodes.values() {
        assert!(node.metadata.annotations.as_ref().is_none_or(BTreeMap::is_empty), "seed {seed}");
    }
    [run.restarts, run.held, run.shared, run.in_part]
}

#[test]
fn under_failures_churn_and_restarts_the_budget_holds_and_all_converges() {
    let all: Vec<_> = (0..48).map(simulate).collect();
    let sum = |at: usize| all.iter().map(|counts| counts[at]).sum::<usize>();
    let [restarts, held, shared, in_part] = [0, 1, 2, 3].map(sum);
    assert!(restarts > 300, "the controller was restarted {restarts} times");
    assert!(held > 5, "an install began beside one that had failed {held} times");
    assert!(
        shared > 1500 && in_part > 200,
        "{shared} Jobs of several Shims, {in_part} failed in part"
    );
}

/// All are updated in the middle of the trouble, and nobody changes a Shim afterwards: what failed for good stays so.
#[test]
fn at_rest_those_are_counted_as_ready_that_pods_are_sent_to_and_nobody_else() {
    let (mut failed, mut kept) = (0, 0);
    for seed in 0..96 {
        let mut run = Run::new(seed);
        (0..150).for_each(|_| run.tick());
        SHIMS.iter().for_each(|(name, _)| run.change(name));
        (0..100).for_each(|_| run.tick());
        run.calm();
        run.come_to_rest();
        for (name, shim) in &run.world.shims {
            let key = format!("runtime.spinkube.dev/{name}");
            let is = |node, key: &str, word| label(node, key).as_deref() == Some(word);
            // A label alone is upstream's word, or that of a record that somebody removed: it stays until an install.
            let ours = |node: &&Node| {
                let annotations = node.metadata.annotations.as_ref();
                annotations.is_some_and(|all| all.contains_key(&key))
                    && label(node, "shim").is_some()
            };
            let nodes = run.world.nodes.values().filter(ours);
            let sent: Vec<_> = nodes.filter(|node| is(node, &key, "provisioned")).collect();
            let status = shim.status.clone().unwrap();
            assert_eq!(status.nodes_ready, sent.len() as i64, "seed {seed}: {name}: {status:?}");
            failed += status.nodes_failed;
            for node in &sent {
                let record = run.record(node.metadata.name.as_ref().unwrap(), name).unwrap();
                let seen = record.applied.map(|applied| applied.boot);
                let boot = &node.status.node_info.boot_id;
                assert_eq!(seen.as_ref(), Some(boot), "seed {seed}: {name}: a look at each boot");
            }
            kept += sent.into_iter().filter(|node| is(node, name, "failed")).count();
        }
    }
    assert!(failed > 20 && kept > 0, "{failed} nodes failed, {kept} with what was there before");
}
