//! `testbed up`: the cluster, step by step, each step waiting until the one before really works.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::build::Toolbox;
use super::cache::Cache;
use super::command::{output, run, wait};
use super::process::{Daemon, Identity, start, tail};
use super::state::{Ports, Process, State};
use super::{binfmt, config, containerd, credentials, daemons, down, gatekeeper, net, tekton};

/// On two busy cores the slowest step, the first start of the API server, takes about 15 s.
const DEADLINE: Duration = Duration::from_secs(120);

/// Kernel settings that a kubelet changes for the whole machine; `down` puts them back.
const KERNEL: &[&str] = &[
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/kernel/keys/root_maxbytes",
];

/// Folders whose place containerd, libcni and the kubelet do not let us choose, inner ones first.
const OUTSIDE: &[&str] = &[
    "/run/containerd/s",
    // Of runtimes that say nothing of their own, as those that shims bring.
    "/run/containerd/runc/k8s.io",
    "/run/containerd/runc",
    "/run/containerd",
    "/var/lib/cni/results",
    "/var/lib/cni",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet",
    "/var/log/containers",
];

/// What installers of shims take turns by.
const LOCK: &str = "/run/portolan-node.lock";

/// A kubelet empties the folder of this socket when it starts, so two on one machine do harm.
pub(super) const DEVICE_SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

/// Brings the cluster up, or finds it up.
pub(crate) fn up(cache: &Cache, tools: &Toolbox) -> Result<State> {
    require_root()?;
    let run_dir = cache.run_dir();
    let _lock = cache.lock("run")?;
    match State::load(&run_dir) {
        Ok(Some(state)) if state.is_running() && state.is_made_of(tools) => {
            println!("testbed: already up in {}", run_dir.display());
            return Ok(state);
        }
        Ok(Some(state)) if state.is_running() => println!("testbed: parts have changed: anew"),
        Ok(None) => {}
        Ok(Some(_)) | Err(_) => println!("testbed: clearing away what an earlier run left"),
    }
    // Also when there is no state: a run may have ended before it wrote one.
    down::clear(cache)?;
    if UnixStream::connect(DEVICE_SOCKET).is_ok() {
        bail!("another kubelet runs on this machine ({DEVICE_SOCKET}), and ours would disturb it");
    }
    let block = net::free_block(tool(tools, "ip")?)?;
    let mut state = State::new(&run_dir, block, free_ports()?, tools);
    state.kernel = read_kernel();
    state.binfmt = binfmt::enable();
    state.absent = outside().into_iter().filter(|path| !path.exists()).collect();
    for dir in [&run_dir, &state.logs] {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    state.save()?;
    net::make_bridge(tool(tools, "ip")?, &run_dir, block)?;
    match steps(&mut state) {
        Ok(()) => Ok(state),
        Err(error) => {
            explain(&state);
            Err(error.context(format!("bring the testbed up (logs: {})", state.logs.display())))
        }
    }
}

/// To be asked before anything long is begun in vain.
pub(crate) fn require_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the testbed's cluster needs root, as containers and a bridge do: run this as root");
    }
    Ok(())
}

fn tool<'a>(tools: &'a Toolbox, name: &str) -> Result<&'a Path> {
    tools.get(name).map(PathBuf::as_path).with_context(|| format!("no part {name}"))
}

fn outside() -> Vec<PathBuf> {
    // Above the control groups of containers: one hierarchy (v2), or one per controller (v1).
    let cgroups = Path::new("/sys/fs/cgroup");
    let hierarchies = down::list(cgroups).into_iter().chain([cgroups.to_owned()]);
    let parents = hierarchies.filter(|dir| dir.is_dir()).map(|dir| dir.join("k8s.io"));
    OUTSIDE.iter().chain([&LOCK]).map(PathBuf::from).chain(parents).collect()
}

fn free_ports() -> Result<Ports> {
    let [
        etcd,
        etcd_peer,
        registry,
        controller_manager,
        scheduler,
        kubelet,
        kubelet_health,
        containerd_stream,
    ] = net::free_ports()?;
    Ok(Ports {
        etcd,
        etcd_peer,
        registry,
        controller_manager,
        scheduler,
        kubelet,
        kubelet_health,
        containerd_stream,
    })
}

fn read_kernel() -> BTreeMap<PathBuf, String> {
    let values = KERNEL.iter().filter_map(|path| {
        Some((PathBuf::from(path), fs::read_to_string(path).ok()?.trim().to_owned()))
    });
    values.collect()
}

fn steps(state: &mut State) -> Result<()> {
    let began = Instant::now();
    let step = |name: &str| println!("testbed: {:>5.1}s {name}", began.elapsed().as_secs_f32());
    step("credentials and configuration");
    credentials::make(state)?;
    for (path, text) in config::render(state) {
        let dir = path.parent().context("a file in the run folder")?;
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    for (link, program) in containerd::links(state)? {
        let dir = link.parent().context("a link in the run folder")?;
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        std::os::unix::fs::symlink(&program, &link)
            .with_context(|| format!("link {} to {}", link.display(), program.display()))?;
    }
    step("etcd");
    let etcd = format!("127.0.0.1:{}", state.ports.etcd);
    launch(state, daemons::etcd(state)?, |_| http_ok(&etcd, "/health"))?;
    step("registry");
    for (which, address) in
        [("loopback", state.registry.loopback.clone()), ("cluster", state.registry.cluster.clone())]
    {
        launch(state, daemons::registry(state, which)?, |_| http_ok(&address, "/v2/"))?;
    }
    step("containerd");
    launch(state, containerd::supervised(state)?, |state| {
        UnixStream::connect(&state.containerd_socket).map(drop).context("connect")
    })?;
    step("kube-apiserver");
    launch(state, daemons::apiserver(state)?, |state| {
        kubectl(state, &["get", "--raw", "/readyz"])
    })?;
    step("controller manager, scheduler, kubelet");
    launch(state, daemons::controller_manager(state)?, |_| Ok(()))?;
    launch(state, daemons::scheduler(state)?, |_| Ok(()))?;
    let health = format!("127.0.0.1:{}", state.ports.kubelet_health);
    launch(state, daemons::kubelet(state)?, |_| http_ok(&health, "/healthz"))?;
    step("images into the registry");
    push_images(state)?;
    step("controllers at work, node ready");
    wait("the controller manager to make the default account", DEADLINE, || {
        kubectl(state, &["get", "serviceaccount", "default", "--namespace=default"])
    })?;
    wait("the node to be ready", DEADLINE, || {
        kubectl(state, &["wait", "node", &state.node, "--for=condition=Ready", "--timeout=2s"])
    })?;
    // Gatekeeper takes its time to hand itself a certificate; Tekton can come meanwhile.
    step("Gatekeeper");
    gatekeeper::install(state)?;
    step("Tekton");
    tekton::install(state)?;
    step("Gatekeeper's webhooks");
    gatekeeper::ready(state)?;
    state.ready = true;
    state.save()?;
    step("up");
    Ok(())
}

/// Starts a daemon, writes it down, waits until it works.
fn launch(
    state: &mut State,
    daemon: Daemon,
    ready: impl Fn(&State) -> Result<()>,
) -> Result<Identity> {
    let log = state.logs.join(format!("{}.log", daemon.name));
    let identity = start(&daemon, &state.run_dir, &log)?;
    state.processes.push(Process { name: daemon.name.to_owned(), identity });
    state.save()?;
    let end = Instant::now() + DEADLINE;
    loop {
        // A daemon that is ready may be another one on the same port, ours having ended.
        let (answer, alive) = (ready(state), identity.is_alive());
        match answer {
            Ok(()) if alive => return Ok(identity),
            _ if !alive => bail!("{} ended before it was ready", daemon.name),
            Err(error) if Instant::now() > end => {
                return Err(error.context(format!(
                    "{} was not ready within {DEADLINE:?}; its last words:\n{}",
                    daemon.name,
                    tail(&log, 15)
                )));
            }
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// A GET of the old and simple kind: readiness is in the status line.
fn http_ok(address: &str, path: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("connect {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(4096).read_to_string(&mut answer).with_context(|| format!("read {address}"))?;
    let status = answer.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => bail!("http://{address}{path} answered {status:?}"),
    }
}

pub(super) fn kubectl(state: &State, args: &[&str]) -> Result<()> {
    let config = format!("--kubeconfig={}", state.kubeconfig.display());
    let mut all = vec![config.as_str(), "--request-timeout=30s"];
    all.extend(args);
    output(state.tool("kubectl")?, &all).map(drop)
}

/// Waits until every deployment of a namespace has the pods it needs.
pub(super) fn wait_for_deployments(state: &State, namespace: &str) -> Result<()> {
    wait(&format!("the deployments of {namespace}"), Duration::from_secs(180), || {
        let all = ["wait", "deployment", "--all", "--for=condition=Available", "--timeout=5s"];
        kubectl(state, &[&all[..], &["--namespace", namespace]].concat())
    })
}

fn push_images(state: &State) -> Result<()> {
    for (part, reference) in &state.images {
        let local = reference.replacen(&state.registry.cluster, &state.registry.loopback, 1);
        let layout = state.tool(part)?.display().to_string();
        run(state.tool("crane")?, &["push", "--insecure", &layout, &local])?;
    }
    Ok(())
}

/// Which daemon ended, for the case that the failing step is not the one that caused it.
fn explain(state: &State) {
    for process in state.processes.iter().filter(|process| !process.identity.is_alive()) {
        let log = state.logs.join(format!("{}.log", process.name));
        eprintln!("testbed: {} has ended; its last words:\n{}", process.name, tail(&log, 15));
    }
}
