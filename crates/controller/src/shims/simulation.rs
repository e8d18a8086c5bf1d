//! A cluster played through: random failures, churn and restarts, each from a seed, so that what was found once
//! is found again. At every write the budget holds; when the trouble ends everything comes to rest, done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use portolan_api::shim::Shim;
use serde_json::json;

use super::budget::Amount;
use super::facts::GRACE_SECONDS;
use super::identity::{Identity, Operation};
use super::plan::{Done, Effect, Key, Planner};
use super::record::Record;
use super::settings::Settings;
use super::world::{World, label, settings, shim};

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
        }
    }

    /// What holds whatever happens: seen from the server, not from what the planner believes.
    fn check(&self) {
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        let mut shims: BTreeMap<String, usize> = BTreeMap::new();
        let mut firsts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for identity in self.running() {
            *nodes.entry(identity.node).or_default() += 1;
            *shims.entry(identity.shim.clone()).or_default() += 1;
            let artifact = (identity.shim, identity.hash);
            if identity.operation == Operation::Install && !self.worked.contains(&artifact) {
                *firsts.entry(artifact).or_default() += 1;
            }
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
            let of = &order.identity;
            let failed_there = |record: &Record| {
                let failed = record.failed.as_ref();
                failed.is_some_and(|failed| failed.is_of(Operation::Install, &of.hash))
            };
            // What is announced also says what was refused before; without it the Job was announced before.
            let announced = patch.annotations.get(&format!("runtime.spinkube.dev/{}", of.shim));
            let Some(Some(own)) = announced else { continue };
            let own: Record = serde_json::from_str(own).unwrap();
            let had = own.applied.as_ref().is_some_and(|applied| applied.hash == of.hash);
            // What is said again was decided earlier.
            let fresh = !failed_there(&own) && !had && of.nonce == self.world.now;
            if of.shim == "all" || of.operation != Operation::Install || !fresh {
                continue;
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
                .filter_map(|(name, node)| Some((self.record(name, &of.shim)?, node)))
                .filter(|(record, node)| Some(&record.node) == node.metadata.uid.as_ref())
                .filter(|(record, _)| failed_there(record))
                .count();
            self.held += usize::from(failed > 0);
            assert!(failed < FAILED, "seed {}: {of:?} begins although {failed} failed", self.seed);
        }
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

    /// A request that is done, is not done, or is done without an answer.
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
            let failure = match self.dice.roll(if self.trouble { 8 } else { 1 }) {
                1 | 2 => Some(("DownloadFailed", false)),
                3 => Some(("DigestMismatch", true)),
                _ => None,
            };
            if failure.is_none() {
                let of = self.world.identity(&job);
                self.worked.insert((of.shim, of.hash));
            }
            self.world.end(&job, failure);
        }
        let ended = self.world.jobs.iter().filter(|(_, job)| !job.status.conditions.is_empty());
        let old: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        if old.len() > 12 {
            self.world.remove_job(&old[0]);
        }
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
}

fn simulate(seed: u64) -> (usize, usize) {
    let mut run = Run::new(seed);
    for _ in 0..400 {
        run.tick();
    }
    // The trouble ends; what failed for good is put right.
    run.trouble = false;
    for name in run.world.nodes.keys().cloned().collect::<Vec<_>>() {
        run.world.edit_node(&name, |node| node.status.conditions[0].status = "True".into());
    }
    SHIMS.iter().for_each(|(name, _)| run.change(name));
    let mut ticks = 0;
    while !run.is_done() {
        run.tick();
        run.put_back();
        ticks += 1;
        assert!(ticks < 20_000, "seed {seed} does not converge");
    }
    for effect in std::mem::take(&mut run.waiting) {
        let done = run.world.apply(&effect);
        run.answers.extend(effect.key().map(|key| (key, done)));
    }
    for (key, done) in std::mem::take(&mut run.answers) {
        run.planner.done(&key, done, run.world.now);
    }
    // Whatever is left of nodes that are not selected goes, too.
    for _ in 0..3 {
        run.world.now += 1_900_000;
        run.world.finish(&mut run.planner);
    }
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
    (run.restarts, run.held)
}

#[test]
fn under_failures_churn_and_restarts_the_budget_holds_and_all_converges() {
    let all: Vec<_> = (0..24).map(simulate).collect();
    let restarts: usize = all.iter().map(|(restarts, _)| restarts).sum();
    let held: usize = all.iter().map(|(_, held)| held).sum();
    assert!(restarts > 100, "the controller was restarted {restarts} times");
    assert!(held > 5, "an install began beside one that had failed {held} times");
}
