//! What people are told of a Shim: conditions of its RuntimeClass, and Events.

use std::collections::BTreeMap;

use portolan_api::condition::{self, Status};
use portolan_api::shim::ShimSpec;
use serde_json::json;

use super::plan::{About, Planner};
use super::world::{World, label, settings, shim};

const SHIM: &str = "spin-v2";
const CLASS: &str = "class-spin-v2";

/// A node and one Shim, nothing done yet.
fn cluster() -> World {
    let mut world = World { now: 1_000_000, ..World::default() };
    world.add_node("a", "amd64");
    world.put_shim(shim(SHIM, "https://x.example/1", json!({"type": "recreate"})));
    world
}

/// Every Job works; and the status is written, which is once a second at most.
fn finish(world: &mut World, planner: &mut Planner) {
    world.finish(planner);
    for _ in 0..2 {
        world.now += 1000;
        world.settle(planner);
    }
}

fn told(world: &World, kind: &str) -> (Status, String, String) {
    let status = world.shims[SHIM].status.as_ref().expect("a status");
    let one = condition::find(&status.conditions, kind).expect("the condition");
    (one.status, one.reason.clone(), one.message.clone())
}

/// Warnings on the Shim, each time one was told.
fn warnings(world: &World, reason: &str) -> Vec<String> {
    let of_shim = |about: &About| matches!(about, About::Shim { name, .. } if name == SHIM);
    let all = world.notices.iter().filter(|one| of_shim(&one.about) && one.warning);
    all.filter(|one| one.reason == reason).map(|one| one.note.clone()).collect()
}

#[test]
fn a_class_of_somebody_else_is_a_conflict_until_it_is_gone() {
    let mut world = cluster();
    let theirs = json!({"metadata": {"name": CLASS}, "handler": "theirs"});
    world.put_class(serde_json::from_value(theirs).unwrap());
    let mut planner = world.planner(settings());
    finish(&mut world, &mut planner);
    let (status, reason, message) = told(&world, "RuntimeClassReady");
    assert_eq!((status, &*reason), (Status::False, "Conflict"));
    assert!(message.contains("belongs to nobody"), "{message}");
    assert_eq!(warnings(&world, "Conflict"), [message], "it is told once");
    assert_eq!(world.classes[CLASS].handler, "theirs", "it is left alone");
    assert_eq!(told(&world, "Available").1, "NoRuntimeClass");
    // Nodes are not held up by it.
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("provisioned"));
    world.remove_class(CLASS);
    finish(&mut world, &mut planner);
    assert_eq!(told(&world, "RuntimeClassReady").0, Status::True);
    assert_eq!(told(&world, "Available").0, Status::True);
    assert_eq!(world.classes[CLASS].handler, SHIM);
}

#[test]
fn a_class_that_somebody_changed_is_put_right_by_a_patch() {
    let mut world = cluster();
    let mut planner = world.planner(settings());
    finish(&mut world, &mut planner);
    let made = world.classes[CLASS].clone();
    let mut changed = made.clone();
    changed.scheduling.get_or_insert_default().node_selector =
        Some(BTreeMap::from([("elsewhere".to_owned(), "yes".to_owned())]));
    world.put_class(changed);
    finish(&mut world, &mut planner);
    let now = &world.classes[CLASS];
    assert_eq!(now.scheduling, made.scheduling);
    assert_eq!(now.metadata.uid, made.metadata.uid, "it is the same class");
    assert_eq!(told(&world, "RuntimeClassReady").0, Status::True);
}

#[test]
fn what_deserves_a_look_in_a_shim_is_told_once_for_each_spec() {
    let mut world = cluster();
    world.edit_shim(SHIM, |shim| {
        shim.spec.fetch_strategy.kind = Some("anonymousHttp".into());
        let platform = &mut shim.spec.fetch_strategy.platforms[0];
        platform.sha256 = None;
        platform.location = "http://x.example/1?signature=secret".into();
    });
    let mut planner = world.planner(settings());
    finish(&mut world, &mut planner);
    // Who comes after it tells nothing again.
    let mut planner = world.planner(settings());
    finish(&mut world, &mut planner);
    let unsafe_ = warnings(&world, "ArtifactNotSafe");
    assert_eq!(unsafe_.len(), 2, "{unsafe_:?}");
    for (told, word) in unsafe_.iter().zip(["has no sha256", "is plain http"]) {
        assert!(told.starts_with("http://x.example/1 ") && told.contains(word), "{told}");
    }
    assert_eq!(warnings(&world, "Deprecated").len(), 1);
    world.edit_shim(SHIM, |shim| {
        shim.spec.fetch_strategy.kind = None;
        shim.spec.fetch_strategy.platforms[0].location = "https://x.example/2".into();
    });
    finish(&mut world, &mut planner);
    let counts = ["ArtifactNotSafe", "Deprecated"].map(|one| warnings(&world, one).len());
    assert_eq!(counts, [3, 1], "what is still so is told of the new spec");
}

/// Every node refused it after a Job: now it is told at once, and nobody is asked.
#[test]
fn what_no_node_takes_is_told_and_makes_no_job() {
    type Edit = fn(&mut ShimSpec);
    let edits: [(Edit, &str); 3] = [
        (|spec| spec.runtime_class.handler = "runc".into(), "BadRequest"),
        (
            |spec| {
                let options = [("TypeUrl".to_owned(), "text".to_owned())];
                spec.containerd_runtime_options = Some(options.into());
            },
            "BadRequest",
        ),
        (
            |spec| {
                spec.fetch_strategy.platforms[0].location = "https://me:secret@x.example/1".into();
            },
            "LocationNotAllowed",
        ),
    ];
    for (edit, reason) in edits {
        let mut world = cluster();
        let good = world.shims[SHIM].spec.clone();
        world.edit_shim(SHIM, |shim| edit(&mut shim.spec));
        let mut planner = world.planner(settings());
        finish(&mut world, &mut planner);
        assert!(world.jobs.is_empty(), "{reason}");
        let status = world.shims[SHIM].status.clone().unwrap();
        assert_eq!((status.nodes_failed, &*status.failures[0].reason), (1, reason));
        let told = serde_json::to_string(&(&status, warnings(&world, "NodesFailed"))).unwrap();
        assert!(!told.contains("secret"), "{told}");
        world.edit_shim(SHIM, |shim| shim.spec = good);
        finish(&mut world, &mut planner);
        assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("provisioned"));
    }
}
