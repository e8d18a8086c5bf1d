//! From an image in a registry to a workload in a microVM, with nothing in between faked: the
//! agent, its API, our root and scratch disks, our init, QEMU and Debian's kernel.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

use std::path::Path;
use std::time::Duration;

use portolan_e2e::{
    Agent, AgentRoot, Entry, Layer, Mount, Registry, RegistryKind, architecture, digest,
    machine_config, ours, tool, wait_for, write_image,
};
use serde_json::{Value, json};

/// Software emulation on a busy machine takes a while.
const BOOT: Duration = Duration::from_secs(240);

/// A registry with one image: busybox as a user of its own.
struct Image {
    registry: Registry,
    digest: String,
}

impl Image {
    fn new(dir: &Path) -> Self {
        let busybox = std::fs::read(tool("busybox")).unwrap();
        let mut layer = Layer::new();
        for folder in ["bin", "etc", "tmp"] {
            layer =
                layer.with(Entry::dir(folder).mode(if folder == "tmp" { 0o1777 } else { 0o755 }));
        }
        layer = layer.with(Entry::file("bin/busybox", &busybox).mode(0o755));
        for applet in ["sh", "cat", "id", "ls", "mount", "sleep", "hostname", "pwd", "sync", "grep"]
        {
            layer = layer.with(Entry::symlink(&format!("bin/{applet}"), "busybox"));
        }
        let passwd = b"root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n";
        let group = b"app:x:1000:\nstaff:x:50:app\n";
        layer = layer.with(Entry::file("etc/passwd", passwd).mode(0o644));
        layer = layer.with(Entry::file("etc/group", group).mode(0o644));
        let config = json!({
            "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["exit 42"], "User": "app",
            "WorkingDir": "/work", "Env": ["PATH=/bin", "GREETING=image"],
        });
        let layout = write_image(dir, &[layer], config).unwrap();
        let registry = RegistryKind::Embedded.start().unwrap();
        let reference = format!("{}/app:1", registry.address);
        ours(&["image", "copy", &layout, &reference]);
        let digest = digest(&reference);
        Self { registry, digest }
    }

    fn spec(&self, script: &str, desired: &str) -> Value {
        json!({
            "image": {
                "repository": format!("{}/app", self.registry.address),
                "resolved_digest": self.digest, "os": "linux", "arch": architecture(),
            },
            "ephemeral_disk_bytes": 64 << 20,
            "args": [script],
            "env": {"GREETING": "spec"},
            "desired_state": desired,
        })
    }
}

fn put(agent: &Agent, spec: &Value) {
    let answer = agent.request("PUT", "/v1/instances/web-1", Some(spec)).unwrap();
    assert!(answer.status < 300, "{answer:?}");
}

fn wait_phase(agent: &Agent, phase: &str) -> Value {
    agent.reaches("web-1", phase).unwrap()
}

fn console(root: &Path) -> String {
    std::fs::read_to_string(root.join("instances/web-1/console.log")).unwrap()
}

#[test]
fn an_image_from_a_registry_boots_and_what_it_writes_is_in_its_scratch_disk() {
    let dir = tempfile::tempdir().unwrap();
    let image = Image::new(&dir.path().join("image"));
    let root = AgentRoot(dir.path().join("root"));
    // KVM where a guest boots on it, software emulation else.
    let agent = Agent::start(&root, &machine_config("auto")).unwrap();
    let script = "id; pwd; hostname; echo greeting $GREETING; ls /tmp; \
                  grep -c . /sys/block/vd?/ro >/dev/null; cat /sys/block/vd?/ro; mount | grep ' / '; \
                  echo written > /tmp/mark; cat /tmp/mark";
    for boot in 1..=2 {
        put(&agent, &image.spec(script, "running"));
        let ended = wait_phase(&agent, "stopped");
        assert_eq!(ended["exit"]["code"], 0, "{ended}");
        assert_eq!(ended["cached"], boot == 2, "the second start finds the root disk");
        let console = console(&root);
        let lines: Vec<&str> = console.lines().collect();
        let at = |text: &str| {
            let found = lines.iter().position(|line| line.contains(text));
            found.unwrap_or_else(|| panic!("no {text:?} in {console}"))
        };
        at("uid=1000(app) gid=1000(app) groups=50(staff)");
        at("/work");
        at("web-1");
        // Nothing is listed between these two: each start has an empty scratch disk.
        let greeting = at("greeting spec");
        let disks = &lines[greeting + 1..greeting + 3];
        assert!(disks.contains(&"1") && disks.contains(&"0"), "one of two is read-only: {console}");
        at("overlay on / type overlay");
        at("written");
        at("workload exited with status 0");
        let scratch = Mount::read_only(&root.join("instances/web-1/scratch.ext4")).unwrap();
        assert_eq!(std::fs::read_to_string(scratch.join("upper/tmp/mark")).unwrap(), "written\n");
        drop(scratch);
        // It has run; wanted stopped and wanted running again is a second start.
        put(&agent, &image.spec(script, "stopped"));
        wait_for("the instance to be settled", BOOT, || {
            let state = std::fs::read_to_string(root.join("instances/web-1/state.json"))?;
            anyhow::ensure!(!state.contains("settled"), "{state}");
            Ok(())
        })
        .unwrap();
    }
    let answer = agent.request("DELETE", "/v1/instances/web-1", None).unwrap();
    assert!(answer.status < 300, "{answer:?}");
    assert_eq!(std::fs::read_dir(root.join("instances")).unwrap().count(), 0);
}

#[test]
fn a_microvm_outlives_its_agent_and_ends_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let image = Image::new(&dir.path().join("image"));
    let root = AgentRoot(dir.path().join("root"));
    let script = "trap 'echo asked to end; exit 3' TERM; echo up; while :; do sleep 1; done";
    let agent = Agent::start(&root, &machine_config("tcg")).unwrap();
    put(&agent, &image.spec(script, "running"));
    wait_phase(&agent, "running");
    let report = || std::fs::read_to_string(root.join("instances/web-1/running.json")).unwrap();
    let machine = report();
    // Dropped, it is killed.
    drop(agent);
    let agent = Agent::start(&root, &machine_config("tcg")).unwrap();
    wait_phase(&agent, "running");
    assert_eq!(report(), machine, "the same machine");
    wait_for("the workload's first word", BOOT, || {
        anyhow::ensure!(console(&root).contains("up\n"), console(&root));
        Ok(())
    })
    .unwrap();
    put(&agent, &image.spec(script, "stopped"));
    let stopped = wait_phase(&agent, "stopped");
    assert_eq!(stopped["exit"]["code"], 3, "{stopped}");
    assert!(console(&root).contains("asked to end"));
    let answer = agent.request("DELETE", "/v1/instances/web-1", None).unwrap();
    assert!(answer.status < 300, "{answer:?}");
}
