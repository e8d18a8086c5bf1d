//! `kill -9` at random moments: what is visible afterwards is whole, what was pinned is there.
//!
//! The test binary starts itself again as the agent that is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use portolan_agent::api::GcRequest;
use portolan_core::Digest;

use crate::harness::{Yard, check, id, list, resolved_at, small};
use crate::support::fault::FaultServer;

/// Where the child works, whom it asks and for what; set only there.
const CHILD: &str = "PORTOLAN_TEST_AGENT_CHILD";
const IMAGES: u64 = 3;
const INSTANCES: u64 = 4;

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// What the child does: starts, stops and evicts, for ever. It says what it has got, and what it
/// is about to give back, as an agent's control plane would know it.
#[tokio::test]
async fn agent_that_is_killed() {
    let Ok(child) = std::env::var(CHILD) else { return };
    let (seed, rest) = child.split_once(' ').unwrap();
    let (host, root) = rest.split_once(' ').unwrap();
    let yard = Yard::at(root.into());
    let berth = yard.try_open().unwrap();
    let images: Vec<Digest> = (0..IMAGES).map(|n| small(n).top.digest).collect();
    let instances = Path::new(root).join("instances");
    let live = live(&instances);
    let pins: Vec<_> = live.iter().map(|(n, d)| (id(n), *d, "1".to_owned())).collect();
    berth.artifacts.reconcile_pins(&pins);
    println!("ready");
    let mut dice = Dice(seed.parse::<u64>().unwrap() | 1);
    let mut mine = BTreeSet::new();
    loop {
        let name = format!("i{}", dice.below(INSTANCES));
        let dir = instances.join(&name);
        match dice.below(32) {
            0 => {
                println!("releasing {name}");
                berth.artifacts.release(&id(&name));
                mine.remove(&name);
                let _ = std::fs::remove_dir_all(&dir);
            }
            1..=2 => {
                berth.artifacts.gc(GcRequest { target_bytes: Some(0), dry_run: false }).await;
            }
            _ if mine.contains(&name) => tokio::time::sleep(Duration::from_millis(2)).await,
            _ => {
                let digest = known(&dir).unwrap_or_else(|| {
                    let digest = images[usize::try_from(dice.below(IMAGES)).unwrap()];
                    // The instance is known before its disk is asked for, as the agent does it.
                    let half = instances.join(format!("{name}.new"));
                    std::fs::create_dir_all(&half).unwrap();
                    std::fs::write(half.join("digest"), digest.to_string()).unwrap();
                    std::fs::rename(&half, &dir).unwrap();
                    digest
                });
                berth.acquire(&name, &resolved_at(host, digest)).await;
                println!("acquired {name} {digest}");
                mine.insert(name);
            }
        }
    }
}

/// The manifest of an instance that there is.
fn known(dir: &Path) -> Option<Digest> {
    Some(std::fs::read_to_string(dir.join("digest")).ok()?.parse().unwrap())
}

/// The instances that there are, with their manifests.
fn live(dir: &Path) -> BTreeMap<String, Digest> {
    let mut live = BTreeMap::new();
    for path in list(dir) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.contains(".new") {
            live.extend(known(&path).map(|digest| (name, digest)));
        }
    }
    live
}

fn start(seed: u64, host: &str, root: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::agent_that_is_killed", "--nocapture"])
        .env(CHILD, format!("{seed} {host} {}", root.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets an agent run for a while and kills it; notes what it said it had got, and what it had
/// begun to give back.
fn run_and_kill(mut child: Child, dice: &mut Dice, held: &mut BTreeMap<String, Digest>) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // A few die while they open; most while they work.
    let early = dice.below(8) == 0;
    if early {
        std::thread::sleep(Duration::from_micros(dice.below(30_000)));
    } else {
        assert!(lines.any(|line| line.unwrap() == "ready"), "the agent did not start");
        std::thread::sleep(Duration::from_micros(dice.below(60_000)));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines.map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["acquired", name, digest] => {
                held.insert((*name).to_owned(), digest.parse().unwrap());
            }
            ["releasing", name] => drop(held.remove(*name)),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_kills_lose_no_pinned_disk_and_leave_nothing_half_done() {
    /// `PORTOLAN_KILLS` for more, as `cargo xtask bench crash` wants them.
    const ROUNDS: u64 = 500;
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let rounds = std::env::var("PORTOLAN_KILLS").ok().and_then(|n| n.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS).max(ROUNDS);
    let server = FaultServer::holding(&small(0));
    for n in 1..IMAGES {
        let mut registry = server.registry();
        registry.repositories.values_mut().next().unwrap().hold(&small(n), &format!("v{n}"));
    }
    let started = Instant::now();
    // Two at a time, each with a root of its own: one waits for its disk while the other works.
    let sides: Vec<_> = (0..2)
        .map(|side| {
            let host = server.host();
            tokio::task::spawn_blocking(move || kill_rounds(side, rounds / 2, &host))
        })
        .collect();
    let mut seen = Seen::default();
    for side in sides {
        let more = side.await.unwrap();
        seen.half_done += more.half_done;
        seen.disks += more.disks;
        seen.held += more.held;
    }
    eprintln!("{rounds} kills in {:?}: {seen:?}", started.elapsed());
    // Otherwise nothing was proven.
    assert!(seen.half_done > 10 && seen.disks > 50 && seen.held > 50, "{seen:?}");
}

/// What the rounds met.
#[derive(Debug, Default)]
struct Seen {
    /// Killed while something was being written.
    half_done: usize,
    disks: usize,
    /// Pins that had been told of before the kill.
    held: usize,
}

fn kill_rounds(side: u64, rounds: u64, host: &str) -> Seen {
    let mut dice = Dice(0x9e37_79b9 + side * 7919);
    let mut seen = Seen::default();
    let mut held = BTreeMap::new();
    let yard = Yard::new();
    let root = yard.root().to_owned();
    std::fs::create_dir_all(root.join("instances")).unwrap();
    std::fs::create_dir_all(root.join("tmp")).unwrap();
    for round in 0..rounds {
        let child = start(round * 2 + side, host, &root);
        run_and_kill(child, &mut dice, &mut held);
        let live = live(&root.join("instances"));
        seen.half_done += usize::from(!list(&root.join("tmp")).is_empty());
        seen.held += held.len();
        seen.disks += inspect(&yard, &live, &held);
    }
    seen
}

/// Opens the root as the next agent would, and looks at everything. Gives back how many disks.
fn inspect(yard: &Yard, live: &BTreeMap<String, Digest>, held: &BTreeMap<String, Digest>) -> usize {
    // Before anybody tidies up: whatever is visible is whole.
    check_visible(yard.root());
    let berth = yard.try_open().unwrap();
    let pins: Vec<_> =
        live.iter().map(|(name, digest)| (id(name), *digest, "1".to_owned())).collect();
    berth.artifacts.reconcile_pins(&pins);
    assert!(list(&yard.root().join("tmp")).is_empty(), "leftovers");
    let damaged = list(yard.root());
    assert!(!damaged.iter().any(|p| p.to_str().unwrap().contains("damaged")), "{damaged:?}");
    let disks = check(yard.root());
    for (name, digest) in held {
        assert!(disks.contains_key(digest), "{name} had {digest} and lost it");
    }
    let mut counts: BTreeMap<Digest, u64> = BTreeMap::new();
    for (name, digest) in live {
        let pinned = berth.artifacts.pin_of(&id(name)).unwrap();
        assert_eq!(pinned.resolved_digest, *digest);
        *counts.entry(*digest).or_default() += 1;
    }
    let report = berth.artifacts.cache();
    assert_eq!(report.rootdisks.len(), disks.len(), "every valid disk is known, and no other");
    for disk in report.rootdisks {
        let digest: Digest = disk.resolved_digest.parse().unwrap();
        assert_eq!(disk.pins, counts.get(&digest).copied().unwrap_or(0));
    }
    disks.len()
}

/// A disk whose metadata is there is valid, at any moment; without it nobody takes it for one.
fn check_visible(root: &Path) {
    if root.join("rootdisks/sha256").exists() && root.join("oci/manifests/sha256").exists() {
        check(root);
    }
}
