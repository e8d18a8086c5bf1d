//! Several Shims of one node in one Job: who goes along, what becomes of each, and what is done when one of them changes.

use portolan_shim::report::MAX_PARTS;
use serde_json::{Value, json};

use super::identity::Operation;
use super::outcome::Verdict;
use super::plan::{Done, Effect, Planner};
use super::record::{Begun, Record};
use super::settings::Settings;
use super::world::{World, label, outcome, settings, shim};

fn recreate() -> Value {
    json!({"type": "recreate"})
}

/// So many nodes `n0`, `n1` …, and these Shims.
fn cluster(nodes: usize, shims: &[(&str, Value)]) -> (World, Planner) {
    let mut world = World { now: 1_000_000, ..World::default() };
    (0..nodes).for_each(|at| world.add_node(&format!("n{at}"), "amd64"));
    for (name, rollout) in shims {
        world.put_shim(shim(name, "https://x.example/1", rollout.clone()));
    }
    let planner = world.planner(wide());
    (world, planner)
}

fn wide() -> Settings {
    Settings { max_in_flight: super::budget::Amount::Percent(100), ..settings() }
}

/// Jobs that have not ended: the node, and the Shims.
fn live(world: &World) -> Vec<(String, String)> {
    let of = |name: String| {
        let identity = world.identity(&name);
        let shims: Vec<&str> = identity.parts().map(|(shim, ..)| shim).collect();
        let shims = shims.join(",");
        (identity.node, shims)
    };
    world.live().into_iter().map(of).collect()
}

fn on(node: &str, shims: &str) -> (String, String) {
    (node.to_owned(), shims.to_owned())
}

fn words(world: &World, node: &str, shims: &[&str]) -> Vec<String> {
    shims.iter().map(|shim| label(&world.nodes[node], shim).unwrap_or_default()).collect()
}

fn wait(world: &mut World, planner: &mut Planner, seconds: i64) {
    world.now += seconds * 1000;
    world.settle(planner);
    // Statuses are written once a second.
    world.now += 1000;
    world.settle(planner);
}

#[test]
fn three_shims_of_a_node_are_one_job_and_two_writes_of_it() {
    let (mut world, mut planner) =
        cluster(1, &[("x", recreate()), ("y", recreate()), ("z", recreate())]);
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "x,y,z")]);
    assert_eq!(words(&world, "n0", &["x", "y", "z"]), ["pending"; 3]);
    let name = world.live()[0].clone();
    assert!(name.starts_with("n0-x-and-2-install-"), "{name}");
    world.finish(&mut planner);
    assert_eq!(words(&world, "n0", &["x", "y", "z"]), ["provisioned"; 3]);
    assert_eq!(world.writes[..2], [2, 1]);
    // What is taken away, and looked at, is by itself.
    world.edit_node("n0", |node| node.status.node_info.boot_id.push('2'));
    world.settle(&mut planner);
    assert_eq!(
        (live(&world), world.live_operations()[0].1),
        (vec![on("n0", "x")], Operation::Verify)
    );
    world.finish(&mut planner);
    ["x", "y"].iter().for_each(|name| world.delete_shim(name));
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "x")]);
    world.finish(&mut planner);
    world.settle(&mut planner);
    assert_eq!(words(&world, "n0", &["x", "y", "z"]), ["", "", "provisioned"]);
    assert_eq!(world.shims.len(), 1);
}

#[test]
fn updates_of_several_are_one_job_too_and_a_job_of_one_is_as_ever() {
    let (mut world, mut planner) = cluster(1, &[("x", recreate()), ("y", recreate())]);
    world.finish(&mut planner);
    for (both, name) in [(true, "n0-x-and-1-install-"), (false, "n0-x-install-")] {
        for shim in ["x", "y"].iter().filter(|shim| both || **shim == "x") {
            let more = if both { '2' } else { '3' };
            world.edit_shim(shim, |shim| shim.spec.fetch_strategy.platforms[0].location.push(more));
        }
        world.settle(&mut planner);
        assert_eq!(world.live().len(), 1);
        assert!(world.live()[0].starts_with(name), "{:?}", world.live());
        let job = &world.rendered[&world.live()[0]];
        assert_eq!(job.to_string().contains("--also"), both);
        assert_eq!(job.to_string().contains("--leave-refusal"), both);
        world.finish(&mut planner);
    }
}

#[test]
fn who_has_no_room_by_its_own_budget_is_not_in_the_job() {
    let one = json!({"type": "rolling", "rolling": {"maxUpdate": 1}});
    let (mut world, mut planner) = cluster(3, &[("all", recreate()), ("one", one)]);
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "all,one"), on("n1", "all"), on("n2", "all")]);
    world.finish(&mut planner);
    for node in ["n0", "n1", "n2"] {
        assert_eq!(words(&world, node, &["all", "one"]), ["provisioned"; 2]);
    }
}

#[test]
fn shims_that_come_in_one_moment_begin_together_and_who_comes_later_by_itself() {
    let (mut world, mut planner) = cluster(1, &[("x", recreate())]);
    let begun = |world: &mut World, planner: &mut Planner| {
        for _ in 0..5 {
            for kind in &mut world.events {
                kind.drain(..).for_each(|heard| planner.hear(heard));
            }
            for effect in planner.step(world.now, usize::MAX) {
                let done = world.apply(&effect);
                effect
                    .key()
                    .into_iter()
                    .for_each(|key| planner.done(&key, heard_later(&done), world.now));
            }
        }
        live(world)
    };
    assert_eq!(begun(&mut world, &mut planner), [], "more may come");
    world.now += 100;
    world.put_shim(shim("y", "https://x.example/1", recreate()));
    assert_eq!(begun(&mut world, &mut planner), []);
    world.now += 100;
    assert_eq!(begun(&mut world, &mut planner), []);
    assert_eq!(planner.next(), Some(world.now + 50), "nobody has to say anything");
    world.now += 50;
    assert_eq!(begun(&mut world, &mut planner), [on("n0", "x,y")]);
    world.put_shim(shim("z", "https://x.example/1", recreate()));
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "x,y")], "one Job for each node");
    let job = world.live()[0].clone();
    world.end(&job, None);
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "z")]);
}

/// What is written is heard of by the watch alone.
fn heard_later(done: &Done) -> Done {
    match done {
        Done::Wrote(_) => Done::Wrote(Vec::new()),
        Done::Refused { message, .. } => {
            Done::Refused { message: message.clone(), heard: Vec::new() }
        }
        Done::Failed(_) => Done::Failed(Vec::new()),
        Done::Collected(uid, verdict) => Done::Collected(uid.clone(), verdict.clone()),
    }
}

#[test]
fn what_is_refused_for_one_is_told_of_that_one_and_the_others_are_there() {
    let (mut world, mut planner) =
        cluster(1, &[("x", recreate()), ("y", recreate()), ("z", recreate())]);
    world.settle(&mut planner);
    let parts = [
        ("x".to_owned(), None),
        ("y".to_owned(), Some(outcome("DigestMismatch", true))),
        ("z".to_owned(), Some(outcome("DownloadFailed", false))),
    ];
    let verdict = Verdict { all: outcome("DigestMismatch", true), parts: parts.into() };
    let job = world.live()[0].clone();
    world.end_so(&job, Some(verdict));
    wait(&mut world, &mut planner, 2);
    assert_eq!(words(&world, "n0", &["x", "y", "z"]), ["provisioned", "failed", "failed"]);
    let status = |world: &World, shim: &str| world.shims[shim].status.clone().unwrap();
    assert_eq!(status(&world, "y").failures[0].reason, "DigestMismatch");
    wait(&mut world, &mut planner, 31);
    assert_eq!(live(&world), [on("n0", "z")], "only what may pass is tried again");
    world.finish(&mut planner);
    assert_eq!(words(&world, "n0", &["x", "y", "z"]), ["provisioned", "failed", "provisioned"]);
}

#[test]
fn what_several_failed_by_together_is_tried_again_one_by_one() {
    for verdict in [outcome("RolledBack", true), outcome("JobFailed", true)] {
        let (mut world, mut planner) = cluster(1, &[("x", recreate()), ("y", recreate())]);
        world.settle(&mut planner);
        let job = world.live()[0].clone();
        world.end_so(&job, Some(verdict.clone().into()));
        wait(&mut world, &mut planner, 2);
        assert_eq!(words(&world, "n0", &["x", "y"]), ["failed", "failed"]);
        wait(&mut world, &mut planner, 31);
        assert_eq!(live(&world), [on("n0", "x")]);
        let job = world.live()[0].clone();
        world.end_so(&job, Some(verdict.into()));
        world.settle(&mut planner);
        assert_eq!(live(&world), [on("n0", "y")], "the other is not held up");
        world.finish(&mut planner);
        wait(&mut world, &mut planner, 100_000);
        assert_eq!(words(&world, "n0", &["x", "y"]), ["failed", "provisioned"], "x is the one");
        assert!(world.live().is_empty());
    }
}

#[test]
fn a_job_of_which_one_changed_or_went_is_ended_and_the_others_begin_again() {
    for (change, expected) in [("change", "x,y,z"), ("delete", "x,z")] {
        let (mut world, mut planner) =
            cluster(1, &[("x", recreate()), ("y", recreate()), ("z", recreate())]);
        world.settle(&mut planner);
        let old = world.live()[0].clone();
        match change {
            "change" => world.edit_shim("y", |shim| {
                shim.spec.fetch_strategy.platforms[0].location.push('2');
            }),
            _ => world.delete_shim("y"),
        }
        let effects = world.settle(&mut planner);
        let kills = effects.iter().filter(|effect| matches!(effect, Effect::Kill { .. })).count();
        assert_eq!((kills, world.jobs.contains_key(&old)), (1, false));
        world.finish(&mut planner);
        let there = expected.split(',').collect::<Vec<_>>();
        assert!(words(&world, "n0", &there).iter().all(|word| word == "provisioned"));
        world.settle(&mut planner);
        assert_eq!(world.shims.contains_key("y"), change == "change");
    }
}

#[test]
fn two_that_go_at_once_end_their_job_once_and_are_told_of_its_failure_once() {
    let (mut world, mut planner) = cluster(1, &[("x", recreate()), ("y", recreate())]);
    world.settle(&mut planner);
    let job = world.live()[0].clone();
    world.end(&job, Some(("DownloadFailed", false)));
    let effects = world.settle(&mut planner);
    let asked = effects.iter().filter(|effect| matches!(effect, Effect::Collect { .. })).count();
    assert_eq!(asked, 1);
    let (mut world, mut planner) = cluster(1, &[("x", recreate()), ("y", recreate())]);
    world.settle(&mut planner);
    ["x", "y"].iter().for_each(|name| world.delete_shim(name));
    let effects = world.settle(&mut planner);
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Kill { .. })).count(), 1);
    world.finish(&mut planner);
    world.settle(&mut planner);
    assert!(world.shims.is_empty());
}

#[test]
fn a_job_has_bounds_in_its_shims_and_in_what_is_written_of_them() {
    let names: Vec<String> = (0..MAX_PARTS + 2).map(|at| format!("s{at:02}")).collect();
    let shims: Vec<_> = names.iter().map(|name| (&**name, recreate())).collect();
    let (mut world, mut planner) = cluster(1, &shims);
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", &names[..MAX_PARTS].join(","))]);
    let job = world.live()[0].clone();
    world.end(&job, None);
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", &names[MAX_PARTS..].join(","))]);
    // Options that would make the object too large.
    let (mut world, mut planner) =
        cluster(1, &[("x", recreate()), ("y", recreate()), ("z", recreate())]);
    for name in ["x", "y"] {
        let long = format!("\"{}\"", "o".repeat(4000));
        let options = (0..10).map(|at| (format!("a{at}"), long.clone())).collect();
        world.edit_shim(name, |shim| shim.spec.containerd_runtime_options = Some(options));
    }
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "x,z")]);
    world.finish(&mut planner);
    assert_eq!(words(&world, "n0", &["x", "y", "z"]), ["provisioned"; 3]);
}

#[test]
fn a_job_of_several_that_the_server_refuses_is_tried_by_each_alone() {
    let (mut world, mut planner) = cluster(1, &[("x", recreate()), ("y", recreate())]);
    for _ in 0..30 {
        for kind in &mut world.events {
            kind.drain(..).for_each(|heard| planner.hear(heard));
        }
        for effect in planner.step(world.now, usize::MAX) {
            let done = match &effect {
                Effect::Start { node, uid, patch, order } if order.identity.is_shared() => {
                    let (node, uid, patch) = (node.clone(), uid.clone(), patch.clone());
                    drop(world.apply(&Effect::Patch { node, uid, patch }));
                    Done::Refused { message: "too large".into(), heard: Vec::new() }
                }
                other => world.apply(other),
            };
            effect
                .key()
                .into_iter()
                .for_each(|key| planner.done(&key, heard_later(&done), world.now));
        }
        world.now += 100;
    }
    assert_eq!(words(&world, "n0", &["x", "y"]), ["failed", "failed"]);
    wait(&mut world, &mut planner, 31);
    assert_eq!(live(&world), [on("n0", "x")]);
    world.finish(&mut planner);
    assert_eq!(words(&world, "n0", &["x", "y"]), ["provisioned"; 2]);
}

/// The process ends between the two: what is announced is then made, under the very name.
#[test]
fn what_was_announced_as_one_and_never_made_is_made_as_one() {
    let (mut world, mut planner) = cluster(1, &[("x", recreate()), ("y", recreate())]);
    let mut promised = None;
    for _ in 0..30 {
        for kind in &mut world.events {
            kind.drain(..).for_each(|heard| planner.hear(heard));
        }
        for effect in planner.step(world.now, usize::MAX) {
            if let Effect::Start { node, uid, patch, order } = &effect {
                promised = Some(order.identity.job_name());
                let (node, uid, patch) = (node.clone(), uid.clone(), patch.clone());
                drop(world.apply(&Effect::Patch { node, uid, patch }));
                continue;
            }
            let done = world.apply(&effect);
            effect
                .key()
                .into_iter()
                .for_each(|key| planner.done(&key, heard_later(&done), world.now));
        }
        world.now += 10;
    }
    let (promised, writes) = (promised.expect("a Job"), world.writes[0]);
    assert_eq!(words(&world, "n0", &["x", "y"]), ["pending", "pending"]);
    planner = world.planner(wide());
    world.settle(&mut planner);
    assert_eq!(world.live(), [promised]);
    assert_eq!(world.writes[0], writes, "nothing has to be written first");
}

/// Settles, with what some effects come to decided by the test.
fn settle_but(
    world: &mut World,
    planner: &mut Planner,
    mut answer: impl FnMut(&mut World, &Effect) -> Option<Done>,
) {
    for _ in 0..60 {
        for kind in &mut world.events {
            kind.drain(..).for_each(|heard| planner.hear(heard));
        }
        for effect in planner.step(world.now, usize::MAX) {
            let done = match answer(world, &effect) {
                Some(done) => done,
                None => world.apply(&effect),
            };
            effect
                .key()
                .into_iter()
                .for_each(|key| planner.done(&key, heard_later(&done), world.now));
        }
        world.now += 100;
    }
}

/// What is written on the node before the Job.
fn patch_of(world: &mut World, start: &Effect) -> Done {
    let Effect::Start { node, uid, patch, .. } = start else { panic!("{start:?}") };
    let (node, uid, patch) = (node.clone(), uid.clone(), patch.clone());
    match patch.is_empty() {
        true => Done::Wrote(Vec::new()),
        false => world.apply(&Effect::Patch { node, uid, patch }),
    }
}

/// The request for three was on its way when the process ended, and the next has room for two of them alone.
#[test]
fn a_part_of_what_was_announced_as_one_is_another_job_and_the_late_one_is_ended() {
    let (mut world, mut planner) =
        cluster(2, &[("x", recreate()), ("y", recreate()), ("z", recreate())]);
    let mut late = None;
    settle_but(&mut world, &mut planner, |world, effect| match effect {
        Effect::Start { node, order, .. } if node == "n0" => {
            drop(patch_of(world, effect));
            late = Some(order.render(&settings()));
            Some(Done::Failed(Vec::new()))
        }
        _ => None,
    });
    assert_eq!(live(&world), [on("n1", "x,y,z")]);
    world.edit_shim("z", |shim| {
        let rolling = json!({"type": "rolling", "rolling": {"maxUpdate": 1}});
        shim.spec.rollout_strategy = serde_json::from_value(rolling).unwrap();
    });
    planner = world.planner(wide());
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "x,y"), on("n1", "x,y,z")]);
    world.put_job(serde_json::from_value(late.expect("a Job")).unwrap());
    world.settle(&mut planner);
    assert_eq!(live(&world), [on("n0", "x,y"), on("n1", "x,y,z")], "one Job for each node");
    world.finish(&mut planner);
    for node in ["n0", "n1"] {
        assert_eq!(words(&world, node, &["x", "y", "z"]), ["provisioned"; 3]);
    }
}

/// The one begins by what was announced of it, with nothing to write of its own.
#[test]
fn a_refusal_that_is_not_yet_written_is_not_forgotten_where_another_shim_begins() {
    let (mut world, mut planner) = cluster(1, &[("x", recreate()), ("y", recreate())]);
    world.settle(&mut planner);
    let job = world.live()[0].clone();
    world.end(&job, Some(("JobFailed", false)));
    wait(&mut world, &mut planner, 2);
    world.edit_node("n0", |node| {
        let annotations = node.metadata.annotations.as_mut().unwrap();
        let text = annotations.get_mut("runtime.spinkube.dev/y").unwrap();
        let mut record: Record = serde_json::from_str(text).unwrap();
        let hash = record.failed.as_ref().unwrap().hash.clone();
        let (operation, handler) = (Operation::Install, "y".to_owned());
        record.begun = Some(Begun { operation, hash, nonce: 7, handler });
        *text = serde_json::to_string(&record).unwrap();
        for key in ["y", "runtime.spinkube.dev/y"] {
            node.metadata.labels.as_mut().unwrap().insert(key.into(), "pending".into());
        }
    });
    world.now += 31_000;
    planner = world.planner(wide());
    let mut asked = Vec::new();
    settle_but(&mut world, &mut planner, |world, effect| {
        let Effect::Start { order, .. } = effect else { return None };
        asked.push(order.identity.shim.clone());
        (order.identity.shim == "x").then(|| {
            drop(patch_of(world, effect));
            Done::Refused { message: "exceeded quota".into(), heard: Vec::new() }
        })
    });
    assert_eq!(asked, ["x", "y"], "its time has not come");
    let record =
        &world.nodes["n0"].metadata.annotations.as_ref().unwrap()["runtime.spinkube.dev/x"];
    assert!(record.contains("JobRefused") && record.contains("\"times\":2"), "{record}");
    assert_eq!(words(&world, "n0", &["x"]), ["failed"]);
    let told = world.notices.iter().filter(|notice| notice.reason == "JobRefused").count();
    assert_eq!(told, 1);
    world.finish(&mut planner);
    assert_eq!(words(&world, "n0", &["x", "y"]), ["failed", "provisioned"]);
}

/// What announces another Shim's Job tells it with that, and does not get through.
#[test]
fn what_failed_is_told_once_however_often_it_has_to_be_written() {
    let (mut world, mut planner) = cluster(1, &[("x", recreate())]);
    let told = |world: &World| world.notices.iter().filter(|one| one.reason == "JobFailed").count();
    world.settle(&mut planner);
    world.end(&world.live()[0].clone(), Some(("JobFailed", false)));
    world.put_shim(shim("y", "https://x.example/1", recreate()));
    let mut starts = 0;
    for _ in 0..3 {
        settle_but(&mut world, &mut planner, |_, effect| {
            starts += usize::from(matches!(effect, Effect::Start { .. }));
            let writes = matches!(effect, Effect::Patch { .. } | Effect::Start { .. });
            writes.then(|| Done::Failed(Vec::new()))
        });
    }
    assert!(starts > 2, "{starts}");
    assert_eq!(told(&world), 1);
    // It is written at last, and fails anew.
    let mut failed = 1;
    for _ in 0..4 {
        wait(&mut world, &mut planner, 60);
        for job in world.live() {
            let again = world.identity(&job).shim == "x";
            failed += usize::from(again);
            world.end(&job, again.then_some(("JobFailed", false)));
        }
    }
    wait(&mut world, &mut planner, 2);
    assert!(failed > 1, "{failed}");
    assert_eq!(told(&world), failed);
}
