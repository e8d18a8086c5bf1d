//! One test for each defect of upstream's controller that was found by reading it, and what else is promised of one Shim.
//! C6 is in `identity`, C8 in `class`; C2, C5, C7 and C14 have a second test where their decision is made.

use std::collections::BTreeMap;

use portolan_api::condition::{self, Status};
use portolan_api::shim::{FINALIZER, ShimStatus};
use portolan_shim::resolve::{Policy, Requirement};
use serde_json::{Value, json};

use super::facts::Node;
use super::identity::Operation;
use super::plan::{Effect, Heard, Planner};
use super::settings::Settings;
use super::world::{NAMESPACE, World, label, settings, shim};

const SHIM: &str = "spin-v2";

/// A cluster with nodes `a` (amd64) and `b` (arm64) and one Shim, nothing done yet.
fn cluster() -> (World, Planner) {
    cluster_with(json!({"type": "recreate"}), settings())
}

fn cluster_with(rollout: Value, settings: Settings) -> (World, Planner) {
    let mut world = World { now: 1_000_000, ..World::default() };
    world.add_node("a", "amd64");
    world.add_node("b", "arm64");
    world.put_shim(shim(SHIM, "https://x.example/1", rollout));
    let planner = world.planner(settings);
    (world, planner)
}

fn installed() -> (World, Planner) {
    let (mut world, mut planner) = cluster();
    world.finish(&mut planner);
    assert_eq!(labels(&world), ["provisioned", "provisioned"]);
    (world, planner)
}

/// The bare label of each node.
fn labels(world: &World) -> Vec<String> {
    world.nodes.values().map(|node| label(node, SHIM).unwrap_or_default()).collect()
}

fn job_of(world: &World, node: &str) -> String {
    let live = world.live();
    live.into_iter().find(|name| world.identity(name).node == node).expect("a Job")
}

fn status(world: &World) -> ShimStatus {
    world.shims[SHIM].status.clone().expect("a status")
}

fn reason(world: &World, kind: &str) -> (Status, String) {
    reason_of(&status(world), kind)
}

fn reason_of(status: &ShimStatus, kind: &str) -> (Status, String) {
    let found = condition::find(&status.conditions, kind).expect("the condition");
    (found.status, found.reason.clone())
}

/// Lets time pass.
fn wait(world: &mut World, planner: &mut Planner, seconds: i64) {
    world.now += seconds * 1000;
    world.settle(planner);
    // Statuses are written once a second.
    world.now += 1000;
    world.settle(planner);
}

#[test]
fn c1_a_failure_stays_visible_and_is_tried_again_after_a_pause() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let first = job_of(&world, "a");
    world.end(&first, Some(("DownloadFailed", false)));
    wait(&mut world, &mut planner, 2);
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("failed"));
    assert_eq!(reason(&world, "Degraded"), (Status::True, "NodesFailed".into()));
    assert_eq!(
        (status(&world).nodes_failed, status(&world).failures[0].nodes.clone()),
        (1, vec!["a".into()])
    );
    wait(&mut world, &mut planner, 20);
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("failed"), "its time has not come");
    wait(&mut world, &mut planner, 10);
    let second = job_of(&world, "a");
    assert_ne!(first, second);
    world.finish(&mut planner);
    assert_eq!(labels(&world), ["provisioned", "provisioned"]);
    assert!(world.notices.iter().any(|notice| notice.warning && notice.reason == "DownloadFailed"));
}

#[test]
fn c2_another_url_digest_option_or_handler_installs_again() {
    for edit in [
        (|spec: &mut portolan_api::shim::ShimSpec| {
            spec.fetch_strategy.platforms[0].location.push('2')
        }) as fn(&mut _),
        |spec| spec.fetch_strategy.platforms[0].sha256 = Some("3".repeat(64)),
        |spec| {
            spec.containerd_runtime_options = Some(BTreeMap::from([("A".into(), "true".into())]))
        },
        |spec| spec.runtime_class.handler.push('2'),
    ] {
        let (mut world, mut planner) = installed();
        world.edit_shim(SHIM, |shim| edit(&mut shim.spec));
        world.settle(&mut planner);
        assert_eq!(world.live_operations()[0], ("a".into(), Operation::Install));
        assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("pending"));
        world.finish(&mut planner);
        assert_eq!(status(&world).nodes_updated, 2);
    }
}

#[test]
fn c3_a_spec_that_changes_after_a_failure_makes_a_job_of_another_name_and_no_storm() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let first = job_of(&world, "a");
    world.end(&first, Some(("DigestMismatch", true)));
    wait(&mut world, &mut planner, 2);
    let before = world.writes;
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].location.push('2'));
    wait(&mut world, &mut planner, 2);
    assert!(world.jobs.contains_key(&first), "the old one is still there");
    assert_ne!(job_of(&world, "a"), first);
    assert_eq!(world.writes[0] - before[0], 1, "one patch of the node");
    assert_eq!(world.writes[1] - before[1], 1, "one Job");
}

#[test]
fn c4_a_label_that_could_not_be_written_is_written_later() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    for name in world.live() {
        world.end(&name, None);
    }
    for kind in &mut world.events {
        kind.drain(..).for_each(|heard| planner.hear(heard));
    }
    // Every write is lost once.
    for effect in planner.step(world.now, usize::MAX) {
        if let Some(key) = effect.key() {
            planner.done(&key, super::plan::Done::Failed(Vec::new()), world.now);
        }
    }
    assert_eq!(labels(&world), ["pending", "pending"]);
    wait(&mut world, &mut planner, 1);
    assert_eq!(labels(&world), ["provisioned", "provisioned"]);
}

#[test]
fn c5_a_machine_that_comes_back_under_its_name_is_installed_again() {
    let (mut world, mut planner) = installed();
    let old: Node = world.nodes["a"].clone();
    world.remove_node("a");
    world.add_node("a", "amd64");
    // A cloud may even restore what was written on it.
    world.edit_node("a", |node| {
        node.metadata.annotations = old.metadata.annotations.clone();
        node.metadata.labels = old.metadata.labels.clone();
    });
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)]);
    world.finish(&mut planner);
    assert_eq!(status(&world).nodes_ready, 2);
}

#[test]
fn c7_a_shim_named_like_its_selector_does_not_destroy_it() {
    let mut world = World { now: 1_000_000, ..World::default() };
    world.add_node("a", "amd64");
    // The selector of these Shims is shim=yes.
    world.put_shim(shim("shim", "https://x.example/1", json!({"type": "recreate"})));
    let mut planner = world.planner(settings());
    world.finish(&mut planner);
    let node = &world.nodes["a"];
    assert_eq!(label(node, "shim").as_deref(), Some("yes"));
    assert_eq!(label(node, "runtime.spinkube.dev/shim").as_deref(), Some("provisioned"));
}

#[test]
fn c9_a_node_that_leaves_the_selector_is_cleaned() {
    let (mut world, mut planner) = installed();
    world.edit_node("a", |node| {
        node.metadata.labels.as_mut().unwrap().remove("shim");
    });
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Uninstall)]);
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("uninstall"));
    world.finish(&mut planner);
    assert_eq!(labels(&world), ["", "provisioned"]);
    assert_eq!(world.nodes["a"].metadata.annotations, Some(BTreeMap::new()));
}

#[test]
fn c10_a_shim_stays_until_every_node_is_clean_or_gone_and_its_class_goes_last() {
    let (mut world, mut planner) = installed();
    world.delete_shim(SHIM);
    wait(&mut world, &mut planner, 2);
    assert_eq!(world.live_operations().len(), 2);
    assert_eq!(reason(&world, "Progressing"), (Status::True, "Deleting".into()));
    let job = job_of(&world, "a");
    world.end(&job, None);
    wait(&mut world, &mut planner, 2);
    assert!(world.shims.contains_key(SHIM) && world.classes.len() == 1, "b is not clean");
    world.remove_node("b");
    let effects = world.settle(&mut planner);
    assert!(
        world.shims.is_empty() && world.classes.is_empty(),
        "a node that is gone is not waited for"
    );
    let order = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted);
    let class = order(|effect| matches!(effect, Effect::Class { .. }));
    let finalizer = order(|effect| matches!(effect, Effect::Finalizers { .. }));
    assert!(class.is_some() && class < finalizer);
}

#[test]
fn c11_a_job_that_is_not_ours_changes_nothing() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let name = job_of(&world, "a");
    let real = world.jobs[&name].clone();
    let mut done = real.clone();
    done.status.conditions = vec![super::facts::Condition {
        kind: "Complete".into(),
        status: "True".into(),
        ..Default::default()
    }];
    for forge in [
        (|job| job.metadata.namespace = Some("default".into())) as fn(&mut super::facts::Job),
        |job| job.metadata.name = Some("forged".into()),
        |job| job.metadata.owner_references = None,
        |job| job.spec.template.spec.node_name = "b".into(),
        |job| job.metadata.annotations = None,
    ] {
        let mut forged = done.clone();
        forge(&mut forged);
        forged.metadata.uid = Some("another".into());
        planner.hear(Heard::Job(Box::new(forged)));
        world.settle(&mut planner);
        assert_eq!(labels(&world), ["pending", "pending"]);
    }
    assert_eq!(real.metadata.namespace.as_deref(), Some(NAMESPACE));
    planner.hear(Heard::Job(Box::new(done)));
    world.settle(&mut planner);
    assert_eq!(labels(&world), ["provisioned", "pending"], "the real one counts");
}

#[test]
fn c12_a_job_whose_node_is_gone_when_it_ends_harms_nobody() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let job = job_of(&world, "a");
    world.remove_node("a");
    world.end(&job, None);
    world.settle(&mut planner);
    world.finish(&mut planner);
    assert_eq!(status(&world).nodes, 1);
}

#[test]
fn c13_nothing_is_done_before_the_finalizer_is_there() {
    let (mut world, mut planner) = cluster();
    let first = planner.step(world.now, usize::MAX);
    let [Effect::Finalizers { finalizers, .. }] = &first[..] else { panic!("{first:?}") };
    assert_eq!(finalizers, &[FINALIZER]);
    world.delete_shim(SHIM);
    assert!(world.shims.is_empty(), "whoever deletes it now leaves nothing behind");
    assert_eq!(world.writes, [0, 0, 0]);
}

#[test]
fn c14_p14_nodes_that_cannot_are_counted_and_told_and_the_others_go_on() {
    let (mut world, mut planner) = cluster();
    world.add_node("r", "riscv64");
    world.add_node("w", "amd64");
    world.edit_node("w", |node| node.status.node_info.operating_system = "windows".into());
    world.add_node("x", "amd64");
    world.edit_node("x", |node| {
        node.status.node_info.container_runtime_version = "cri-o://1".into()
    });
    world.finish(&mut planner);
    wait(&mut world, &mut planner, 2);
    assert_eq!(labels(&world), ["provisioned", "provisioned", "", "", ""]);
    let status = status(&world);
    assert_eq!((status.nodes, status.nodes_ready, status.nodes_unsupported), (5, 2, 3));
    let reasons: Vec<_> =
        status.failures.iter().map(|one| (&*one.reason, one.nodes.join(","))).collect();
    assert_eq!(reasons, [("NoPlatformMatch", "r,w".into()), ("RuntimeNotSupported", "x".into())]);
    assert_eq!(reason(&world, "Progressing"), (Status::False, "Complete".into()), "no loop");
}

#[test]
fn what_would_fail_again_is_not_tried_again_until_the_spec_changes() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let job = job_of(&world, "a");
    world.end(&job, Some(("WrongArchitecture", true)));
    world.finish(&mut planner);
    wait(&mut world, &mut planner, 100_000);
    assert_eq!(labels(&world), ["failed", "provisioned"]);
    assert!(world.live().is_empty());
    world.edit_shim(SHIM, |shim| {
        shim.spec.fetch_strategy.platforms[0].sha256 = Some("4".repeat(64))
    });
    world.finish(&mut planner);
    assert_eq!(labels(&world), ["provisioned", "provisioned"]);
}

#[test]
fn an_update_that_is_refused_leaves_pods_what_was_there_and_one_that_fails_half_way_does_not() {
    for (reason, canonical, ready, counts, available) in [
        ("DigestMismatch", "provisioned", 2, [1, 0, 1, 0], 2),
        ("WrongArchitecture", "provisioned", 2, [1, 0, 1, 0], 2),
        ("RolledBack", "failed", 1, [1, 0, 1, 0], 1),
    ] {
        let (mut world, mut planner) = installed();
        world.edit_shim(SHIM, |shim| {
            shim.spec.fetch_strategy.platforms[0].sha256 = Some("5".repeat(64));
        });
        world.settle(&mut planner);
        let job = job_of(&world, "a");
        world.end(&job, Some((reason, true)));
        wait(&mut world, &mut planner, 2);
        let node = &world.nodes["a"];
        let words = ["runtime.spinkube.dev/spin-v2", SHIM].map(|key| label(node, key).unwrap());
        assert_eq!(words, [canonical, "failed"], "{reason}");
        let status = status(&world);
        assert_eq!((status.nodes_ready, status.nodes_updated), (ready, 1), "{reason}");
        assert_eq!((status.nodes_failed, status.nodes_pending), (1, 0), "{reason}");
        assert_eq!(planner.counts(), counts, "metrics have each node once");
        assert_eq!(reason_of(&status, "Available"), (Status::True, "Installed".into()));
        let told = condition::find(&status.conditions, "Available").unwrap();
        assert!(told.message.starts_with(&available.to_string()), "{}", told.message);
        assert_eq!(reason_of(&status, "Degraded"), (Status::True, "NodesFailed".into()));
        assert_eq!(reason_of(&status, "Progressing"), (Status::False, "Complete".into()));
    }
}

/// What an operator is told to do about a failure is a setting of the controller, and not of the Shim.
#[test]
fn what_failed_for_good_is_tried_again_when_the_operator_says_something_else_of_nodes() {
    let others: [fn(&mut Settings); 6] = [
        |settings| settings.restart_command = Some("service containerd restart".into()),
        |settings| settings.install_dir = Some("/home/kubernetes/bin".into()),
        |settings| settings.config = Some("/etc/elsewhere/config.toml".into()),
        |settings| settings.distro = Some("k3s".into()),
        |settings| settings.image.push('2'),
        // Where proxies and authorities are named.
        |settings| settings.config_map = Some("proxies".into()),
    ];
    for change in others {
        let (mut world, mut planner) = cluster();
        world.settle(&mut planner);
        let job = job_of(&world, "a");
        world.end(&job, Some(("NodeNotSupported", true)));
        world.finish(&mut planner);
        let mut same = world.planner(Settings { ttl_seconds: 7, ..settings() });
        wait(&mut world, &mut same, 100_000);
        assert_eq!(world.live_operations(), [], "nothing else is said of nodes");
        let mut said = settings();
        change(&mut said);
        let mut planner = world.planner(said.clone());
        world.settle(&mut planner);
        assert_eq!(world.live_operations(), [("a".into(), Operation::Install)], "and no other");
        let job = job_of(&world, "a");
        world.end(&job, Some(("NodeNotSupported", true)));
        wait(&mut world, &mut planner, 100_000);
        assert_eq!(world.live_operations(), [], "once");
        // A record from before this was written down.
        let word = format!(",\"said\":\"{}\"", said.said_of_nodes());
        world.edit_node("a", |node| {
            let all = node.metadata.annotations.as_mut().unwrap();
            let record = all.get_mut("runtime.spinkube.dev/spin-v2").unwrap();
            assert!(record.contains(&word), "{record}");
            *record = record.replace(&word, "");
        });
        let mut planner = world.planner(settings());
        wait(&mut world, &mut planner, 100_000);
        assert_eq!(world.live_operations(), [], "it counts as the same");
    }
}

#[test]
fn a_job_runs_in_two_stages_with_the_names_that_scripts_know() {
    let (mut world, mut planner) = cluster();
    world.edit_shim(SHIM, |shim| {
        shim.spec.fetch_strategy.platforms[1].sha256 = None;
        shim.spec.containerd_runtime_options =
            Some(BTreeMap::from([("SystemdCgroup".into(), "true".into())]));
    });
    world.settle(&mut planner);
    let name = job_of(&world, "a");
    assert!(name.starts_with("a-spin-v2-install-"), "{name}");
    let job = &world.rendered[&name];
    let pod = &job["spec"]["template"]["spec"];
    let rules = json!([
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2, 4]}},
        {"action": "FailJob", "onExitCodes": {
            "containerName": "downloader", "operator": "In", "values": [5],
        }},
    ]);
    let said = &job["spec"]["podFailurePolicy"]["rules"];
    assert_eq!(said, &rules, "what would be the same again is not done four times");
    assert_eq!(job["metadata"]["labels"]["spinkube.dev/shimName"], SHIM);
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "Shim");
    assert_eq!(
        (&pod["nodeName"], &pod["automountServiceAccountToken"]),
        (&json!("a"), &json!(false))
    );
    assert_eq!(
        (&pod["hostPID"], &pod["serviceAccountName"]),
        (&json!(true), &json!("portolan-node-installer"))
    );
    let fetch = &pod["initContainers"][0];
    assert_eq!(fetch["name"], "downloader");
    let args = json!(["node", "fetch", "--assets", "/assets", "--timeout", "400"]);
    assert_eq!(fetch["args"], args);
    assert_eq!(fetch["envFrom"][0]["configMapRef"]["name"], "downloads");
    assert_eq!(fetch["env"][2], json!({"name": "SHIM_SHA256", "value": "1".repeat(64)}));
    assert_eq!(
        (&fetch["securityContext"]["runAsNonRoot"], &fetch["securityContext"]["privileged"]),
        (&json!(true), &Value::Null)
    );
    let install = &pod["containers"][0];
    assert_eq!(
        install["args"],
        json!([
            "node",
            "install",
            "--host-root",
            "/mnt/node-root",
            "--name",
            SHIM,
            "--handler",
            SHIM,
            "--assets",
            "/assets"
        ])
    );
    assert_eq!(
        install["env"][1],
        json!({"name": "RUNTIME_OPTIONS", "value": "{\"SystemdCgroup\":\"true\"}"})
    );
    assert_eq!(
        (&install["name"], &install["securityContext"]["privileged"]),
        (&json!("provisioner"), &json!(true))
    );
    let unpinned =
        &world.rendered[&job_of(&world, "b")]["spec"]["template"]["spec"]["initContainers"][0];
    assert_eq!(unpinned["env"].as_array().unwrap().len(), 2, "no digest, no variable");
    world.finish(&mut planner);
    world.delete_shim(SHIM);
    world.settle(&mut planner);
    let job = &world.rendered[&job_of(&world, "a")];
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"], Value::Null);
    assert_eq!(
        pod["containers"][0]["args"],
        json!(["node", "uninstall", "--host-root", "/mnt/node-root", "--name", SHIM])
    );
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "Node", "it outlives the Shim");
}

#[test]
fn an_install_is_three_writes_a_look_at_one_node_and_nothing_at_rest() {
    let (mut world, mut planner) = installed();
    assert_eq!(world.writes[0], 4, "two patches for each node");
    assert_eq!(world.writes[1], 2, "one Job for each node");
    wait(&mut world, &mut planner, 2);
    let looked = planner.looked;
    world.edit_node("a", |node| {
        node.metadata.labels.as_mut().unwrap().insert("zone".into(), "1".into());
    });
    let effects = world.settle(&mut planner);
    assert_eq!(effects, []);
    assert_eq!(planner.looked - looked, 1, "only that node");
    world.now += 600_000;
    assert_eq!(world.settle(&mut planner), []);
}

#[test]
fn a_thousand_nodes_and_three_shims_are_two_writes_a_job_and_a_few_looks_each() {
    let mut world = World { now: 1_000_000, ..World::default() };
    (0..1000).for_each(|at| {
        world.add_node(&format!("n{at}"), if at % 2 == 0 { "amd64" } else { "arm64" })
    });
    for name in ["x", "y", "z"] {
        world.put_shim(shim(name, "https://x.example/1", json!({"type": "recreate"})));
    }
    let all = Settings { max_in_flight: super::budget::Amount::Percent(100), ..settings() };
    let mut planner = world.planner(all);
    world.finish(&mut planner);
    // Announced, and what became of it: a third of a Job and two thirds of a write of the node for each install.
    assert_eq!(world.writes[..2], [2000, 1000]);
    assert!(planner.looked < 1000 * 6, "{} looks", planner.looked);
    let before = planner.looked;
    world.now += 600_000;
    assert_eq!(world.settle(&mut planner), []);
    assert_eq!(planner.looked, before, "nothing is looked at");
}

/// So many nodes and three Shims, everything installed.
fn fleet(nodes: usize, max_in_flight: super::budget::Amount) -> (World, Planner) {
    let mut world = World { now: 1_000_000, ..World::default() };
    (0..nodes).for_each(|at| world.add_node(&format!("n{at}"), "amd64"));
    world.put_shim(shim("x", "https://x.example/1", json!({"type": "recreate"})));
    world.put_shim(shim("y", "https://x.example/1", json!({"type": "recreate"})));
    let rolling = json!({"type": "rolling", "rolling": {"maxUpdate": "50%"}});
    world.put_shim(shim("z", "https://x.example/1", rolling));
    let mut planner = world.planner(Settings { max_in_flight, ..settings() });
    world.finish(&mut planner);
    (world, planner)
}

#[test]
fn what_a_change_costs_does_not_depend_on_how_many_nodes_there_are() {
    let all = super::budget::Amount::Percent(100);
    let [few, many] = [20, 1000].map(|nodes| {
        let (mut world, mut planner) = fleet(nodes, all);
        let before = planner.weighed();
        world.edit_node("n7", |node| {
            node.metadata.labels.get_or_insert_default().insert("zone".into(), "b".into());
        });
        assert_eq!(world.settle(&mut planner), [], "nothing is written");
        let label = planner.weighed() - before;
        // And a whole repair, with everybody else at rest.
        world.edit_node("n7", |node| node.metadata.annotations = None);
        world.finish(&mut planner);
        (label, planner.weighed() - before)
    });
    assert_eq!(few, many, "of 20 nodes and of 1000");
    assert!(few.0 <= 9, "each Shim is decided on once, taken out and counted again: {}", few.0);
}

#[test]
fn what_a_rollout_costs_grows_with_its_nodes_and_no_faster() {
    let [few, many] = [40, 800].map(|nodes| {
        let (_, planner) = fleet(nodes, super::budget::Amount::Count(20));
        planner.weighed() / nodes as u64
    });
    assert!(many <= few + few / 4, "of each node: {few} where there are 40, {many} of 800");
}

#[test]
fn what_is_over_waits_for_a_free_hand_and_not_longer_than_twenty_seconds() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let job = job_of(&world, "a");
    world.end(&job, None);
    let mut nobody_idle = |world: &mut World| {
        for kind in &mut world.events {
            kind.drain(..).for_each(|heard| planner.hear(heard));
        }
        let effects = planner.step(world.now, 0);
        for effect in &effects {
            let done = world.apply(effect);
            if let Some(key) = effect.key() {
                planner.done(&key, done, world.now);
            }
        }
        effects.iter().any(|effect| matches!(effect, Effect::Patch { .. }))
    };
    for _ in 0..19 {
        assert!(!nobody_idle(&mut world), "others go first");
        world.now += 1000;
    }
    world.now += 1000;
    assert!(nobody_idle(&mut world), "twenty seconds are enough");
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("provisioned"));
}

#[test]
fn a_boot_or_another_runtime_is_followed_by_a_look_and_drift_by_a_repair() {
    let (mut world, mut planner) = installed();
    world.edit_node("a", |node| node.status.node_info.boot_id = "boot-2".into());
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Verify)]);
    assert_eq!(labels(&world), ["provisioned", "provisioned"], "pods may go on");
    let job = job_of(&world, "a");
    world.end(&job, None);
    world.settle(&mut planner);
    assert!(world.live().is_empty(), "it agrees");
    world.edit_node("a", |node| {
        node.status.node_info.container_runtime_version = "containerd://2.0".into()
    });
    world.settle(&mut planner);
    let job = job_of(&world, "a");
    world.end(&job, Some(("Drifted", false)));
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)]);
    world.finish(&mut planner);
    assert_eq!(status(&world).nodes_updated, 2);
}

#[test]
fn rolling_goes_one_by_one_and_pauses_when_the_first_fails() {
    let rolling = json!({"type": "rolling", "rolling": {"maxUpdate": "100%"}});
    let (mut world, mut planner) = cluster_with(rolling, settings());
    for name in ["c", "d", "e"] {
        world.add_node(name, "amd64");
    }
    world.settle(&mut planner);
    assert_eq!(world.live().len(), 2, "one of each artifact first");
    let job = job_of(&world, "a");
    world.end(&job, Some(("HostTrouble", false)));
    let job = job_of(&world, "b");
    world.end(&job, None);
    wait(&mut world, &mut planner, 2);
    assert!(world.live().is_empty());
    assert_eq!(reason(&world, "Progressing"), (Status::False, "Paused".into()));
    assert_eq!(reason(&world, "Degraded"), (Status::True, "RolloutPaused".into()));
    wait(&mut world, &mut planner, 30);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)], "only what failed");
    let job = job_of(&world, "a");
    world.end(&job, None);
    wait(&mut world, &mut planner, 2);
    assert_eq!(world.live().len(), 3, "then all the others");
    world.finish(&mut planner);
    assert_eq!(reason(&world, "Progressing"), (Status::False, "Complete".into()));
}

#[test]
fn a_policy_that_is_enforced_stops_jobs_and_says_so() {
    let strict = Policy { require_digest: Requirement::Enforce, require_https: Requirement::Warn };
    let (mut world, mut planner) =
        cluster_with(json!({"type": "recreate"}), Settings { policy: strict, ..settings() });
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].sha256 = None);
    world.finish(&mut planner);
    wait(&mut world, &mut planner, 2);
    assert_eq!(labels(&world), ["", "provisioned"]);
    assert_eq!(status(&world).failures[0].reason, "DigestRequired");
}

#[test]
fn what_upstream_left_is_taken_over_and_taken_away() {
    let (mut world, mut planner) = cluster();
    world.edit_node("a", |node| {
        node.metadata.labels.as_mut().unwrap().insert(SHIM.into(), "provisioned".into());
    });
    world.edit_shim(SHIM, |shim| shim.metadata.finalizers = Some(vec![FINALIZER.into()]));
    world.settle(&mut planner);
    assert!(
        world.live_operations().contains(&("a".into(), Operation::Install)),
        "what it is nobody knows"
    );
    // Deleted before that: what upstream installed is taken away all the same.
    let (mut world, mut planner) = cluster();
    world.edit_node("a", |node| {
        node.metadata.labels.as_mut().unwrap().insert(SHIM.into(), "provisioned".into());
    });
    world.edit_shim(SHIM, |shim| shim.metadata.finalizers = Some(vec![FINALIZER.into()]));
    world.delete_shim(SHIM);
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Uninstall)]);
    world.finish(&mut planner);
    assert_eq!(labels(&world), ["", ""]);
    assert!(world.shims.is_empty());
}

#[test]
fn a_node_that_is_not_ready_is_waited_for() {
    let (mut world, mut planner) = cluster();
    world.edit_node("a", |node| node.status.conditions[0].status = "False".into());
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("b".into(), Operation::Install)]);
    world.edit_node("a", |node| node.status.conditions[0].status = "True".into());
    world.settle(&mut planner);
    assert_eq!(world.live().len(), 2);
}

#[test]
fn a_job_that_never_ends_is_given_up_and_holds_no_place() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let job = job_of(&world, "a");
    wait(&mut world, &mut planner, 600 + 121);
    assert!(!world.jobs.contains_key(&job), "it is deleted");
    assert_eq!(label(&world.nodes["a"], SHIM).as_deref(), Some("failed"));
    assert_eq!(status(&world).failures[0].reason, "NodeSilent");
}

#[test]
fn an_install_that_nobody_wants_any_more_is_ended() {
    let (mut world, mut planner) = cluster();
    world.settle(&mut planner);
    let old = job_of(&world, "a");
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].location.push('2'));
    world.settle(&mut planner);
    assert_ne!(job_of(&world, "a"), old);
    assert!(!world.jobs.contains_key(&old));
}

#[test]
fn a_spec_that_goes_back_while_the_new_one_is_installed_is_installed_again() {
    let (mut world, mut planner) = installed();
    let before = world.shims[SHIM].spec.clone();
    world.edit_shim(SHIM, |shim| shim.spec.fetch_strategy.platforms[0].location.push('2'));
    world.settle(&mut planner);
    assert_eq!(world.live_operations(), [("a".into(), Operation::Install)]);
    world.edit_shim(SHIM, |shim| shim.spec = before);
    world.settle(&mut planner);
    assert_eq!(
        world.live_operations(),
        [("a".into(), Operation::Install)],
        "how far it came nobody knows"
    );
    world.finish(&mut planner);
    wait(&mut world, &mut planner, 1);
    assert_eq!(
        (labels(&world), status(&world).nodes_updated),
        (vec!["provisioned".into(), "provisioned".into()], 2)
    );
}

#[test]
fn two_entries_for_one_platform_are_a_condition() {
    let (mut world, mut planner) = cluster();
    world.edit_shim(SHIM, |shim| {
        let mut again = shim.spec.fetch_strategy.platforms[0].clone();
        again.arch = "amd64".into();
        shim.spec.fetch_strategy.platforms.push(again);
    });
    world.finish(&mut planner);
    wait(&mut world, &mut planner, 2);
    assert_eq!(reason(&world, "Degraded"), (Status::True, "DuplicatePlatform".into()));
}
