//! An agent with a thousand cached disks and ten thousand instances: how long each call takes,
//! how soon a cached digest is pinned, what it needs while nothing happens.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use portolan_core::manifest::{Descriptor, Manifest, media_type};
use portolan_core::{Digest, Platform};
use serde_json::{Value, json};

use super::host::{Agent, split};
use super::idle;
use super::report::{Promise, Report, Row, millis};
use super::server::Server;
use crate::layout::Layer;
use crate::program::{AGENT, PORTOLAN, released};
use crate::testbed::cache::Cache;
use crate::testbed::image::{Contents, layer};

const DISKS: usize = 1_000;
const INSTANCES: usize = 10_000;
/// The most images that one prefetch may name.
const BATCH: usize = 64;
const REPOSITORY: &str = "bench/small";
/// Of one call; `--runs` multiplies it.
const CALLS: usize = 100;
/// How full the machine's disk is otherwise is not what is measured.
const CONFIG: &str =
    "[cache]\ntarget_percent = 98\nhigh_water_percent = 99\n[rootdisk]\nmin_size = \"16MiB\"\n";

pub(crate) fn run(runs: usize) -> Result<Report> {
    let portolan = released(PORTOLAN)?;
    let agent = released(AGENT)?;
    let scratch = Cache::of_user()?.tools();
    fs::create_dir_all(&scratch)?;
    let scratch = tempfile::tempdir_in(scratch)?;
    let server = Server::embedded(&portolan, &scratch.path().join("registry"))?;
    println!("bench: {DISKS} images into a registry");
    let digests = push_all(server.address)?;

    let mut report = Report::default();
    let image = |digest: &Digest| {
        json!({ "repository": format!("{}/{REPOSITORY}", server.address),
            "resolved_digest": digest, "os": "linux", "arch": platform().architecture })
    };
    let root = scratch.path().join("root");
    let running = Agent::start(&agent, &root, CONFIG)?;
    println!("bench: {DISKS} disks");
    let began = Instant::now();
    for batch in digests.chunks(BATCH) {
        let images: Vec<Value> = batch.iter().map(&image).collect();
        let (status, answer) =
            running.call("POST", "/v1/prefetch", &json!({ "images": images }))?;
        ensure!(status == 200 && !answer.contains("\"reason\""), "prefetch: {status} {answer}");
    }
    report.notes.push(format!("{DISKS} disks built in {:.1?}", began.elapsed()));
    println!("bench: {INSTANCES} instances");
    for number in 0..INSTANCES {
        let spec = json!({ "image": image(&digests[number % DISKS]), "desired_state": "stopped" });
        let (status, answer) = running.call("PUT", &format!("/v1/instances/i-{number}"), &spec)?;
        ensure!(matches!(status, 200..=202), "PUT: {status} {answer}");
    }
    // As after a start of the machine: nothing in memory but what the agent keeps.
    drop(running);
    let began = Instant::now();
    let running = Agent::start(&agent, &root, CONFIG)?;
    report.notes.push(format!("restarted and healthy in {:.1?}", began.elapsed()));
    calls(&running, &digests, image, runs, &mut report)?;
    starts(&running, &digests, image, runs, &mut report)?;
    std::thread::sleep(Duration::from_secs(5));
    report.promises.push(Promise {
        what: "memory of the idle agent, MiB".to_owned(),
        measured: running.resident_mib()?,
        at_most: 64.0,
    });
    Ok(report)
}

/// Every call of the API, over all instances.
fn calls(
    agent: &Agent,
    digests: &[Digest],
    image: impl Fn(&Digest) -> Value,
    runs: usize,
    report: &mut Report,
) -> Result<()> {
    type Make<'a> = Box<dyn Fn(usize) -> (&'static str, String, Value) + 'a>;
    let none = || Value::Null;
    let get = |path: &'static str| -> Make<'_> {
        Box::new(move |_| ("GET", path.to_owned(), Value::Null))
    };
    let spec =
        |n: usize| json!({ "image": image(&digests[n % DISKS]), "desired_state": "stopped" });
    let any = |n: usize| format!("/v1/instances/i-{}", n * 7919 % INSTANCES);
    let table: Vec<(&str, Make<'_>)> = vec![
        ("GET /healthz", get("/healthz")),
        ("GET /readyz", get("/readyz")),
        ("GET /metrics", get("/metrics")),
        ("GET /v1/status", get("/v1/status")),
        ("GET /v1/cache", get("/v1/cache")),
        ("GET /v1/instances", get("/v1/instances")),
        ("GET /v1/instances/{id}", Box::new(|n| ("GET", any(n), none()))),
        (
            "PUT /v1/instances/{id}, the same",
            Box::new(|n| ("PUT", any(n), spec(n * 7919 % INSTANCES))),
        ),
        (
            "PUT /v1/instances/{id}, new",
            Box::new(|n| ("PUT", format!("/v1/instances/n-{n}"), spec(n))),
        ),
        (
            "DELETE /v1/instances/{id}",
            Box::new(|n| ("DELETE", format!("/v1/instances/n-{n}"), none())),
        ),
        (
            "POST /v1/prefetch, cached",
            Box::new(|n| {
                (
                    "POST",
                    "/v1/prefetch".to_owned(),
                    json!({ "images": [image(&digests[n % DISKS])] }),
                )
            }),
        ),
        (
            "POST /v1/gc, dry run",
            Box::new(|_| ("POST", "/v1/gc".to_owned(), json!({ "dry_run": true }))),
        ),
    ];
    for (what, make) in &table {
        let idle = idle::wait_for_quiet()?;
        let mut times = Vec::new();
        for n in 0..CALLS * runs {
            let (method, path, body) = make(n);
            let began = Instant::now();
            let (status, answer) = agent.call(method, &path, &body)?;
            times.push(began.elapsed());
            ensure!(matches!(status, 200..=204), "{method} {path}: {status} {answer}");
        }
        add(report, what, times, 10.0, idle);
    }
    Ok(())
}

/// From the PUT of an instance whose image is cached to the pin on its disk.
fn starts(
    agent: &Agent,
    digests: &[Digest],
    image: impl Fn(&Digest) -> Value,
    runs: usize,
    report: &mut Report,
) -> Result<()> {
    let idle = idle::wait_for_quiet()?;
    let mut times = Vec::new();
    for n in 0..CALLS.min(20 * runs) {
        let path = format!("/v1/instances/s-{n}");
        let spec = json!({ "image": image(&digests[n % DISKS]) });
        let began = Instant::now();
        let (status, mut answer) = agent.call("PUT", &path, &spec)?;
        ensure!(matches!(status, 200..=202), "PUT: {status} {answer}");
        loop {
            let instance: Value = serde_json::from_str(&answer)?;
            if instance["rootdisk_key"].is_string() && instance["cached"].is_boolean() {
                ensure!(instance["cached"] == true, "not from the cache: {answer}");
                break;
            }
            ensure!(began.elapsed() < Duration::from_secs(10), "no disk after 10 s: {answer}");
            answer = agent.call("GET", &path, &Value::Null)?.1;
        }
        times.push(began.elapsed());
        let (status, answer) = agent.call("DELETE", &path, &Value::Null)?;
        ensure!(matches!(status, 200..=204), "DELETE: {status} {answer}");
    }
    // The rest of a hundred is the disk's: a start is on it before it is answered.
    let what = "start of a cached digest, to a pinned disk";
    let (times, row) = row(what, times, idle);
    report.rows.push(row);
    report.promises.push(Promise {
        what: format!("{what}: median, ms"),
        measured: millis(times.typical),
        at_most: 5.0,
    });
    Ok(())
}

fn add(report: &mut Report, what: &str, times: Vec<Duration>, at_most: f64, idle: f64) {
    let (times, row) = row(what, times, idle);
    report.rows.push(row);
    let what = format!("{what}: 99 of 100 within, ms");
    report.promises.push(Promise { what, measured: millis(times.most), at_most });
}

/// What half of the calls, and what 99 of 100, do not exceed.
struct Times {
    typical: Duration,
    most: Duration,
}

fn row(what: &str, mut times: Vec<Duration>, idle: f64) -> (Times, Row) {
    times.sort();
    let at = |share: usize| {
        let place = (times.len() * share).div_ceil(100).saturating_sub(1);
        times.get(place).copied().unwrap_or_default()
    };
    let found = Times { typical: at(50), most: at(99) };
    let row = Row {
        what: what.to_owned(),
        median_ms: millis(found.typical),
        // Hundreds of runs say it best by what 99 of 100 stay below, and by the worst.
        runs_ms: vec![millis(found.most), millis(at(100))],
        peak_mib: None,
        idle: Some(idle),
    };
    (found, row)
}

fn platform() -> Platform {
    Platform::new("linux", std::env::consts::ARCH).normalised()
}

/// Images that differ in their configuration alone.
fn push_all(server: SocketAddr) -> Result<Vec<Digest>> {
    let files = (0..20).map(|n| (format!("/etc/{n}"), format!("{n}\n").repeat(100).into_bytes()));
    let tar = layer(&Contents { files: files.collect(), ..Default::default() })?;
    let stored = Layer::tar(&tar);
    let descriptor = Descriptor::of(stored.media_type, stored.bytes);
    push_blob(server, &descriptor, &tar)?;
    let mut digests = Vec::new();
    for number in 0..DISKS {
        let platform = platform();
        let config = json!({ "os": platform.os, "architecture": platform.architecture,
            "config": { "Labels": { "number": number.to_string() } },
            "rootfs": { "type": "layers", "diff_ids": [stored.diff_id] } });
        let config = config.to_string().into_bytes();
        let config_descriptor = Descriptor::of(media_type::OCI_CONFIG, &config);
        push_blob(server, &config_descriptor, &config)?;
        let manifest = Manifest::new(config_descriptor, vec![descriptor.clone()]).to_vec();
        let digest = Digest::sha256(&manifest);
        let path = format!("/v2/{REPOSITORY}/manifests/{digest}");
        send(server, "PUT", &path, media_type::OCI_MANIFEST, &manifest)?;
        digests.push(digest);
    }
    Ok(digests)
}

fn push_blob(server: SocketAddr, descriptor: &Descriptor, bytes: &[u8]) -> Result<()> {
    let path = format!("/v2/{REPOSITORY}/blobs/uploads/?digest={}", descriptor.digest);
    send(server, "POST", &path, "application/octet-stream", bytes)
}

fn send(server: SocketAddr, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(server).context("connect to the registry")?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {server}\r\nContent-Type: {kind}\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let (status, said) = split(&String::from_utf8_lossy(&answer))?;
    ensure!(status == 201, "{method} {path}: {status} {said}");
    Ok(())
}
