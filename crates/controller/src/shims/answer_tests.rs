//! Answers that come late, and answers that are no.

use portolan_api::condition;
use portolan_api::shim::RUNTIME_CLASS_READY;
use serde_json::json;

use super::identity::Operation;
use super::plan::{Done, Effect, Heard, Key, Planner};
use super::settings::Settings;
use super::world::{World, label, settings, shim};

const SHIM: &str = "spin-v2";

/// Nodes `a`, `b` and `c`, one Shim, and room for one node at once.
fn cluster() -> (World, Planner) {
    let mut world = World { now: 1_000_000, ..World::default() };
    ["a", "b", "c"].iter().for_each(|name| world.add_node(name, "amd64"));
    world.put_shim(shim(SHIM, "https://x.example/1", json!({"type": "recreate"})));
    let one = Settings { max_in_flight: super::budget::Amount::Count(1), ..settings() };
    let planner = world.planner(one);
    (world, planner)
}

fn hear(world: &mut World, planner: &mut Planner) {
    for kind in &mut world.events {
        kind.drain(..).for_each(|heard| planner.hear(heard));
    }
}

/// Settles, with what one effect comes to decided by the test.
fn settle_but(
    world: &mut World,
    planner: &mut Planner,
    mut answer: impl FnMut(&mut World, &Effect) -> Option<Done>,
) {
    for _ in 0..20 {
        hear(world, planner);
        for effect in planner.step(world.now, usize::MAX) {
            let done = match answer(world, &effect) {
                Some(done) => done,
                None => world.apply(&effect),
            };
            if let Some(key) = effect.key() {
                planner.done(&key, done, world.now);
            }
        }
        world.now += 10;
    }
}

fn is_start(effect: &Effect) -> bool {
    matches!(effect, Effect::Start { .. })
}

#[test]
fn an_answer_that_comes_after_the_news_that_its_job_is_gone_brings_nothing_back() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let job = world.live()[0].clone();
    world.delete_shim(SHIM);
    hear(&mut world, &mut planner);
    let kill = planner
        .step(world.now, usize::MAX)
        .into_iter()
        .find(|one| matches!(one, Effect::Kill { .. }));
    let late = world.apply(&kill.expect("nobody wants it any more"));
    assert!(matches!(&late, Done::Wrote(heard) if matches!(heard[..], [Heard::Job(_)])));
    // The watch is faster than the answer.
    hear(&mut world, &mut planner);
    planner.done(&Key::Job(job), late, world.now);
    for _ in 0..10 {
        world.finish(&mut planner);
        world.now += 2000;
    }
    assert!(world.shims.is_empty(), "it holds neither the node nor the Shim");
}

#[test]
fn an_answer_that_comes_after_the_news_that_its_node_is_gone_makes_no_ghost() {
    let (mut world, mut planner) = cluster();
    world.finish(&mut planner);
    let gone = world.nodes["b"].clone();
    world.remove_node("b");
    world.settle(&mut planner);
    planner.hear(Heard::Node(Box::new(gone)));
    world.finish(&mut planner);
    world.now += 2000;
    world.settle(&mut planner);
    assert_eq!(world.shims[SHIM].status.as_ref().unwrap().nodes, 2);
}

#[test]
fn a_job_that_the_server_refuses_is_told_holds_no_place_and_is_tried_again_later() {
    let (mut world, mut planner) = cluster();
    let mut asked = 0;
    let mut refuse = |world: &mut World, effect: &Effect| {
        let Effect::Start { node, uid, patch, .. } = effect else { return None };
        if node != "a" {
            return None;
        }
        asked += 1;
        let (node, uid, patch) = (node.clone(), uid.clone(), patch.clone());
        let Done::Wrote(heard) = world.apply(&Effect::Patch { node, uid, patch }) else { panic!() };
        Some(Done::Refused { message: "exceeded quota".into(), heard })
    };
    settle_but(&mut world, &mut planner, &mut refuse);
    world.now += 2000;
    settle_but(&mut world, &mut planner, &mut refuse);
    assert_eq!(world.live_operations(), [("b".into(), Operation::Install)], "others go on");
    let status = world.shims[SHIM].status.clone().unwrap();
    assert_eq!((status.nodes_failed, &*status.failures[0].reason), (1, "JobRefused"));
    assert!(status.failures[0].message.contains("exceeded quota"));
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("failed"));
    // Another process knows of it, too.
    let one = Settings { max_in_flight: super::budget::Amount::Count(1), ..settings() };
    planner = world.planner(one);
    settle_but(&mut world, &mut planner, &mut refuse);
    let before = world.live_operations();
    assert_eq!(before, [("b".into(), Operation::Install)]);
    assert_eq!(asked, 1, "its time has not come");
    world.now += 31_000;
    world.finish(&mut planner);
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("provisioned"));
}

#[test]
fn a_node_that_cannot_be_written_holds_no_place_and_is_told() {
    let (mut world, mut planner) = cluster();
    let mut refuse = |_: &mut World, effect: &Effect| match effect {
        Effect::Start { node, .. } | Effect::Patch { node, .. } if node == "a" => {
            Some(Done::Refused { message: "forbidden".into(), heard: Vec::new() })
        }
        _ => None,
    };
    settle_but(&mut world, &mut planner, &mut refuse);
    world.now += 2000;
    settle_but(&mut world, &mut planner, &mut refuse);
    assert_eq!(world.live_operations(), [("b".into(), Operation::Install)]);
    assert_eq!(world.shims[SHIM].status.as_ref().unwrap().failures[0].reason, "JobRefused");
    world.now += 31_000;
    world.finish(&mut planner);
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("provisioned"));
}

#[test]
fn what_was_told_to_begin_on_a_machine_that_was_replaced_meanwhile_is_let_go() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let job = world.live()[0].clone();
    world.end(&job, None);
    hear(&mut world, &mut planner);
    // The next is told to begin, and nobody answers.
    settle_but(&mut world, &mut planner, |_, effect| {
        is_start(effect).then(|| Done::Failed(Vec::new()))
    });
    // A new machine, seen in a list: nobody said that the old one went.
    world.remove_node("b");
    world.events[0].clear();
    world.add_node("b", "amd64");
    world.now += 100_000;
    world.finish(&mut planner);
    for name in ["a", "b", "c"] {
        assert_eq!(label(&world.nodes[name], SHIM).as_deref(), Some("provisioned"), "{name}");
    }
}

#[test]
fn a_job_is_late_by_our_own_clock_and_pauses_end_when_the_clock_is_set_back() {
    let (mut world, mut planner) = cluster();
    // The server's clock is hours behind.
    world.behind = 10_000_000;
    world.settle(&mut planner);
    world.now += 500_000;
    world.settle(&mut planner);
    assert_eq!(world.live().len(), 1, "it has its time");
    let job = world.live()[0].clone();
    world.end(&job, Some(("DownloadFailed", false)));
    world.settle(&mut planner);
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("failed"));
    world.now -= 50_000_000;
    world.finish(&mut planner);
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("provisioned"));
}

#[test]
fn a_class_that_the_server_refuses_is_told_and_asked_for_twice_an_hour_at_most() {
    let (mut world, mut planner) = cluster();
    let mut posts = 0;
    let mut minutes = |world: &mut World, planner: &mut Planner, minutes: usize| {
        posts = 0;
        for _ in 0..minutes {
            world.now += 60_000;
            settle_but(world, planner, |_, effect| match effect {
                Effect::Class { .. } => {
                    posts += 1;
                    let message = "denied by policy".to_owned();
                    Some(Done::Refused { message, heard: Vec::new() })
                }
                _ => None,
            });
        }
        posts
    };
    let first = minutes(&mut world, &mut planner, 60);
    assert!((3..=8).contains(&first), "{first} in the first hour");
    let later = minutes(&mut world, &mut planner, 240);
    assert!((6..=9).contains(&later), "{later} in four hours");
    let status = world.shims[SHIM].status.clone().expect("a status");
    let told = condition::find(&status.conditions, RUNTIME_CLASS_READY).expect("the condition");
    assert_eq!((told.reason.as_str(), told.message.as_str()), ("Refused", "denied by policy"));
    // Who changes the Shim does not wait.
    world.edit_shim(SHIM, |shim| shim.spec.runtime_class.name = "another".into());
    assert_eq!(minutes(&mut world, &mut planner, 1), 1);
}
