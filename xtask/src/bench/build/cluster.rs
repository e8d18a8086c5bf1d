//! The controller in a real cluster: how soon a BuildRun has its PipelineRun, alone and among
//! five hundred, with how much memory, and what is written when nothing changes.
//!
//! Tekton's webhook judges every PipelineRun; its controller is stopped meanwhile, or two processors would
//! be busy with the pods of five hundred runs and not with what is measured.

use std::collections::{BTreeMap, HashMap};
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

/// One after the other: from the API server's answer to the news of the PipelineRun.
fn alone(api: &Api) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let (news, heard) = mpsc::channel();
        let watch = api.watch(&format!("{PIPELINES}?watch=1&timeoutSeconds=120"))?;
        scope.spawn(move || {
            for line in watch.lines().map_while(Result::ok) {
                let at = Instant::now();
                let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
                if event["type"] == "ADDED" && news.send((at, owner(&event["object"]))).is_err() {
                    return;
                }
            }
        });
        for n in 0..ALONE {
            let name = format!("alone-{n}");
            api.post(RUNS, &build_run(&name))?;
            let created = Instant::now();
            loop {
                let (at, run) = heard
                    .recv_timeout(Duration::from_secs(30))
                    .with_context(|| format!("no PipelineRun for {name} within 30 s"))?;
                if run.as_deref() == Some(name.as_str()) {
                    times.push(at.saturating_duration_since(created));
                    break;
                }
            }
        }
        drop(heard);
        // The watch hears of one more and then ends.
        api.post(RUNS, &build_run("alone-last")).map(drop)
    })?;
    Ok(times)
}

fn owner(object: &Value) -> Option<String> {
    Some(object["metadata"]["ownerReferences"][0]["name"].as_str()?.to_owned())
}

/// All at once: from the first request to the last PipelineRun.
fn crowd(api: &Api) -> Result<Duration> {
    let began = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let creators: Vec<_> = (0..CREATORS)
            .map(|creator| {
                scope.spawn(move || {
                    (creator..CROWD).step_by(CREATORS).try_for_each(|n| {
                        api.post(RUNS, &build_run(&format!("crowd-{n}"))).map(drop)
                    })
                })
            })
            .collect();
        creators.into_iter().try_for_each(|creator| creator.join().expect("it does not panic"))
    })?;
    loop {
        let list = api.get(PIPELINES)?;
        let items = list["items"].as_array().context("a list of PipelineRuns")?;
        let of_crowd = items.iter().filter_map(owner).filter(|run| run.starts_with("crowd-"));
        let number = of_crowd.collect::<std::collections::HashSet<_>>().len();
        if number == CROWD {
            return Ok(began.elapsed());
        }
        if began.elapsed() > Duration::from_secs(180) {
            bail!("after 180 s only {number} of {CROWD} BuildRuns have a PipelineRun");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
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
            .args(["--listen", &listen.to_string()])
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
