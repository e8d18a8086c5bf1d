//! The program itself: started with a file, ended with a signal.

use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::harness::{Bench, LONG, V1, client, health, until};
use crate::support::fault::Fault;

/// A running `portolan-verifier`, its addresses and its log so far.
struct Program {
    child: Child,
    port: u16,
    health: SocketAddr,
    log: std::sync::Arc<std::sync::Mutex<String>>,
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The program, which may have so many file handles.
fn within(handles: Option<usize>) -> Command {
    let program = env!("CARGO_BIN_EXE_portolan-verifier");
    let Some(handles) = handles else { return Command::new(program) };
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {handles}; exec \"$0\" \"$@\""), program]);
    command
}

impl Program {
    async fn start(bench: &Bench, tables: &str) -> Self {
        Self::start_within(bench, tables, None).await
    }

    /// With no more than so many file handles.
    async fn start_within(bench: &Bench, tables: &str, handles: Option<usize>) -> Self {
        let (listen, health_at) = (free(), free());
        let text = bench.config("", tables);
        let text = text.replacen("127.0.0.1:0", &listen.to_string(), 1);
        bench.write("verifier.toml", &text.replacen("127.0.0.1:0", &health_at.to_string(), 1));
        let mut child = within(handles)
            .arg("--config")
            .arg(bench.path("verifier.toml"))
            .args(["--log-format", "json"])
            .env("PORTOLAN_LOG", "trace")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let (mut lines, kept) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let program = Self { child, port: listen.port(), health: health_at, log };
        until(async || tokio::net::TcpStream::connect(health_at).await.is_ok()).await;
        program
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    async fn ask(&self, bench: &Bench, key: &str) -> reqwest::Result<Value> {
        let client = client(&bench.authority.pem(), Some(&bench.identity()));
        let url = format!("https://localhost:{}{V1}", self.port);
        let body = json!({"request": {"keys": [key]}}).to_string();
        let text = client.post(url).body(body).send().await?.text().await?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    async fn signal(&self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_is_healthy_ready_and_counted() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let program = Program::start(&bench, LONG).await;
    assert_eq!(health(program.health, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(health(program.health, "/readyz").await, (200, "ok\n".to_owned()));
    let said = program.ask(&bench, &bench.key_for("amd64")).await.unwrap();
    assert_eq!(said["response"]["items"][0]["value"]["isSuccess"], true, "{said}");
    let (_, metrics) = health(program.health, "/metrics").await;
    for line in [
        "ratify_verification_request_count 1",
        "ratify_mutation_request_count 0",
        "ratify_system_error_count_total{error=\"REGISTRY\"} 0",
        "portolan_verifier_images_total{outcome=\"verified\"} 1",
        "portolan_verifier_cache_requests_total{cache=\"verdict\",result=\"miss\"} 2",
        "portolan_verifier_policy_reloads_total{result=\"refused\"} 0",
        "# EOF",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("team/app") && !metrics.contains("sha256"), "{metrics}");
}

/// One thread is another kind of runtime: whoever waits there must not stop who does not.
#[tokio::test(flavor = "multi_thread")]
async fn one_thread_answers_many_and_so_do_more() {
    for threads in [1, 3] {
        let bench = Bench::new();
        bench.sign_amd64().await;
        let hung = bench.key_for("amd64").replace(":v1", ":hung");
        bench.registry.always("GET", "/manifests/hung", Fault::Hang);
        let limits =
            format!("{LONG}\n[limits]\nthreads = {threads}\n[timeouts]\nverify = \"3s\"\n");
        let program = Program::start(&bench, &limits).await;
        let key = bench.key_for("amd64");
        let waits = program.ask(&bench, &hung);
        let asked = futures_util::future::join_all((0..8).map(|_| program.ask(&bench, &key)));
        let begun = std::time::Instant::now();
        let (waited, all) = tokio::join!(waits, async {
            let all = asked.await;
            (all, begun.elapsed())
        });
        let (all, took) = all;
        for said in all {
            let said = said.unwrap();
            assert_eq!(said["response"]["items"][0]["value"]["isSuccess"], true, "{said}");
        }
        assert!(took < Duration::from_millis(2800), "{threads} threads: {took:?}");
        let waited = waited.unwrap();
        assert!(
            waited["response"]["systemError"].as_str().unwrap().contains("DEADLINE"),
            "{waited}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_after_what_is_under_way() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let top = bench.image.top.digest;
    let slow = Fault::Trickle { bytes: 40, pause: Duration::from_millis(60) };
    bench.registry.script("GET", format!("/referrers/{top}"), vec![slow]);
    let mut program = Program::start(&bench, LONG).await;
    let key = bench.key_for("amd64");
    let path = format!("/referrers/{top}");
    let before = bench.registry.count("GET", &path);
    let signal = async {
        until(async || bench.registry.count("GET", &path) > before).await;
        program.signal().await;
    };
    let (said, ()) = tokio::join!(program.ask(&bench, &key), signal);
    let said = said.unwrap();
    assert_eq!(said["response"]["items"][0]["value"]["isSuccess"], true, "{said}");
    let ended = tokio::time::timeout(Duration::from_secs(10), program.child.wait()).await;
    assert!(ended.unwrap().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_lines_of_json_with_the_trace_and_without_secrets() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let secret = "hunter2-is-no-password";
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("robot:{secret}"));
    bench.registry.demand(&format!("Basic {auth}"));
    let auths = json!({"auths": {bench.registry.host(): {"auth": auth}}});
    bench.write("config.json", &auths.to_string());
    let program = Program::start(&bench, LONG).await;
    let said = program.ask(&bench, &bench.key_for("arm64")).await.unwrap();
    let value = &said["response"]["items"][0]["value"];
    assert_eq!(value["isSuccess"], false, "{said}");
    let trace = value["traceID"].as_str().unwrap();
    let refused = |log: &str| {
        log.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line["message"] == "refused" && line["trace"] == trace)
    };
    until(async || refused(&program.log()).is_some()).await;
    let line = refused(&program.log()).unwrap();
    assert!(line["reference"].as_str().unwrap().ends_with("team/app:v1"), "{line}");
    let log = program.log();
    assert!(!log.contains(secret) && !log.contains(&auth), "{log}");
    // Wrong credentials are trouble, not an unsigned image.
    bench.registry.demand("Basic somethingelse");
    let said = program.ask(&bench, &bench.key_for("amd64").replace(":v1", ":v2")).await.unwrap();
    assert!(said["response"]["systemError"].as_str().unwrap().contains("DENIED"), "{said}");
}

/// Gatekeeper shows nobody the warnings of an answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_hosts_platform_leaves_out_is_in_the_log_once_for_each_kept_answer() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let program = Program::start(&bench, LONG).await;
    let lines = |part: &str| program.log().lines().filter(|line| line.contains(part)).count();
    let unseen = "only the host's platform was verified";
    for asked in 1..4 {
        program.ask(&bench, &bench.image(":v1")).await.unwrap();
        until(async || lines("\"let in\"") == asked).await;
        assert_eq!(lines(unseen), 1, "asked {asked} times: {}", program.log());
    }
    let log = program.log();
    let line = log.lines().find(|line| line.contains(unseen)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["level"], "warn", "{line}");
    assert!(line["warning"].as_str().unwrap().contains("linux/arm64"), "{line}");
    assert!(line["reference"].as_str().unwrap().ends_with("team/app:v1"), "{line}");
    // Who names a platform means no other.
    program.ask(&bench, &bench.key_for("amd64")).await.unwrap();
    until(async || lines("\"let in\"") == 4).await;
    assert_eq!(lines(unseen), 1, "{}", program.log());
}

#[tokio::test]
async fn a_configuration_that_is_wrong_is_told_with_its_line() {
    let bench = Bench::new();
    bench.write("verifier.toml", &bench.config("mod = \"audit\"", ""));
    let output = Command::new(env!("CARGO_BIN_EXE_portolan-verifier"))
        .arg("--config")
        .arg(bench.path("verifier.toml"))
        .output()
        .await
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("line 7") && said.contains("mod"), "{said}");
}

/// More come than there may be, and who asks is still answered.
#[tokio::test(flavor = "multi_thread")]
async fn where_file_handles_are_few_there_are_fewer_connections_and_it_says_so() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let tables = format!("{LONG}\n[limits]\nwork = 4\nwork_per_registry = 4\n");
    let program = Program::start_within(&bench, &tables, Some(300)).await;
    until(async || program.log().contains("\"connections\":54")).await;
    let mut open = Vec::new();
    for _ in 0..200 {
        open.push(tokio::net::TcpStream::connect(("127.0.0.1", program.port)).await.unwrap());
    }
    let said = program.ask(&bench, &bench.key_for("amd64")).await.unwrap();
    assert_eq!(said["response"]["items"][0]["value"]["isSuccess"], true, "{said}");
    assert_eq!(health(program.health, "/healthz").await.0, 200);
    assert!(!program.log().contains("cannot accept"), "{}", program.log());
    drop(open);
    let output = within(Some(100)).arg("--config").arg(bench.path("verifier.toml")).output().await;
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("100 file handles"), "{said}");
}
