//! The controller in a real cluster: how soon a BuildRun has its PipelineRun, alone and among
//! five hundred, with how much memory, and what is written when nothing changes.
//!
//! Tekton's webhook judges every PipelineRun; its controller is stopped meanwhile, or two processors would
//! be busy with the pods of five hundred runs and not with what is measured.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::api::Api;
use crate::bench::measure::median;
use crate::bench::process::Process;
use crate::bench::report::{Promise, Report, Row, millis};
use crate::testbed::build::{Missing, ensure as ensure_parts};
use crate::testbed::cache::Cache;
use crate::testbed::command::{output, run as run_command, wait};
use crate::testbed::parts::Use;
use crate::testbed::state::State;
use crate::testbed::{down, up};

const NAMESPACE: &str = "bench-builds";
const ALONE: usize = 20;
const CROWD: usize = 500;
/// How many create BuildRuns at once.
const CREATORS: usize = 8;
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(180);
const RUNS: &str = "/apis/shipwright.io/v1beta1/namespaces/bench-builds/buildruns";
const BUILDS: &str = "/apis/shipwright.io/v1beta1/namespaces/bench-builds/builds";
const PIPELINES: &str = "/apis/tekton.dev/v1/namespaces/bench-builds/pipelineruns";

pub(super) fn run(report: &mut Report, controller: &Path) -> Result<()> {
    up::require_root()?;
    let cache = Cache::of_user()?;
    let _lock = cache.lock("e2e")?;
    let tools = ensure_parts(Use::E2e, Missing::Fails)?;
    let state = up::up(&cache, &tools)?;
    let outcome = measure(report, &state, controller);
    down::clear(&cache)?;
    outcome
}

fn measure(report: &mut Report, state: &State, controller: &Path) -> Result<()> {
    prepare(state)?;
    let mut ours = Controller::start(controller, state)?;
    let api = Api::start(state.tool("kubectl")?, &state.kubeconfig)?;
    wait("the class to be available", Duration::from_secs(30), || {
        let class = api.get("/apis/shipwright.io/v1alpha1/imageplatformclasses/default")?;
        let conditions = class["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(conditions.iter().any(|c| c["status"] == "True"), "it is {conditions:?}");
        Ok(())
    })?;
    println!("bench: a BuildRun and its PipelineRun, {ALONE} times");
    let times = alone(&api)?;
    let middle = median(times.clone());
    report.rows.push(row("BuildRun to PipelineRun, one at a time", middle, &times));
    at_most(report, "BuildRun created to PipelineRun created, median ms", millis(middle), 250.0);

    println!("bench: {CROWD} BuildRuns at once");
    let whole = crowd(&api)?;
    report.rows.push(row("500 BuildRuns at once, until the last PipelineRun", whole, &[whole]));
    at_most(report, "500 BuildRuns at once, seconds", whole.as_secs_f64(), 60.0);
    let peak = ours.0.peak_memory()?;
    at_most(report, "memory of the controller at its peak, MiB", peak, 150.0);
    let busy = ours.0.cpu()?.as_secs_f64();
    report.notes.push(format!("{busy:.1} s of the controller's processor time for all of these"));

    println!("bench: what is written when nothing changes");
    std::thread::sleep(Duration::from_secs(5));
    let before = versions(&api)?;
    drop(ours);
    // It takes over, reads everything anew and looks at each run once more.
    ours = Controller::start(controller, state)?;
    std::thread::sleep(Duration::from_secs(15));
    let after = versions(&api)?;
    let changed = before.iter().filter(|(name, version)| after.get(*name) != Some(version)).count();
    drop(ours);
    println!("bench: the same BuildRuns and PipelineRuns by a bare client");
    let bare = bare(&api)?;
    report.rows.push(row("500 BuildRuns and 500 PipelineRuns by a bare client", bare, &[bare]));
    #[allow(clippy::cast_precision_loss, reason = "at most a thousand objects")]
    at_most(report, "objects written by a restarted controller", changed as f64, 0.0);
    Ok(())
}

fn at_most(report: &mut Report, what: &str, measured: f64, at_most: f64) {
    report.promises.push(Promise { what: what.to_owned(), measured, at_most });
}

fn row(what: &str, middle: Duration, all: &[Duration]) -> Row {
    Row {
        what: what.to_owned(),
        median_ms: millis(middle),
        runs_ms: all.iter().map(|time| millis(*time)).collect(),
        peak_mib: None,
        idle: None,
    }
}

/// Resources, a strategy, a class of two platforms, and no pods.
fn prepare(state: &State) -> Result<()> {
    let kubectl = state.tool("kubectl")?;
    let config = format!("--kubeconfig={}", state.kubeconfig.display());
    let crds = crate::root().join("deploy/crds");
    let crds = crds.to_str().context("the path of deploy/crds is text")?;
    run_command(kubectl, &[&config, "apply", "--server-side", "-f", crds])?;
    run_command(
        kubectl,
        &[&config, "wait", "--for=condition=Established", "--timeout=60s", "-f", crds],
    )?;
    let scale = ["-n", "tekton-pipelines", "scale", "deployment", "tekton-pipelines-controller"];
    run_command(kubectl, &[&[config.as_str()], &scale[..], &["--replicas=0"]].concat())?;
    let file = state.run_dir.join("bench-build.json");
    std::fs::write(&file, objects().to_string())?;
    let file = file.to_str().context("the path of the run folder is text")?;
    output(kubectl, &[&config, "apply", "-f", file]).map(drop)
}

fn objects() -> Value {
    let platform = |arch: &str| {
        json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
            "metadata": {"name": format!("linux-{arch}")},
            "spec": {
                "platform": {"os": "linux", "arch": arch},
                "nodeSelector": {"kubernetes.io/arch": arch},
            },
        })
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        platform("amd64"), platform("arm64"),
        {
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": {"name": "default"},
            "spec": {"imagePlatforms": [{"name": "linux-amd64"}, {"name": "linux-arm64"}]},
        },
        {
            "apiVersion": "shipwright.io/v1beta1", "kind": "ClusterBuildStrategy",
            "metadata": {"name": "bench"},
            "spec": {"steps": [{
                "name": "build", "image": "registry.example/builder:1",
                "command": ["build"], "args": ["$(params.shp-output-image)"],
            }]},
        },
        {
            "apiVersion": "shipwright.io/v1beta1", "kind": "Build",
            "metadata": {"name": "app", "namespace": NAMESPACE},
            "spec": {
                "source": {"type": "Git", "git": {"url": "https://git.example/app.git"}},
                "strategy": {"name": "bench", "kind": "ClusterBuildStrategy"},
                "output": {
                    "image": "registry.example/app:1",
                    "multiArch": {
                        "imagePlatformClass": "default",
                        "platforms": [{"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"}],
                    },
                },
            },
        },
    ]})
}

fn build_run(name: &str) -> Value {
    json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"build": {"name": "app"}},
    })
}

/// The runs that PipelineRuns are of, as these are heard of, until the server ends that.
fn heard(api: &Api) -> Result<impl Iterator<Item = (Instant, String)> + use<>> {
    // From what the server's cache has: of a kind that nobody wrote yet it may be behind all others, and would refuse
    // to begin where they are.
    let from = format!("watch=1&timeoutSeconds={}&resourceVersion=0", PATIENCE.as_secs());
    let lines = api.watch(&format!("{PIPELINES}?{from}"))?.lines().map_while(Result::ok);
    Ok(lines.filter_map(|line| {
        let at = Instant::now();
        let event: Value =
            serde_json::from_str(&line).ok().filter(|e: &Value| e["type"] == "ADDED")?;
        Some((at, owner(&event["object"])?))
    }))
}

/// One after the other: from the API server's answer to the news of the PipelineRun.
fn alone(api: &Api) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let (news, received) = mpsc::channel();
        let heard = heard(api)?;
        scope.spawn(move || {
            for one in heard {
                if news.send(one).is_err() {
                    return;
                }
            }
        });
        for n in 0..ALONE {
            let name = format!("alone-{n}");
            api.post(RUNS, &build_run(&name))?;
            let created = Instant::now();
            loop {
                let (at, run) = received
                    .recv_timeout(Duration::from_secs(30))
                    .with_context(|| format!("no PipelineRun for {name} within 30 s"))?;
                if run == name {
                    times.push(at.saturating_duration_since(created));
                    break;
                }
            }
        }
        drop(received);
        // The watch hears of one more and then ends.
        api.post(RUNS, &build_run("alone-last")).map(drop)
    })?;
    Ok(times)
}

fn owner(object: &Value) -> Option<String> {
    Some(object["metadata"]["ownerReferences"][0]["name"].as_str()?.to_owned())
}

/// Makes them with several hands.
fn make_all(api: &Api, path: &str, objects: &[Value]) -> Result<()> {
    std::thread::scope(|scope| {
        let creators: Vec<_> = (0..CREATORS)
            .map(|creator| {
                scope.spawn(move || {
                    let own = objects.iter().skip(creator).step_by(CREATORS);
                    own.into_iter().try_for_each(|object| api.post(path, object).map(drop))
                })
            })
            .collect();
        creators.into_iter().try_for_each(|creator| creator.join().expect("it does not panic"))
    })
}

/// All at once: from the first request to the last PipelineRun.
fn crowd(api: &Api) -> Result<Duration> {
    let runs: Vec<_> = (0..CROWD).map(|n| build_run(&format!("crowd-{n}"))).collect();
    let heard = heard(api)?;
    let began = Instant::now();
    let mut last = began;
    let mut there = HashSet::new();
    std::thread::scope(|scope| -> Result<()> {
        let creators = scope.spawn(|| make_all(api, RUNS, &runs));
        for (at, run) in heard.filter(|(_, run)| run.starts_with("crowd-")) {
            (last, _) = (at, there.insert(run));
            if there.len() == CROWD {
                break;
            }
        }
        creators.join().expect("it does not panic")
    })?;
    let number = there.len();
    ensure!(
        number == CROWD,
        "after {PATIENCE:?} only {number} of {CROWD} BuildRuns have a PipelineRun"
    );
    Ok(last - began)
}

/// How long a client needs that does nothing but make the same BuildRuns and the same PipelineRuns, with nobody acting on them: what
/// the server and those that it asks take for themselves.
fn bare(api: &Api) -> Result<Duration> {
    let list = api.get(PIPELINES)?;
    let made = list["items"].as_array().context("a list of PipelineRuns")?;
    let made = made.iter().filter(|one| owner(one).is_some_and(|run| run.starts_with("crowd-")));
    let again: Vec<_> = made.enumerate().map(|(n, one)| bare_copy(one, n)).collect();
    ensure!(again.len() == CROWD, "{} PipelineRuns are there, not {CROWD}", again.len());
    let runs: Vec<_> = (0..CROWD).map(|n| build_run(&format!("bare-{n}"))).collect();
    let began = Instant::now();
    make_all(api, RUNS, &runs)?;
    make_all(api, PIPELINES, &again)?;
    Ok(began.elapsed())
}

/// The same under another name, of nobody.
fn bare_copy(pipeline: &Value, number: usize) -> Value {
    let meta = &pipeline["metadata"];
    json!({
        "apiVersion": pipeline["apiVersion"], "kind": pipeline["kind"], "spec": pipeline["spec"],
        "metadata": {
            "name": format!("bare-{number}"), "namespace": NAMESPACE,
            "labels": meta["labels"], "annotations": meta["annotations"],
        },
    })
}

/// The version of every object that the controller may write.
fn versions(api: &Api) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for path in [RUNS, BUILDS, PIPELINES, "/apis/shipwright.io/v1alpha1/imageplatformclasses"] {
        let list = api.get(path)?;
        for item in list["items"].as_array().context("a list")? {
            let metadata: HashMap<String, Value> =
                serde_json::from_value(item["metadata"].clone())?;
            let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
            all.insert(format!("{path}/{}", text("name")), text("resourceVersion").to_owned());
        }
    }
    Ok(all)
}

/// What `/readyz` says.
fn ready(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address).context("connect to the controller")?;
    write!(stream, "GET /readyz HTTP/1.0\r\n\r\n")?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    Ok(told)
}

/// The controller as a process of ours.
#[derive(Debug)]
struct Controller(Process);

impl Controller {
    fn start(program: &Path, state: &State) -> Result<Self> {
        // Asked for and given back at once: the controller takes a port and does not say which it got.
        let listen = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = std::fs::File::create(state.logs.join("portolan-controller.log"))?;
        let child = Command::new(program)
            .args(["--namespace", NAMESPACE, "--step-image", "registry.example/portolan:1"])
            .arg("--kubeconfig")
            .arg(&state.kubeconfig)
            .args(["--health", &listen.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start portolan-controller")?;
        let mut started = Self(Process(child));
        wait("the controller to act", Duration::from_secs(60), || {
            if let Some(status) = started.0.0.try_wait()? {
                bail!("it ended with {status}; see its log");
            }
            let told = ready(listen)?;
            ensure!(told.ends_with("leading\n"), "it says {told:?}");
            Ok(())
        })?;
        Ok(started)
    }
}
