//! Looks at what is there: when they are made, and what is made of them.

use std::num::NonZeroI64;

use portolan_api::shim::ShimStatus;
use portolan_shim::resolve::{Policy, Requirement};
use serde_json::json;

use super::budget::Amount;
use super::identity::Operation;
use super::plan::Planner;
use super::settings::Settings;
use super::world::{World, label, settings, shim};

const SHIM: &str = "spin-v2";

/// Nodes `a` and `b`, one Shim, which is installed on both, and room for one node at once.
fn installed() -> (World, Planner) {
    let mut world = World { now: 1_000_000, ..World::default() };
    ["a", "b"].iter().for_each(|name| world.add_node(name, "amd64"));
    world.put_shim(shim(SHIM, "https://x.example/1", json!({"type": "recreate"})));
    let mut planner = world.planner(one_at_once());
    world.finish(&mut planner);
    assert_eq!(words(&world, "a"), ["provisioned", "provisioned"]);
    (world, planner)
}

fn one_at_once() -> Settings {
    Settings { max_in_flight: Amount::Count(1), ..settings() }
}

/// The label that the class selects, and the bare one.
fn words(world: &World, node: &str) -> [String; 2] {
    ["runtime.spinkube.dev/spin-v2", SHIM]
        .map(|key| label(&world.nodes[node], key).unwrap_or_default())
}

fn wait(world: &mut World, planner: &mut Planner, seconds: i64) -> ShimStatus {
    for step in [seconds * 1000, 1000] {
        world.now += step;
        world.settle(planner);
    }
    world.shims[SHIM].status.clone().expect("a status")
}

fn boot(world: &mut World, planner: &mut Planner, node: &str) {
    world.edit_node(node, |node| node.status.node_info.boot_id.push('x'));
    world.settle(planner);
}

/// Ends the only Job.
fn end(world: &mut World, planner: &mut Planner, failure: Option<(&str, bool)>) -> ShimStatus {
    let live = world.live();
    assert_eq!(live.len(), 1, "{live:?}");
    world.end(&live[0], failure);
    wait(world, planner, 2)
}

#[test]
fn a_look_that_could_not_be_made_says_nothing_of_the_node_and_is_made_later() {
    let (mut world, mut planner) = installed();
    boot(&mut world, &mut planner, "a");
    assert_eq!(world.live_operations(), [("a".into(), Operation::Verify)]);
    let status = end(&mut world, &mut planner, Some(("ImagePullBackOff", false)));
    assert_eq!((status.nodes_ready, status.nodes_failed), (2, 0));
    assert_eq!(words(&world, "a"), ["provisioned", "provisioned"], "nobody looked");
    assert!(world.live().is_empty(), "its time has not come");
    assert!(world.notices.iter().any(|notice| notice.reason == "ImagePullBackOff"));
    // Another process knows of it, too.
    planner = world.planner(one_at_once());
    wait(&mut world, &mut planner, 20);
    assert!(world.live().is_empty());
    wait(&mut world, &mut planner, 10);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Verify)]);
    // It never ends.
    wait(&mut world, &mut planner, 721);
    assert_eq!(words(&world, "a"), ["provisioned", "provisioned"]);
    assert!(world.live().is_empty(), "the pause is longer now");
    wait(&mut world, &mut planner, 60);
    let status = end(&mut world, &mut planner, Some(("Drifted", false)));
    assert_eq!(status.nodes_ready, 1);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)]);
    world.finish(&mut planner);
    assert_eq!(words(&world, "a"), ["provisioned", "provisioned"]);
}

#[test]
fn what_was_there_before_an_update_that_failed_for_good_is_looked_at_after_a_boot() {
    let (mut world, mut planner) = installed();
    world.edit_shim(SHIM, |shim| {
        shim.spec.fetch_strategy.platforms[0].sha256 = Some("5".repeat(64));
    });
    world.settle(&mut planner);
    for _ in ["a", "b"] {
        end(&mut world, &mut planner, Some(("DigestMismatch", true)));
    }
    assert_eq!(words(&world, "a"), ["provisioned", "failed"]);
    for (failure, word, ready) in [
        (None, "provisioned", 2),
        (Some(("ImagePullBackOff", false)), "provisioned", 2),
        (Some(("Drifted", false)), "failed", 1),
    ] {
        boot(&mut world, &mut planner, "a");
        wait(&mut world, &mut planner, 60);
        assert_eq!(world.live_operations(), [("a".into(), Operation::Verify)], "{failure:?}");
        assert_eq!(words(&world, "a"), ["provisioned", "failed"], "while it is looked at");
        let status = end(&mut world, &mut planner, failure);
        assert_eq!(words(&world, "a"), [word, "failed"], "{failure:?}");
        assert_eq!((status.nodes_ready, status.nodes_failed), (ready, 2), "{failure:?}");
        assert!(world.live().is_empty(), "what failed for good is not tried again");
    }
}

#[test]
fn what_is_there_of_a_shim_that_a_node_may_not_have_any_more_is_looked_at_after_a_boot() {
    for unsupported in [false, true] {
        let (mut world, _) = installed();
        let policy =
            Policy { require_digest: Requirement::Enforce, require_https: Requirement::Warn };
        let mut planner = world.planner(Settings { policy, ..one_at_once() });
        world.edit_shim(SHIM, |shim| {
            let platforms = &mut shim.spec.fetch_strategy.platforms;
            match unsupported {
                true => drop(platforms.remove(0)),
                false => platforms[0].sha256 = None,
            }
        });
        let status = wait(&mut world, &mut planner, 2);
        assert_eq!((status.nodes_unsupported, status.nodes_failed) == (2, 0), unsupported);
        assert_eq!(words(&world, "a"), ["provisioned", "provisioned"]);
        boot(&mut world, &mut planner, "a");
        assert_eq!(world.live_operations(), [("a".into(), Operation::Verify)]);
        end(&mut world, &mut planner, None);
        assert_eq!(words(&world, "a"), ["provisioned", "provisioned"]);
        boot(&mut world, &mut planner, "a");
        end(&mut world, &mut planner, Some(("Drifted", false)));
        assert_eq!(words(&world, "a"), ["pending", "pending"]);
        assert_eq!(words(&world, "b"), ["provisioned", "provisioned"]);
        assert!(world.live().is_empty(), "nothing is put there that may not be");
    }
}

#[test]
fn a_node_that_waits_for_its_update_is_looked_at_first() {
    let (mut world, mut planner) = installed();
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].location.push('2'));
    world.settle(&mut planner);
    boot(&mut world, &mut planner, "b");
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)]);
    end(&mut world, &mut planner, None);
    assert_eq!(world.live_operations(), [("b".into(), Operation::Verify)]);
    // It is let go to its end by another change, too.
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].location.push('3'));
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("b".into(), Operation::Verify)]);
    world.finish(&mut planner);
    let status = wait(&mut world, &mut planner, 2);
    assert_eq!((status.nodes_ready, status.nodes_updated), (2, 2));
}

/// What somebody breaks without a boot is found within a day and a half, and not by looking at all nodes at once.
#[test]
fn each_node_is_looked_at_once_in_a_while_and_by_turns() {
    const EVERY: i64 = 86_400;
    let settings = || Settings { look_every: NonZeroI64::new(EVERY), ..one_at_once() };
    let (mut world, _) = installed();
    let began = world.now / 1000;
    let mut planner = world.planner(settings());
    wait(&mut world, &mut planner, EVERY / 2 - 60);
    assert!(world.live().is_empty(), "no look comes soon after an install");
    let mut looks = Vec::new();
    while looks.len() < 6 {
        // Another process knows when it was.
        planner = world.planner(settings());
        world.settle(&mut planner);
        let writes = world.writes;
        world.now = planner.next().expect("a turn");
        world.settle(&mut planner);
        let live = world.live_operations();
        let [(node, Operation::Verify)] = &live[..] else { panic!("{live:?}") };
        assert_eq!(words(&world, node), ["provisioned", "provisioned"], "while it is looked at");
        looks.push((node.clone(), world.now / 1000 - began));
        world.end(&world.live()[0], None);
        wait(&mut world, &mut planner, 2);
        assert_eq!([world.writes[0] - writes[0], world.writes[1] - writes[1]], [2, 1]);
    }
    for node in ["a", "b"] {
        let times: Vec<i64> =
            looks.iter().filter(|(one, _)| one == node).map(|(_, at)| *at).collect();
        assert!((EVERY / 2 - 60..=EVERY / 2 * 3).contains(&times[0]), "{looks:?}");
        for pair in times.windows(2) {
            assert!(
                (pair[1] - pair[0] - EVERY).abs() < 10,
                "at the same time of the day: {looks:?}"
            );
        }
    }
    // What it finds is put right.
    world.now = planner.next().expect("a turn");
    world.settle(&mut planner);
    let (node, _) = world.live_operations()[0].clone();
    end(&mut world, &mut planner, Some(("Drifted", false)));
    assert_eq!(world.live_operations(), [(node, Operation::Install)]);
    world.finish(&mut planner);
    // Nobody looks where nobody wants it.
    let mut planner = world.planner(one_at_once());
    wait(&mut world, &mut planner, 3 * EVERY);
    assert!(world.live().is_empty() && planner.next().is_none());
}

#[test]
fn nobody_is_woken_for_a_job_that_is_over() {
    let (mut world, mut planner) = installed();
    wait(&mut world, &mut planner, 2);
    let looked = planner.looked;
    assert_eq!(planner.next(), None, "nothing is waited for");
    for _ in 0..60 {
        wait(&mut world, &mut planner, 60);
    }
    assert_eq!(planner.looked, looked);
    // One that goes on is looked at when it is late.
    boot(&mut world, &mut planner, "a");
    let late = planner.next().expect("a time");
    assert!(late > world.now + 600_000, "{late}");
    world.now = late;
    world.settle(&mut planner);
    assert!(world.live().is_empty(), "it is ended");
}
