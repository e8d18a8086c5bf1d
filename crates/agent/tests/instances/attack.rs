//! What nobody should do to instances, and somebody will: files changed by hand, disks that are
//! full or elsewhere, many clients that want different things at once.

use std::time::Duration;

use portolan_agent::api::Phase;
use portolan_agent::reason::Reason;
use serde_json::{Value, json};

use crate::crash::{Agent, until};
use crate::firecracker::violations;
use crate::skip::skip;
use crate::support::{Host, id, names, spec, spec_of, wait, wait_phase, wait_quiet};

/// The pool of scratch disks on a file system of its own.
#[tokio::test(flavor = "multi_thread")]
async fn instances_on_another_file_system_than_the_root_can_be_deleted() {
    use std::os::unix::fs::MetadataExt as _;

    let dir = tempfile::tempdir().unwrap();
    let Ok(pool) = tempfile::tempdir_in("/dev/shm") else {
        skip("there is no /dev/shm to put instances on");
        return;
    };
    let device = |path: &std::path::Path| std::fs::metadata(path).unwrap().dev();
    if device(dir.path()) == device(pool.path()) {
        skip("/dev/shm is the file system of temporary directories");
        return;
    }
    std::os::unix::fs::symlink(pool.path(), dir.path().join("instances")).unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    instances.put(id("a"), spec(&["exit", "0"], "running")).await.unwrap();
    wait_phase(&instances, "a", Phase::Stopped).await;
    assert!(instances.delete(&id("a")).await.unwrap());
    assert!(names(pool.path()).is_empty(), "{:?}", names(pool.path()));
    // What a killed agent left half removed goes at the next start.
    std::fs::create_dir_all(pool.path().join(".deleted-abc/x")).unwrap();
    assert_eq!(host.open(|_| {}).count(), 0);
    assert!(names(pool.path()).is_empty());
}

/// Deleting is how a full disk gets room again.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_starts_are_refused_as_such_and_instances_can_be_deleted() {
    if !rustix::process::geteuid().is_root() {
        skip("it mounts a small tmpfs, which needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let pool = Pool::mount(&dir.path().join("instances"));
    let instances = host.open(|_| {});
    for name in ["old", "new"] {
        instances.put(id(name), spec(&["exit", "0"], "stopped")).await.unwrap();
        wait_phase(&instances, name, Phase::Stopped).await;
    }
    pool.fill();
    // No room for a scratch disk, and said so.
    let put = instances.put(id("new"), spec(&["exit", "0"], "running")).await;
    if put.is_ok() {
        let failed = wait_phase(&instances, "new", Phase::Failed).await;
        assert_eq!(failed.reason, Some(Reason::DiskFull), "{failed:?}");
    }
    assert!(instances.put(id("third"), spec(&["exit", "0"], "running")).await.is_err());
    assert!(!names(&pool.0).contains("third"), "nothing was changed, as was said");
    for name in ["old", "new"] {
        assert!(instances.delete(&id(name)).await.unwrap(), "{name}");
    }
    assert_eq!(names(&pool.0), ["filler".to_owned()].into());
}

/// A small file system, gone when dropped.
struct Pool(std::path::PathBuf);

impl Pool {
    fn mount(at: &std::path::Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let args = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
        let status = std::process::Command::new("mount").args(args).arg(at).status().unwrap();
        assert!(status.success());
        Self(at.to_owned())
    }

    /// To the last byte.
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[7; 512]).is_ok() {}
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The agent was killed after it took note that an instance should stop, and before it had.
#[tokio::test(flavor = "multi_thread")]
async fn a_phase_that_a_killed_agent_left_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    for (name, phase, desired) in [
        ("fetching", "fetching", "stopped"),
        ("starting", "starting", "stopped"),
        ("running", "running", "stopped"),
        ("pending", "pending", "stopped"),
        ("again", "running", "running"),
    ] {
        let folder = host.dir(name);
        std::fs::create_dir_all(&folder).unwrap();
        let spec = serde_json::to_vec(&spec(&["exit", "0"], desired)).unwrap();
        std::fs::write(folder.join("spec.json"), spec).unwrap();
        let state = json!({"created_at": "2026-01-01T00:00:00Z", "phase": phase});
        std::fs::write(folder.join("state.json"), state.to_string()).unwrap();
    }
    let instances = host.open(|_| {});
    for name in ["fetching", "starting", "running", "pending", "again"] {
        wait_phase(&instances, name, Phase::Stopped).await;
    }
    let phases = instances.phases();
    assert_eq!(phases.get(&Phase::Stopped), Some(&5), "{phases:?}");
    assert!(phases.iter().all(|(phase, n)| *phase == Phase::Stopped || *n == 0), "{phases:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_was_changed_by_hand_is_checked_before_it_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    for (name, field, value) in [
        ("cpus", "vcpus", json!(0)),
        ("scratch", "ephemeral_disk_bytes", json!(u64::MAX)),
        ("memory", "memory_mib", json!(1)),
    ] {
        let mut changed = serde_json::to_value(spec(&["exit", "0"], "running")).unwrap();
        changed[field] = value;
        std::fs::create_dir_all(host.dir(name)).unwrap();
        std::fs::write(host.dir(name).join("spec.json"), changed.to_string()).unwrap();
    }
    let instances = host.open(|_| {});
    for (name, field) in
        [("cpus", "vcpus"), ("scratch", "ephemeral_disk_bytes"), ("memory", "memory_mib")]
    {
        let failed = wait_phase(&instances, name, Phase::Failed).await;
        assert_eq!(failed.reason, Some(Reason::InvalidSpec), "{failed:?}");
        assert!(failed.message.unwrap().contains(field));
    }
    assert!(host.processes().is_empty());
}

/// Its machine runs, its spec is gone: its disk must stay.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_spec_was_destroyed_still_holds_the_disk_it_runs_from() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    started_by_another(&host).await;
    std::fs::write(host.dir("a").join("spec.json"), "{ \"image\"").unwrap();
    let second = host.open(|_| {});
    let held = second.held();
    assert_eq!(held.len(), 1, "{held:?}");
    assert!(held[0].machine && held[0].digest.is_none(), "{held:?}");
    assert_eq!(held[0].rootdisk_key.as_deref(), Some("0".repeat(64).as_str()));
    assert!(second.delete(&id("a")).await.unwrap());
    wait_quiet(&host).await;
}

/// A folder that somebody removed takes its instance along, whenever that was.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_folder_was_removed_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    instances.put(id("a"), spec(&["exit", "0"], "running")).await.unwrap();
    wait_phase(&instances, "a", Phase::Stopped).await;
    host.wait_unpinned().await;
    std::fs::remove_dir_all(host.dir("a")).unwrap();
    assert!(instances.delete(&id("a")).await.unwrap());
    assert!(instances.get(&id("a")).is_none());
    assert!(names(&host.root.join("instances")).is_empty());
}

/// Sixteen clients who each want something else, about three names.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_put_and_delete_at_once_leave_one_truth() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|config| config.stop_timeout.0 = Duration::from_millis(200));
    let clients: Vec<_> = (0..16_usize)
        .map(|client| {
            let instances = instances.clone();
            tokio::spawn(async move {
                for round in 0..12_usize {
                    let name = id(["a", "b", "c"][(client + round) % 3]);
                    match (client * 7 + round * 3) % 5 {
                        0 => drop(instances.delete(&name).await),
                        1 => drop(instances.put(name, spec(&["serve"], "stopped")).await),
                        2 => drop(instances.put(name, spec_of("never", &["x"], "running")).await),
                        3 => drop(instances.put(name, spec(&["serve"], "running")).await),
                        _ => drop(instances.get(&name)),
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    // What is wanted last is what comes.
    for name in ["a", "b", "c"] {
        while instances.put(id(name), spec(&["serve"], "running")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        wait(&instances, name, |now| {
            now.phase == Phase::Running && now.spec.command == Some(vec!["serve".to_owned()])
        })
        .await;
    }
    let counted: u64 = instances.phases().values().sum();
    assert_eq!((counted, instances.count()), (3, 3));
    for name in ["a", "b", "c"] {
        assert!(instances.delete(&id(name)).await.unwrap());
    }
    wait_quiet(&host).await;
    host.wait_unpinned().await;
    assert!(names(&host.root.join("instances")).is_empty());
    assert_eq!(violations(&host.root), "");
}

/// Whoever reports hears of every change when it happens, and of nothing when nothing does.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_told_when_they_happen_and_not_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    let changes = instances.changes();
    let mut listener = changes.subscribe();
    listener.mark_unchanged();
    instances.put(id("a"), spec(&["exit", "0"], "running")).await.unwrap();
    assert!(listener.has_changed().unwrap());
    wait_phase(&instances, "a", Phase::Stopped).await;
    host.wait_unpinned().await;
    listener.mark_unchanged();
    instances.put(id("a"), spec(&["exit", "0"], "running")).await.unwrap();
    assert!(instances.get(&id("a")).is_some());
    assert!(!listener.has_changed().unwrap(), "the same again is nothing new");
    instances.delete(&id("a")).await.unwrap();
    assert!(listener.has_changed().unwrap());
}

/// A machine for the instance `a`, whose agent is no more.
async fn started_by_another(host: &Host) {
    let mut agent = Agent::start(&host.root);
    agent.say("run a serve");
    until(|| {
        let state = std::fs::read_to_string(host.dir("a").join("state.json"));
        state.is_ok_and(|text| text.contains("\"running\""))
    })
    .await;
    agent.kill();
}

/// The state on disk is what a hand made of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_changed_by_hand_starts_nothing_twice() {
    for (field, value) in [
        ("phase", json!("stopped")),
        ("phase", json!("dancing")),
        ("started", json!("another")),
        ("created_at", json!("yesterday")),
        ("settled", json!("another")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        started_by_another(&host).await;
        let machine = host.vmm("a");
        let path = host.dir("a").join("state.json");
        let mut state: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        state[field] = value.clone();
        std::fs::write(&path, state.to_string()).unwrap();
        let instances = host.open(|_| {});
        let now = wait(&instances, "a", |now| {
            now.phase == Phase::Running && (field != "started" || host.vmm("a") != machine)
        })
        .await;
        assert!(now.reason.is_none(), "{field} {value}: {now:?}");
        // A machine of another spec than the one that is wanted is replaced; none is doubled.
        assert_eq!(host.vmm("a") == machine, field != "started", "{field} {value}");
        assert!(instances.delete(&id("a")).await.unwrap());
        wait_quiet(&host).await;
        assert_eq!(violations(&host.root), "");
    }
}
