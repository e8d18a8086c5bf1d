//! A cluster played through: random failures, churn and restarts, each from a seed, so that what was found once
//! is found again. At every write the budget holds; when the trouble ends everything comes to rest, done.

use std::collections::BTreeMap;

use serde_json::json;

use super::plan::{Done, Effect, Planner};
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
/// Shims and how many nodes of each at once.
const SHIMS: [(&str, Option<usize>); 3] = [("all", None), ("two", Some(2)), ("one", Some(1))];

struct Run {
    seed: u64,
    world: World,
    planner: Planner,
    dice: Dice,
    waiting: Vec<Effect>,
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
            let rollout = match most {
                None => json!({"type": "recreate"}),
                Some(most) => json!({"type": "rolling", "rolling": {"maxUpdate": most}}),
            };
            world.put_shim(shim(name, "https://x.example/1", rollout));
        }
        let planner = world.planner(settings());
        Self {
            seed,
            world,
            planner,
            dice: Dice(seed),
            waiting: Vec::new(),
            trouble: true,
            restarts: 0,
            revision: 1,
        }
    }

    /// What holds whatever happens: seen from the server, not from what the planner believes.
    fn check(&self) {
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        let mut shims: BTreeMap<String, usize> = BTreeMap::new();
        for job in self.world.live() {
            let identity = self.world.identity(&job);
            let node = self.world.nodes.get(&identity.node);
            // What is for a machine that is gone runs nowhere.
            if node.is_some_and(|node| node.metadata.uid.as_ref() == Some(&identity.node_uid)) {
                *nodes.entry(identity.node).or_default() += 1;
                *shims.entry(identity.shim).or_default() += 1;
            }
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
        self.waiting.extend(self.planner.step(self.world.now));
        for _ in 0..self.dice.roll(8) {
            if self.waiting.is_empty() {
                break;
            }
            let at = usize::try_from(self.dice.roll(self.waiting.len() as u64)).unwrap();
            let effect = self.waiting.swap_remove(at);
            let done = self.attempt(&effect);
            self.check();
            if let Some(key) = effect.key() {
                self.planner.done(&key, done, self.world.now);
            }
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
            _ => self.world.apply(effect),
        }
    }

    /// Jobs end, well or not, and old ones go.
    fn work(&mut self) {
        for job in self.world.live() {
            if !self.dice.one_in(6) {
                continue;
            }
            let failure = match self.dice.roll(if self.trouble { 8 } else { 1 }) {
                1 | 2 => Some(("DownloadFailed", false)),
                3 => Some(("DigestMismatch", true)),
                _ => None,
            };
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
            _ => {}
        }
    }

    fn change(&mut self, name: &str) {
        self.revision += 1;
        let location = format!("https://x.example/{}", self.revision);
        self.world.edit_shim(name, |shim| {
            for one in &mut shim.spec.fetch_strategy.platforms {
                one.location.clone_from(&location);
            }
        });
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
        self.planner = self.world.planner(settings());
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
            let status = self.world.shims[name].status.clone().unwrap_or_default();
            status.nodes > 0 && status.nodes_updated == status.nodes
        };
        SHIMS.iter().all(|(name, _)| provisioned(name) && status(name))
            && self.world.live().is_empty()
    }
}

fn simulate(seed: u64) -> usize {
    let mut run = Run::new(seed);
    for _ in 0..400 {
        run.tick();
    }
    // The trouble ends; what failed for good is put right.
    run.trouble = false;
    SHIMS.iter().for_each(|(name, _)| run.change(name));
    let mut ticks = 0;
    while !run.is_done() {
        run.tick();
        ticks += 1;
        assert!(ticks < 20_000, "seed {seed} does not converge");
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
    run.restarts
}

#[test]
fn under_failures_churn_and_restarts_the_budget_holds_and_all_converges() {
    let restarts: usize = (0..24).map(simulate).sum();
    assert!(restarts > 100, "the controller was restarted {restarts} times");
}
