//! The verifier beside Ratify: the same registry, images, key, client and machine, in one run.
//!
//! Ratify looks at the index alone; the verifier at the index and the images that would run.

mod answer;
mod certificates;
mod images;
mod load;
mod registries;
mod table;
mod verifiers;

use std::time::Duration;

use anyhow::{Result, bail};

use self::certificates::Certificates;
use self::images::{IMAGES, Images, for_all, for_one, many, name, plain};
use self::load::{Asked, Load, for_long, in_turn};
use self::registries::Registry;
use self::table::{Goal, Memory, Table};
use self::verifiers::{Keeps, Setup, Verifier, Who, Wire};
use super::report::Report;
use crate::program::VERIFIER;
use crate::testbed::build::{Missing, Toolbox, ensure_parts};
use crate::testbed::parts;

/// How long one connection after the other is kept busy.
const LONG: Duration = Duration::from_millis(1500);
/// Images of docker-registry, which is filled in each run.
const FEW: usize = 20;
/// References of the rows about memory, and keys in a request there.
const REFERENCES: usize = 2_000;
const MANY: usize = 10_000;
const KEYS: usize = 50;
/// Of the rows where all is known.
const CONNECTIONS: [usize; 3] = [1, 16, 64];

const RATIFY: &str = "ratify";
const PARTS: [&str; 5] = [RATIFY, "cosign2", "crane", "olareg", "docker-registry"];

/// Which rows are measured.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// Only parts with these words: plain, TLS, mTLS, docker, cold, batch, nothing, warm, memory
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Without Ratify, and so without goals that compare: to see what a change does
    #[arg(long)]
    alone: bool,
}

impl Args {
    fn want(&self, wire: Wire, part: &str) -> bool {
        let words = [wire.to_string(), part.to_owned()];
        let is_wire = |word: &&String| Wire::ALL.iter().any(|wire| wire.to_string() == **word);
        let (wires, parts): (Vec<_>, Vec<_>) = self.only.iter().partition(is_wire);
        [(wires, &words[0]), (parts, &words[1])]
            .into_iter()
            .all(|(named, word)| named.is_empty() || named.contains(&word))
    }
}

pub(super) fn run(runs: usize, args: &Args) -> Result<Report> {
    if cfg!(debug_assertions) {
        bail!("the client must not be a debug build; `again_as_release` sees to that");
    }
    let wanted = |name: &str| PARTS.contains(&name) && !(args.alone && name == RATIFY);
    let tools = ensure_parts(&parts::closure(|part| wanted(part.name)), Missing::Fails)?;
    let images = Images::ensure(&tools)?;
    // In memory, so that no row waits for a disk.
    let shm = std::path::Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let scratch = tempfile::tempdir_in(parent)?;
    let setup = Setup {
        // As it is released.
        ours: VERIFIER.build(&["--profile", "dist"])?,
        ratify: (!args.alone).then(|| tools[RATIFY].clone()),
        key: images.key(),
        certificates: Certificates::make(&scratch.path().join("certificates"))?,
        scratch: scratch.path().to_owned(),
    };
    let bench = Bench { tools, images, setup, runs, args: args.clone() };
    let mut table = Table::default();
    for wire in Wire::ALL {
        bench.docker(&mut table, wire)?;
        bench.in_memory(&mut table, wire)?;
        bench.memory(&mut table, wire)?;
    }
    Ok(table.report())
}

struct Bench {
    tools: Toolbox,
    images: Images,
    setup: Setup,
    runs: usize,
    args: Args,
}

fn one_each(keys: impl IntoIterator<Item = String>) -> Vec<Asked> {
    keys.into_iter().map(|key| Asked::new(&[key])).collect()
}

impl Bench {
    fn leaves_out(&self, who: Who) -> bool {
        who == Who::Ratify && self.args.alone
    }

    /// Whether the part is measured; if so, that it begins is told.
    fn begins(&self, wire: Wire, part: &str) -> bool {
        let wanted = self.args.want(wire, part);
        if wanted {
            println!("bench: {wire}, {part}");
        }
        wanted
    }

    fn docker(&self, table: &mut Table, wire: Wire) -> Result<()> {
        if !self.begins(wire, "docker") {
            return Ok(());
        }
        let dir = self.setup.scratch.join("docker");
        let _registry = Registry::docker(&self.tools, &self.images, FEW, &dir)?;
        self.cold(table, wire, "docker-registry", FEW)
    }

    fn in_memory(&self, table: &mut Table, wire: Wire) -> Result<()> {
        let _registry = Registry::olareg(&self.tools, &self.images.repositories(), "mem")?;
        if self.begins(wire, "cold") {
            self.cold(table, wire, "in-memory registry", IMAGES)?;
        }
        if self.begins(wire, "batch") {
            self.batch(table, wire)?;
        }
        if self.begins(wire, "nothing") {
            self.nothing_kept(table, wire)?;
        }
        if self.begins(wire, "warm") {
            self.warm(table, wire)?;
        }
        Ok(())
    }

    /// Every key is new to a verifier that has spoken with the registry before.
    fn cold(&self, table: &mut Table, wire: Wire, registry: &str, count: usize) -> Result<()> {
        let mut times = [const { Vec::new() }; 3];
        // The first round is for the registry, which reads its files when it is first asked.
        for number in 0..=self.runs {
            let shapes: [(Who, Key); 3] =
                [(Who::Ratify, plain), (Who::Ours, for_one), (Who::Ours, for_all)];
            for (at, (who, key)) in shapes.into_iter().enumerate() {
                if self.leaves_out(who) {
                    continue;
                }
                let verifier = self.setup.start(who, Keeps::Everything, wire)?;
                in_turn(&verifier.target, &one_each([key(&name(0))]))?;
                let asked = one_each((1..count).map(|n| key(&name(n))));
                let load = in_turn(&verifier.target, &asked)?;
                if number > 0 {
                    times[at].push(load.percentile(50));
                }
            }
        }
        let [ratify, one, four] = times;
        let what = format!("{wire}, cold, one key, {registry}");
        table.times(&format!("{what}: Ratify, index"), &ratify);
        table.times(&format!("{what}: index and one platform"), &one);
        table.times(&format!("{what}: index and four platforms"), &four);
        table.promise(&format!("{what}, one platform"), Goal::times(&one, &ratify, 1.0));
        table.promise(&format!("{what}, four platforms"), Goal::times(&four, &ratify, 2.0));
        Ok(())
    }

    fn batch(&self, table: &mut Table, wire: Wire) -> Result<()> {
        let mut times = [const { [const { Vec::new() }; 2] }; 3];
        for _ in 0..self.runs {
            for (at, (who, key)) in looks().into_iter().enumerate() {
                if self.leaves_out(who) {
                    continue;
                }
                let verifier = self.setup.start(who, Keeps::Everything, wire)?;
                // Of another repository of the same registry, as in `cold`.
                in_turn(&verifier.target, &one_each([key(&name(0))]))?;
                let keys: Vec<_> = (0..KEYS).map(|n| key(&name(n))).collect();
                let asked = [Asked::new(&keys)];
                times[at][0].push(in_turn(&verifier.target, &asked)?.percentile(50));
                let again = vec![asked[0].clone(); 20];
                times[at][1].push(in_turn(&verifier.target, &again)?.percentile(50));
            }
        }
        let [ratify, ours, index] = times;
        for (at, word) in ["cold", "warm"].into_iter().enumerate() {
            let what = format!("{wire}, {KEYS} keys in one request, {word}");
            table.times(&format!("{what}: Ratify"), &ratify[at]);
            table.times(&format!("{what}: ours"), &ours[at]);
            table.times(&format!("{what}: ours, the index alone"), &index[at]);
            table.promise(&what, Goal::times(&ours[at], &ratify[at], 1.0 / 3.0));
        }
        Ok(())
    }

    fn nothing_kept(&self, table: &mut Table, wire: Wire) -> Result<()> {
        let mut loads = [const { Vec::new() }; 3];
        for _ in 0..self.runs {
            for (at, (who, key)) in looks().into_iter().enumerate() {
                if self.leaves_out(who) {
                    continue;
                }
                let verifier = self.setup.start(who, Keeps::Content, wire)?;
                let asked = one_each((0..IMAGES).map(|n| key(&name(n))));
                in_turn(&verifier.target, &asked)?;
                loads[at].push(measured(&verifier, &asked, 16)?);
            }
        }
        let [ratify, ours, index] = loads;
        let what = format!("{wire}, nothing kept, 50 keys, 16 connections");
        table.loads(&format!("{what}: Ratify"), &ratify);
        table.loads(&format!("{what}: ours"), &ours);
        table.loads(&format!("{what}: the index alone"), &index);
        table.promise(&format!("{what}, rate"), Goal::rate(&ours, &ratify, 4.0));
        Ok(())
    }

    fn warm(&self, table: &mut Table, wire: Wire) -> Result<()> {
        let mut loads = [const { [const { Vec::new() }; 2] }; CONNECTIONS.len()];
        for _ in 0..self.runs {
            for (at, (who, key)) in questions().into_iter().enumerate() {
                if self.leaves_out(who) {
                    continue;
                }
                let verifier = self.setup.start(who, Keeps::Everything, wire)?;
                // All of them, because Ratify lets nobody ask twice for one at once.
                let asked = one_each((0..IMAGES).map(|n| key(&name(n))));
                for _ in 0..4 {
                    in_turn(&verifier.target, &asked)?;
                }
                for (row, count) in CONNECTIONS.into_iter().enumerate() {
                    loads[row][at].push(measured(&verifier, &asked, count)?);
                }
            }
        }
        for (count, [ratify, ours]) in CONNECTIONS.into_iter().zip(loads) {
            let what = format!("{wire}, warm, {count} connections");
            table.loads(&format!("{what}: Ratify"), &ratify);
            table.loads(&format!("{what}: ours"), &ours);
            if count == 64 {
                table.promise(&format!("{what}, rate"), Goal::rate(&ours, &ratify, 5.0));
                table.promise(&format!("{what}, p99"), Goal::p99(&ours, &ratify, 0.25));
                table.promise(&format!("{what}, CPU a request"), Goal::cpu(&ours, &ratify, 0.1));
            }
        }
        Ok(())
    }

    fn memory(&self, table: &mut Table, wire: Wire) -> Result<()> {
        if !self.begins(wire, "memory") {
            return Ok(());
        }
        let repositories = self.setup.scratch.join("many");
        if !repositories.exists() {
            self.images.multiply(&repositories, MANY)?;
        }
        let _registry = Registry::olareg(&self.tools, &repositories, "mem")?;
        for (who, key) in questions() {
            if self.leaves_out(who) {
                continue;
            }
            let mut runs = Vec::new();
            for _ in 0..self.runs {
                let verifier = self.setup.start(who, Keeps::Everything, wire)?;
                runs.push(memory_of(&verifier, key)?);
            }
            let Memory { idle, some, all, again, peak } = Memory::median(&runs);
            table.memory(&format!("{wire}, {who:?}"), [idle, some, all, again, peak]);
            if who == Who::Ours {
                for (what, measured, at_most) in [
                    ("idle", idle, 25.0),
                    ("after 2,000 references", some, 48.0),
                    ("after 10,000 references", all, 100.0),
                    ("at most in 20,000 questions", peak, 100.0),
                ] {
                    let what = format!("{wire}, memory {what}, MiB");
                    table.promise(&what, Goal { measured, at_most });
                }
            }
        }
        Ok(())
    }
}

fn memory_of(verifier: &Verifier, key: Key) -> Result<Memory> {
    std::thread::sleep(Duration::from_millis(500));
    let idle = verifier.process.memory()?;
    ask_many(verifier, key, 0..REFERENCES)?;
    let some = verifier.process.memory()?;
    ask_many(verifier, key, REFERENCES..MANY)?;
    let all = verifier.process.memory()?;
    // And once more what was asked first: what is flat does not grow again.
    ask_many(verifier, key, 0..MANY)?;
    Ok(Memory {
        idle,
        some,
        all,
        again: verifier.process.memory()?,
        peak: verifier.process.peak_memory()?,
    })
}

fn ask_many(
    verifier: &Verifier,
    key: fn(&str) -> String,
    numbers: std::ops::Range<usize>,
) -> Result<Load> {
    let numbers: Vec<_> = numbers.collect();
    let requests = numbers.chunks(KEYS).map(|chunk| {
        let keys: Vec<_> = chunk.iter().map(|number| key(&many(*number))).collect();
        Asked::new(&keys)
    });
    in_turn(&verifier.target, &requests.collect::<Vec<_>>())
}

/// The key that asks about a reference.
type Key = fn(&str) -> String;

/// Who is asked what where both are asked for what they look at by themselves.
fn questions() -> [(Who, Key); 2] {
    [(Who::Ratify, plain), (Who::Ours, for_one)]
}

/// The same, and ours asked for no more than Ratify looks at: where the work is requests and signatures, that tells how much
/// of the difference is the image.
fn looks() -> [(Who, Key); 3] {
    let [ratify, ours] = questions();
    [ratify, ours, (Who::OursLikeRatify, plain)]
}

/// A load, and the processor time that each request of it took.
#[derive(Debug, Clone, Copy)]
struct Measured {
    rate: f64,
    p50: Duration,
    p99: Duration,
    cpu: Duration,
}

fn measured(verifier: &Verifier, asked: &[Asked], connections: usize) -> Result<Measured> {
    let before = verifier.process.cpu()?;
    let load = for_long(&verifier.target, asked, connections, LONG)?;
    let took = verifier.process.cpu()?.saturating_sub(before);
    let requests = u32::try_from(load.times.len()).unwrap_or(u32::MAX).max(1);
    let (p50, p99) = (load.percentile(50), load.percentile(99));
    Ok(Measured { rate: load.rate(), p50, p99, cpu: took / requests })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_and_parts_are_chosen_by_their_names() {
        let args = |words: &[&str]| Args {
            only: words.iter().map(ToString::to_string).collect(),
            alone: false,
        };
        assert!(args(&[]).want(Wire::Tls, "warm"));
        assert!(args(&["warm"]).want(Wire::Tls, "warm"));
        assert!(args(&["TLS"]).want(Wire::Tls, "warm"));
        assert!(args(&["TLS", "cold", "warm"]).want(Wire::Tls, "warm"));
        assert!(!args(&["TLS", "cold"]).want(Wire::Tls, "warm"));
        assert!(!args(&["TLS", "warm"]).want(Wire::Plain, "warm"));
        assert!(!args(&["mTLS"]).want(Wire::Tls, "warm"));
    }
}
