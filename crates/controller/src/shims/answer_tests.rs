//! Answers that come late, and answers that are no.

use std::collections::BTreeSet;

use portolan_api::condition;
use portolan_api::shim::{RUNTIME_CLASS_READY, ShimStatus};
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
    for _ in 0..40 {
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

/// The node is written, and the Job is not made.
fn refuse(world: &mut World, effect: &Effect) -> Option<Done> {
    let Effect::Start { node, uid, patch, .. } = effect else { return None };
    let (node, uid, patch) = (node.clone(), uid.clone(), patch.clone());
    let Done::Wrote(heard) = world.apply(&Effect::Patch { node, uid, patch }) else { panic!() };
    Some(Done::Refused { message: "exceeded quota".into(), heard })
}

/// Settles, with no Job taken, until that is written on the nodes.
fn settle_refused(world: &mut World, planner: &mut Planner) {
    for _ in 0..2 {
        settle_but(world, planner, refuse);
        world.now += 2000;
    }
}

/// The label that the class selects, the bare one, and whether a failure is written down.
fn words(world: &World, node: &str) -> (String, String, bool) {
    let node = &world.nodes[node];
    let word = |key: &str| label(node, key).unwrap_or_default();
    let record = &node.metadata.annotations.as_ref().unwrap()["runtime.spinkube.dev/spin-v2"];
    let failed = ["\"failed\"", "\"look\""].iter().any(|key| record.contains(key));
    (word("runtime.spinkube.dev/spin-v2"), word(SHIM), failed)
}

fn said(canonical: &str, bare: &str, failed: bool) -> (String, String, bool) {
    (canonical.to_owned(), bare.to_owned(), failed)
}

fn status(world: &mut World, planner: &mut Planner) -> ShimStatus {
    // Statuses are written once a second.
    world.now += 2000;
    world.settle(planner);
    world.shims[SHIM].status.clone().unwrap()
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
    let mut refuse = |world: &mut World, effect: &Effect| match effect {
        Effect::Start { node, .. } if node == "a" => {
            asked += 1;
            refuse(world, effect)
        }
        _ => None,
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
fn a_refusal_of_what_may_have_begun_gives_its_place_away_only_when_it_would_have_been_heard_of() {
    for (made, rounds) in [(true, 20), (false, 80)] {
        let (mut world, mut planner) = cluster();
        let (mut asked, mut news) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            settle_but(&mut world, &mut planner, |world, effect| {
                let Effect::Start { node, .. } = effect else { return None };
                asked.push(node.clone());
                if asked.len() > 1 {
                    let message = "exceeded quota".to_owned();
                    return Some(Done::Refused { message, heard: Vec::new() });
                }
                // The answer is lost, and the watch is slow.
                if made {
                    drop(world.apply(effect));
                    news.extend(world.events[1].drain(..));
                }
                Some(Done::Failed(Vec::new()))
            });
            world.now += 2000;
        }
        let others = asked.iter().filter(|node| *node != "a").count();
        assert!(asked.len() > 3 && (others == 0) == made, "{asked:?}");
        world.events[1].extend(news);
        world.now += 2_000_000;
        world.finish(&mut planner);
        for name in ["a", "b", "c"] {
            assert_eq!(label(&world.nodes[name], SHIM).as_deref(), Some("provisioned"), "{name}");
        }
    }
}

#[test]
fn a_job_that_was_heard_of_was_made_whatever_its_maker_is_told() {
    let (mut world, mut planner) = cluster();
    let start = loop {
        hear(&mut world, &mut planner);
        let effects = planner.step(world.now, usize::MAX);
        if let Some(start) = effects.iter().find(|one| is_start(one)) {
            break start.clone();
        }
        for effect in effects {
            let done = world.apply(&effect);
            planner.done(&effect.key().unwrap(), done, world.now);
        }
        world.now += 10;
    };
    drop(world.apply(&start));
    hear(&mut world, &mut planner);
    let refused = Done::Refused { message: "exceeded quota".into(), heard: Vec::new() };
    planner.done(&start.key().unwrap(), refused, world.now);
    world.now += 2000;
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)]);
    world.finish(&mut planner);
    assert_eq!(words(&world, "a"), said("provisioned", "provisioned", false));
    assert!(world.notices.iter().all(|notice| notice.reason != "JobRefused"));
    // Written so by an earlier version.
    let key = "runtime.spinkube.dev/spin-v2";
    world.edit_node("a", |node| {
        let text = node.metadata.annotations.as_mut().unwrap().get_mut(key).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(text).unwrap();
        record["failed"] = json!({
            "operation": "install", "hash": record["applied"]["hash"], "times": 1, "at": 1000,
            "reason": "JobRefused",
        });
        *text = record.to_string();
    });
    assert_eq!(status(&mut world, &mut planner).nodes_failed, 0);
    assert_eq!(words(&world, "a"), said("provisioned", "provisioned", false), "it is there");
}

#[test]
fn any_of_several_lost_answers_may_be_that_of_a_job_that_was_made() {
    let (mut world, mut planner) = cluster();
    let (begin, mut made, mut refused) = (world.now, None, 0);
    let mut news = Vec::new();
    while made.is_none_or(|at| world.now < at + 80_000) {
        settle_but(&mut world, &mut planner, |world, effect| {
            let Effect::Start { node, .. } = effect else { return None };
            assert_eq!(node, "a", "it holds its place");
            if made.is_some() {
                refused += 1;
                let message = "exceeded quota".to_owned();
                return Some(Done::Refused { message, heard: Vec::new() });
            }
            if world.now > begin + 60_000 {
                made = Some(world.now);
                drop(world.apply(effect));
                news.extend(world.events[1].drain(..));
            }
            Some(Done::Failed(Vec::new()))
        });
        world.now += 2000;
    }
    assert!(refused > 0 && world.now > begin + 90_000);
    world.events[1].extend(news);
    world.now += 100_000;
    world.finish(&mut planner);
    for name in ["a", "b", "c"] {
        assert_eq!(words(&world, name), said("provisioned", "provisioned", false), "{name}");
    }
}

#[test]
fn a_job_that_is_gone_has_left_nothing_to_trust_also_where_it_is_refused_the_second_time() {
    let (mut world, mut planner) = cluster();
    world.finish(&mut planner);
    let before = world.shims[SHIM].spec.clone();
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].location.push('2'));
    world.settle(&mut planner);
    let job = world.live()[0].clone();
    assert_eq!(world.identity(&job).node, "a");
    world.remove_job(&job);
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for _ in 0..300 {
        settle_but(&mut world, &mut planner, refuse);
        world.now += 2000;
        for (node, seen) in ["a", "b"].iter().zip(&mut seen) {
            seen.insert(words(&world, node));
        }
    }
    assert!(seen[0].contains(&said("failed", "failed", true)), "{seen:?}");
    assert!(seen[0].iter().all(|(word, ..)| word != "provisioned"), "half of it may be there");
    assert!(seen[1].contains(&said("provisioned", "failed", true)), "nothing was done: {seen:?}");
    world.now += 100_000;
    world.edit_shim(SHIM, |shim| shim.spec = before);
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)], "it is put right");
    world.finish(&mut planner);
    for name in ["a", "b", "c"] {
        assert_eq!(words(&world, name), said("provisioned", "provisioned", false), "{name}");
    }
}

#[test]
fn a_look_that_the_server_refuses_takes_nothing_from_a_node_and_leaves_nothing_behind() {
    let (mut world, mut planner) = cluster();
    world.finish(&mut planner);
    world.edit_node("a", |node| node.status.node_info.boot_id = "boot-2".into());
    settle_refused(&mut world, &mut planner);
    assert_eq!(words(&world, "a"), said("provisioned", "provisioned", true));
    assert_eq!(status(&mut world, &mut planner).nodes_ready, 3);
    assert!(world.live().is_empty(), "its time has not come");
    world.now += 31_000;
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Verify)]);
    world.finish(&mut planner);
    assert_eq!(words(&world, "a"), said("provisioned", "provisioned", false));
}

#[test]
fn a_refused_update_that_nobody_wants_any_more_is_forgotten() {
    let (mut world, mut planner) = cluster();
    world.finish(&mut planner);
    let before = world.shims[SHIM].spec.clone();
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].location.push('2'));
    settle_refused(&mut world, &mut planner);
    assert_eq!(words(&world, "a"), said("provisioned", "failed", true));
    let there = status(&mut world, &mut planner);
    assert_eq!((there.nodes_ready, there.nodes_failed), (3, 3), "pods can use what was there");
    world.edit_shim(SHIM, |shim| shim.spec = before);
    let there = status(&mut world, &mut planner);
    assert_eq!((there.nodes_ready, there.nodes_updated, there.nodes_failed), (3, 3, 0));
    for node in ["a", "b", "c"] {
        assert_eq!(words(&world, node), said("provisioned", "provisioned", false), "{node}");
    }
    assert!(world.live().is_empty(), "nothing was done, so nothing is undone");
}

#[test]
fn a_node_that_comes_back_after_its_uninstall_was_refused_is_as_it_was() {
    let (mut world, mut planner) = cluster();
    world.finish(&mut planner);
    let select = |world: &mut World, value: Option<&str>| {
        world.edit_node("a", |node| {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.remove("shim");
            labels.extend(value.map(|value| ("shim".to_owned(), value.to_owned())));
        });
    };
    select(&mut world, None);
    settle_refused(&mut world, &mut planner);
    assert_eq!(words(&world, "a"), said("failed", "failed", true), "it is about to go");
    select(&mut world, Some("yes"));
    let there = status(&mut world, &mut planner);
    assert_eq!((there.nodes_ready, there.nodes_updated), (3, 3));
    assert_eq!(words(&world, "a"), said("provisioned", "provisioned", false));
    assert!(world.live().is_empty());
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

#[test]
fn nothing_is_kept_of_failures_of_what_is_gone() {
    let (mut world, mut planner) = cluster();
    let mut keys = BTreeSet::new();
    settle_but(&mut world, &mut planner, |_, effect| match effect {
        Effect::Finalizers { .. } => None,
        other => {
            keys.extend(other.key());
            Some(Done::Failed(Vec::new()))
        }
    });
    assert!(keys.iter().any(|key| matches!(key, Key::Node(_))), "{keys:?}");
    let fail = |planner: &mut Planner, world: &World| {
        keys.iter().for_each(|key| planner.done(key, Done::Failed(Vec::new()), world.now));
    };
    // Told before its end is heard of, and after.
    assert_eq!(planner.paused(), keys.len());
    ["a", "b", "c"].iter().for_each(|name| world.remove_node(name));
    world.shims.clear();
    for kind in 0..4 {
        world.relist(kind, &mut planner);
    }
    hear(&mut world, &mut planner);
    assert_eq!(planner.paused(), 0);
    fail(&mut planner, &world);
    world.now += 60_000;
    planner.step(world.now, usize::MAX);
    assert_eq!(planner.paused(), 0);
}
