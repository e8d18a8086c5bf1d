//! What is promised of a Shim on many nodes: who waits for whom, and what is said of it.

use portolan_api::condition::{self, Status};
use portolan_api::shim::ShimStatus;
use portolan_shim::resolve::{Policy, Requirement};
use serde_json::{Value, json};

use super::budget::Amount;
use super::identity::Operation;
use super::plan::{Effect, Planner};
use super::settings::Settings;
use super::world::{World, label, settings, shim};

const SHIM: &str = "spin-v2";

fn rolling(most: Value) -> Value {
    json!({"type": "rolling", "rolling": {"maxUpdate": most}})
}

/// So many nodes `n00`, `n01` … and one Shim.
fn cluster(nodes: usize, rollout: Value, settings: Settings) -> (World, Planner) {
    let mut world = World { now: 1_000_000, ..World::default() };
    (0..nodes).for_each(|at| world.add_node(&format!("n{at:02}"), "amd64"));
    world.put_shim(shim(SHIM, "https://x.example/1", rollout));
    let planner = world.planner(settings);
    (world, planner)
}

fn wide() -> Settings {
    Settings { max_in_flight: Amount::Percent(100), ..settings() }
}

fn wait(world: &mut World, planner: &mut Planner, seconds: i64) {
    for step in [seconds * 1000, 1000] {
        world.now += step;
        world.settle(planner);
    }
}

fn live_nodes(world: &World) -> Vec<String> {
    world.live_operations().into_iter().map(|(node, _)| node).collect()
}

fn end(world: &mut World, node: &str, failure: Option<(&str, bool)>) {
    let live = world.live().into_iter().find(|name| world.identity(name).node == node);
    world.end(&live.expect("a Job"), failure);
}

fn word(world: &World, node: &str) -> String {
    label(&world.nodes[node], "runtime.spinkube.dev/spin-v2").unwrap_or_default()
}

fn status(world: &World) -> ShimStatus {
    world.shims[SHIM].status.clone().expect("a status")
}

fn reason(world: &World, kind: &str) -> (Status, String) {
    let status = status(world);
    let found = condition::find(&status.conditions, kind).expect("the condition");
    (found.status, found.reason.clone())
}

#[test]
fn a_rollout_that_is_paused_stays_paused_while_what_failed_is_tried_again() {
    let few = Settings { max_failed: Amount::Percent(10), ..wide() };
    let (mut world, mut planner) = cluster(20, rolling(4.into()), few);
    world.settle(&mut planner);
    end(&mut world, "n00", None);
    world.settle(&mut planner);
    assert_eq!(live_nodes(&world), ["n01", "n02", "n03", "n04"]);
    for (node, failure) in
        [("n01", Some(("X", false))), ("n02", Some(("X", false))), ("n03", None), ("n04", None)]
    {
        end(&mut world, node, failure);
    }
    wait(&mut world, &mut planner, 2);
    assert_eq!(live_nodes(&world), [""; 0]);
    assert_eq!(reason(&world, "Progressing"), (Status::False, "Paused".into()));
    wait(&mut world, &mut planner, 30);
    assert_eq!(live_nodes(&world), ["n01", "n02"], "nobody else begins");
    assert_eq!(reason(&world, "Progressing"), (Status::False, "Paused".into()));
    assert_eq!(status(&world).nodes_failed, 2, "it has not worked yet");
    end(&mut world, "n01", None);
    wait(&mut world, &mut planner, 2);
    assert_eq!(live_nodes(&world), ["n02", "n05", "n06", "n07"], "one is few enough");
}

#[test]
fn a_share_is_a_share_also_when_a_shim_is_taken_away() {
    let (mut world, mut planner) = cluster(10, rolling("50%".into()), wide());
    world.finish(&mut planner);
    world.delete_shim(SHIM);
    world.settle(&mut planner);
    assert_eq!(world.live().len(), 5);
}

#[test]
fn what_a_policy_refuses_for_some_nodes_does_not_stop_others() {
    let strict = Policy { require_digest: Requirement::Enforce, require_https: Requirement::Off };
    let strict = Settings { policy: strict, max_failed: Amount::Count(1), ..wide() };
    let (mut world, mut planner) = cluster(3, rolling(3.into()), strict);
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[1].sha256 = None);
    world.add_node("arm", "arm64");
    world.finish(&mut planner);
    wait(&mut world, &mut planner, 2);
    assert_eq!((status(&world).nodes_ready, status(&world).nodes_failed), (3, 1));
    assert_eq!(reason(&world, "Progressing"), (Status::False, "Complete".into()));
}

#[test]
fn c8_no_node_is_called_provisioned_that_lacks_the_handler_of_the_class() {
    let (mut world, mut planner) = cluster(3, rolling(1.into()), wide());
    world.finish(&mut planner);
    world.edit_shim(SHIM, |shim| shim.spec.runtime_class.handler.push('2'));
    wait(&mut world, &mut planner, 2);
    assert_eq!(world.classes["class-spin-v2"].handler, "spin-v22");
    for node in ["n00", "n01", "n02"] {
        assert_eq!(word(&world, node), "pending", "{node}");
    }
    assert_eq!(status(&world).nodes_ready, 0);
    end(&mut world, "n00", None);
    wait(&mut world, &mut planner, 2);
    assert_eq!(word(&world, "n00"), "provisioned");
    world.finish(&mut planner);
    assert_eq!(status(&world).nodes_updated, 3);
}

#[test]
fn a_node_that_is_known_to_be_broken_is_not_ready_and_is_repaired_while_others_wait() {
    let few = Settings { max_failed: Amount::Count(1), ..wide() };
    let (mut world, mut planner) = cluster(6, rolling(1.into()), few);
    world.settle(&mut planner);
    end(&mut world, "n00", None);
    world.settle(&mut planner);
    end(&mut world, "n01", Some(("X", true)));
    wait(&mut world, &mut planner, 2);
    assert_eq!(reason(&world, "Progressing"), (Status::False, "Paused".into()));
    world.edit_node("n00", |node| node.status.node_info.boot_id.push('2'));
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("n00".into(), Operation::Verify)]);
    assert_eq!(word(&world, "n00"), "provisioned", "a look changes nothing");
    end(&mut world, "n00", Some(("Drifted", false)));
    wait(&mut world, &mut planner, 2);
    assert_eq!(world.live_operations(), [("n00".into(), Operation::Install)], "it is repaired");
    assert_eq!((&*word(&world, "n00"), status(&world).nodes_ready), ("pending", 0));
}

#[test]
fn what_half_failed_is_not_ready_when_the_spec_changes() {
    let (mut world, mut planner) = cluster(2, rolling(1.into()), wide());
    world.finish(&mut planner);
    let location = |world: &mut World, to: &str| {
        world.edit_shim(SHIM, |shim| {
            shim.spec.fetch_strategy.platforms[0].location = to.to_owned();
        });
    };
    location(&mut world, "https://x.example/2");
    world.settle(&mut planner);
    end(&mut world, "n00", Some(("X", true)));
    world.edit_node("n00", |node| node.status.conditions[0].status = "False".into());
    wait(&mut world, &mut planner, 2);
    location(&mut world, "https://x.example/3");
    wait(&mut world, &mut planner, 2);
    assert_eq!((status(&world).nodes_ready, status(&world).nodes_pending), (0, 2));
}

#[test]
fn a_shim_stays_until_the_last_word_on_a_node_is_gone() {
    let (mut world, mut planner) = cluster(1, rolling(1.into()), wide());
    world.finish(&mut planner);
    world.delete_shim(SHIM);
    world.settle(&mut planner);
    end(&mut world, "n00", None);
    for kind in &mut world.events {
        kind.drain(..).for_each(|heard| planner.hear(heard));
    }
    // What is written is not answered.
    let mut all = planner.step(world.now, usize::MAX);
    for _ in 0..3 {
        world.now += 2000;
        all.extend(planner.step(world.now, usize::MAX));
    }
    assert!(all.iter().any(|effect| matches!(effect, Effect::Patch { .. })), "{all:?}");
    let early =
        |effect: &&Effect| matches!(effect, Effect::Finalizers { .. } | Effect::Class { .. });
    assert_eq!(all.iter().find(early), None);
}

#[test]
fn a_shim_goes_although_a_node_that_it_never_touched_is_being_written() {
    let (mut world, mut planner) = cluster(1, rolling(1.into()), wide());
    world.finish(&mut planner);
    let mut other = shim("other", "https://x.example/1", json!({"type": "recreate"}));
    other.spec.node_selector = Some([("other".to_owned(), "yes".to_owned())].into());
    world.put_shim(other);
    world.settle(&mut planner);
    world.add_node("z", "amd64");
    world.edit_node("z", |node| {
        let labels = node.metadata.labels.as_mut().unwrap();
        labels.remove("shim");
        labels.insert("other".into(), "yes".into());
    });
    for kind in &mut world.events {
        kind.drain(..).for_each(|heard| planner.hear(heard));
    }
    let begun = planner.step(world.now, usize::MAX);
    assert!(begun.iter().any(|effect| matches!(effect, Effect::Start { .. })), "{begun:?}");
    // Nobody answers; the node changes meanwhile.
    world.edit_node("z", |node| node.status.node_info.boot_id.push('2'));
    world.delete_shim(SHIM);
    world.finish(&mut planner);
    assert!(!world.shims.contains_key(SHIM));
}

#[test]
fn a_word_of_another_machine_is_taken_away_at_once() {
    let (mut world, mut planner) = cluster(3, rolling(1.into()), wide());
    world.finish(&mut planner);
    // Something is under way, so that nobody else begins.
    world.edit_node("n00", |node| node.status.node_info.boot_id.push('2'));
    world.settle(&mut planner);
    let old = world.nodes["n02"].clone();
    world.remove_node("n02");
    world.add_node("n02", "amd64");
    world.edit_node("n02", |node| {
        node.metadata.annotations = old.metadata.annotations.clone();
        node.metadata.labels = old.metadata.labels.clone();
    });
    world.settle(&mut planner);
    assert_eq!(live_nodes(&world), ["n00"]);
    assert_eq!(word(&world, "n02"), "");
}

#[test]
fn what_could_not_be_taken_away_is_told_whatever_else_is() {
    let (mut world, mut planner) = cluster(2, rolling(2.into()), wide());
    world.add_node("r", "riscv64");
    world.finish(&mut planner);
    world.edit_node("n00", |node| {
        node.metadata.labels.as_mut().unwrap().remove("shim");
    });
    world.settle(&mut planner);
    end(&mut world, "n00", Some(("HostTrouble", false)));
    wait(&mut world, &mut planner, 2);
    assert_eq!(reason(&world, "Degraded"), (Status::True, "NodesFailed".into()));
}
