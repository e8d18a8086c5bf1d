//! Agents that are killed at any point: nothing is lost, nothing runs twice, nothing is left.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use portolan_agent::api::Phase;
use rustix::process::{Pid, Signal, kill_process};

use crate::firecracker::violations;
use crate::support::{Host, id, names, spec, wait, wait_phase, wait_quiet};

/// Started with this variable, the test's program is an agent on that folder and does what its
/// input says, a word at a time; else the test ends it with its input.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_ends_with_its_input() {
    if let Some(root) = std::env::var_os("FAKE_AGENT") {
        agent(Path::new(&root)).await;
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _host = Host::new(dir.path());
    let mut agent = Agent::start(dir.path());
    agent.say("list");
    drop(agent.input.take());
    assert!(agent.child.wait().unwrap().success());
}

async fn agent(root: &Path) {
    let host = std::mem::ManuallyDrop::new(Host::new(root));
    let instances = host.open(|config| config.stop_timeout.0 = Duration::from_secs(5));
    while let Some(line) = next_line().await {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["run", name, argv] => {
                // What is being deleted cannot be put, which is as good.
                let _ = instances.put(id(name), spec(&[argv], "running")).await;
            }
            ["stop", name, argv] => {
                let _ = instances.put(id(name), spec(&[argv], "stopped")).await;
            }
            ["delete", name] => {
                let instances = instances.clone();
                let name = id(name);
                tokio::spawn(async move { instances.delete(&name).await });
            }
            _ => {}
        }
        let mut out = std::io::stdout();
        writeln!(out, "did {line}").and_then(|()| out.flush()).unwrap();
    }
}

async fn next_line() -> Option<String> {
    let read = || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// An agent in a process of its own.
pub(crate) struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl Agent {
    pub(crate) fn start(root: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::an_agent_ends_with_its_input", "--nocapture"])
            .env("FAKE_AGENT", root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// Says something and waits until it was done, as far as an answer to it goes.
    pub(crate) fn say(&mut self, words: &str) {
        writeln!(self.input.as_mut().unwrap(), "{words}").unwrap();
        let mut line = String::new();
        while !line.contains(&format!("did {words}")) {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the agent ended");
        }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// Waits for what another process does.
pub(crate) async fn until(so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + crate::support::PATIENCE;
    while !so() {
        assert!(std::time::Instant::now() < end, "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_outlive_their_agent_and_are_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let mut agent = Agent::start(dir.path());
    agent.say("run web serve");
    until(|| host.dir("web").join("booted").exists()).await;
    agent.kill();
    let machine = host.vmm("web");

    let instances = host.open(|_| {});
    assert_eq!(instances.held().len(), 1);
    wait_phase(&instances, "web", Phase::Running).await;
    assert_eq!(host.vmm("web"), machine, "the same machine");
    assert!(host.processes().contains(&machine));
    // Taken over, it is watched and ended like one of our own.
    instances.put(id("web"), spec(&["serve"], "stopped")).await.unwrap();
    let stopped = wait_phase(&instances, "web", Phase::Stopped).await;
    assert_eq!(stopped.exit.unwrap().code, Some(0));
    wait_quiet(&host).await;
    assert_eq!(violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_no_agent_saw_is_known_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let mut agent = Agent::start(dir.path());
    agent.say("run web serve");
    until(|| host.dir("web").join("booted").exists()).await;
    agent.kill();
    kill(host.vmm("web"));
    until(|| host.dir("web").join("ended.json").exists()).await;
    wait_quiet(&host).await;

    let instances = host.open(|_| {});
    let failed = wait_phase(&instances, "web", Phase::Failed).await;
    assert!(failed.message.unwrap().contains("was killed by signal 9"));
    host.wait_unpinned().await;
    assert_eq!(violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_its_shim_is_never_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let mut agent = Agent::start(dir.path());
    agent.say("run web serve");
    until(|| host.dir("web").join("booted").exists()).await;
    agent.kill();
    let machine = host.vmm("web");
    kill(i32::try_from(host.report("web")["shim"]["pid"].as_i64().unwrap()).unwrap());
    // A signal is sent, not yet obeyed.
    until(|| host.processes() == [machine]).await;

    let instances = host.open(|_| {});
    wait_phase(&instances, "web", Phase::Running).await;
    assert_eq!(host.processes(), [machine], "the machine itself holds the lock");
    assert!(instances.delete(&id("web")).await.unwrap());
    wait_quiet(&host).await;
    assert_eq!(violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_folder_without_a_machine_is_left_alone_until_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    // In a runtime of its own, whose end is the end of all that this agent still writes: a phase
    // is seen before it is on the disk.
    tokio::task::block_in_place(|| {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let first = host.open(|_| {});
            first.put(id("web"), spec(&["exit", "0"], "running")).await.unwrap();
            wait_phase(&first, "web", Phase::Stopped).await;
        });
    });
    // Somebody has the lock, and a report names processes that are gone.
    let lock = std::fs::File::open(host.dir("web").join("machine.lock")).unwrap();
    lock.lock().unwrap();
    std::fs::write(
        host.dir("web").join("running.json"),
        r#"{"run":"x","shim":{"pid":1,"start":0},"vmm":{"pid":1,"start":0}}"#,
    )
    .unwrap();
    std::fs::remove_file(host.dir("web").join("state.json")).unwrap();
    std::fs::remove_file(host.dir("web").join("ended.json")).unwrap();
    let instances = host.open(|_| {});
    let unsure = wait_phase(&instances, "web", Phase::Failed).await;
    assert!(unsure.message.unwrap().contains("machine.lock is locked"));
    assert!(host.processes().is_empty(), "nothing was started");
    lock.unlock().unwrap();
    // By itself.
    wait(&instances, "web", |status| status.exit.is_some()).await;
    assert_eq!(violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_killed_anywhere_lose_nothing_and_leave_nothing() {
    /// Few enough for every day; `PORTOLAN_KILLS` for more.
    const KILLS: u32 = 100;
    let kills = std::env::var("PORTOLAN_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    // A plain generator: what happens is different at every run all the same, by the machine's pace.
    let mut seed = u64::from(std::process::id()) | 1;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..kills {
        let mut agent = Agent::start(dir.path());
        for _ in 0..random(6) {
            let name = ["a", "b", "c"][usize::try_from(random(3)).unwrap()];
            let words = match random(5) {
                0 => format!("delete {name}"),
                1 => format!("stop {name} serve"),
                2 => format!("run {name} again"),
                _ => format!("run {name} serve"),
            };
            agent.say(&words);
            tokio::time::sleep(Duration::from_millis(random(60))).await;
        }
        tokio::time::sleep(Duration::from_millis(random(120))).await;
        agent.kill();
        assert_eq!(violations(&host.root), "");
    }
    // The last agent brings everything where it should be.
    let instances = host.open(|_| {});
    for name in ["a", "b", "c"] {
        loop {
            match instances.put(id(name), spec(&["serve"], "running")).await {
                Ok(_) => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        wait(&instances, name, |status| {
            assert_ne!(status.phase, Phase::Failed, "{status:?}");
            status.phase == Phase::Running && status.spec.command == Some(vec!["serve".to_owned()])
        })
        .await;
        assert!(host.pins().contains(name));
    }
    for name in ["a", "b", "c"] {
        assert!(instances.delete(&id(name)).await.unwrap());
    }
    wait_quiet(&host).await;
    assert_eq!(names(&host.root.join("instances")).len(), 0);
    assert_eq!((host.pins().len(), violations(&host.root)), (0, String::new()));
}
