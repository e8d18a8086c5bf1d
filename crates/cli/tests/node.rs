//! `portolan node`, as Jobs and people run it, on a tree of files.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use support::{Said, portolan};

/// A program for this machine, as far as its header says, in a tar.gz.
fn archive(name: &str, bytes: usize) -> Vec<u8> {
    let mut program = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
    let mut state = 1_u64;
    program.extend((0..bytes).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[5]
    }));
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(program.len() as u64);
    header.set_mode(0o755);
    header.set_cksum();
    builder.append_data(&mut header, name, &program[..]).unwrap();
    let tar = builder.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap()
}

fn serve(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/shim.tar.gz", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let length = bytes.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(&bytes);
        }
    });
    url
}

fn tree(config: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("etc/containerd")).unwrap();
    fs::write(dir.path().join("etc/containerd/config.toml"), config).unwrap();
    dir
}

fn node(root: &Path, args: &[&str]) -> Said {
    let (command, rest) = args.split_first().unwrap();
    let report = root.with_extension("report");
    let mut portolan = portolan(root);
    portolan.args(["node", command, "--host-root"]).arg(root).args(rest);
    let said: Said = portolan.arg("--report").arg(&report).output().unwrap().into();
    let told = fs::read_to_string(&report).unwrap_or_default();
    let _ = fs::remove_file(report);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap_or_default();
    assert_eq!(told["reason"].is_null(), said.code == 0 || told.is_null(), "{told} {said:?}");
    said
}

#[test]
fn the_fixed_command_lines_install_and_uninstall() {
    let bytes = archive("containerd-shim-spin-v2", 2000);
    let sha256 = portolan_core::Digest::sha256(&bytes).hex().to_uppercase();
    let url = serve(bytes);
    let root = tree("version = 2");
    let config = root.path().join("etc/containerd/config.toml");
    let args =
        ["install", "--name", "spin-v2", "--location", &url, "--sha256", &sha256, "--no-restart"];
    let said = node(root.path(), &args);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("plain http"), "{said:?}");
    assert!(fs::read_to_string(&config).unwrap().contains("runtimes.spin-v2]"));
    let again = node(root.path(), &[&args[..], &["-o", "json"]].concat()).json();
    assert_eq!(again["changed"], false, "{again}");
    assert_eq!(node(root.path(), &["verify", "--name", "spin-v2"]).code, 0);
    assert_eq!(node(root.path(), &["verify", "--name", "other"]).code, 1);
    for _ in 0..2 {
        assert_eq!(node(root.path(), &["uninstall", "--name", "spin-v2"]).code, 0);
        assert_eq!(fs::read_to_string(&config).unwrap(), "version = 2");
        assert!(!root.path().join("opt").exists());
    }
}

#[test]
fn refusals_have_their_exit_codes() {
    let url = serve(archive("containerd-shim-spin", 100));
    let root = tree("version = 2\n");
    let zeros = "0".repeat(64);
    let with = |more: &[&str]| {
        node(root.path(), &[&["install", "--no-restart", "--name", "spin"], more].concat())
    };
    for (args, code, words) in [
        (vec!["--location", "file:///etc/passwd"], 2, "only http and https"),
        (vec!["--location", &url, "--sha256", &zeros], 2, "SHA-256"),
        (vec!["--location", &url, "--sha256", "sha256:00"], 2, "64 hexadecimal digits"),
        (vec!["--location", &url, "--require-https", "enforce"], 2, "policy asks for https"),
        (vec!["--location", &url, "--require-digest", "enforce"], 2, "policy asks for one"),
        (vec!["--location", &url, "--option", "a=b c"], 2, "no single TOML value"),
        (vec!["--location", &url, "--binary", "other"], 4, "it has containerd-shim-spin"),
        (vec!["--location", &url, "--max-bytes", "10"], 2, "more than 10 bytes"),
        (vec!["--location", &url, "--distro", "what"], 2, "there is no preset"),
        (vec!["--location", "http://127.0.0.1:1/x", "--retries", "0"], 5, "cannot be reached"),
        (vec!["--assets", "/nonexistent"], 4, "did the fetching stage run"),
        (vec![], 2, "give --location"),
    ] {
        let said = with(&args);
        assert_eq!(said.code, code, "{args:?} {said:?}");
        assert!(said.err.contains(words), "{args:?} {said:?}");
        assert!(!root.path().join("opt").exists());
    }
    fs::write(root.path().join("etc/containerd/config.toml"), "[broken").unwrap();
    assert_eq!(with(&["--location", &url]).code, 2);
}

#[test]
fn two_stages_take_what_the_pod_gives_them() {
    let url = serve(archive("containerd-shim-spin", 100));
    let (root, assets) = (tree("version = 2\n"), tempfile::tempdir().unwrap());
    let fetched: Said = portolan(root.path())
        .args(["node", "fetch", "--assets"])
        .arg(assets.path())
        .envs([
            ("SHIM_NAME", "spin"),
            ("SHIM_LOCATION", &url),
            ("NUM_RETRY", "1"),
            ("SLEEP_DURATION", "1"),
        ])
        .output()
        .unwrap()
        .into();
    assert_eq!(fetched.code, 0, "{fetched:?}");
    // Whom to trust beside the system is said by a variable, too: a pod gets no flags of its operator's.
    let mut fetch = portolan(root.path());
    fetch.args(["node", "fetch", "--name", "spin", "--location", "https://127.0.0.1:1/x"]);
    let (other, bundle) = (tempfile::tempdir().unwrap(), "/no-such-bundle.pem");
    fetch.arg("--assets").arg(other.path()).env("PORTOLAN_CA_BUNDLE", bundle);
    let said = Said::from(fetch.output().unwrap());
    assert!(said.code != 0 && said.err.contains(bundle), "{said:?}");
    let mut install = portolan(root.path());
    install.args(["node", "install", "--host-root"]).arg(root.path()).args([
        "--name",
        "spin",
        "--no-restart",
        "--assets",
    ]);
    let options = r#"{"SystemdCgroup":"true","Name":"\"x\""}"#;
    let said: Said =
        // A pod may give both stages the same environment.
        install
            .arg(assets.path())
            .envs([("RUNTIME_OPTIONS", options), ("SHIM_LOCATION", url.as_str())])
            .output()
            .unwrap()
            .into();
    assert_eq!(said.code, 0, "{said:?}");
    let text = fs::read_to_string(root.path().join("etc/containerd/config.toml")).unwrap();
    assert!(text.contains("Name = \"x\"\nSystemdCgroup = true\n"), "{text}");
}

#[test]
fn several_shims_are_described_on_the_command_line() {
    let [one, two] =
        ["one", "two"].map(|name| serve(archive(&format!("containerd-shim-{name}"), 100)));
    let root = tree("version = 2\n");
    let config = root.path().join("etc/containerd/config.toml");
    let also = |location: &str, more: &str| {
        format!(r#"{{"name":"two","location":"{location}","handler":"second"{more}}}"#)
    };
    let with = |also: &str, more: &[&str]| {
        let first = ["install", "--no-restart", "--name", "one", "--location", &one, "-o", "json"];
        node(root.path(), &[&first[..], &["--also", also], more].concat())
    };
    let args = |also: &str| with(also, &[]);
    let reasons = |said: &Said| {
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        [0, 1].map(|at| told["parts"][at]["reason"].as_str().map(str::to_owned))
    };
    // One of them is another than it should be: the other is there.
    let wrong = format!(r#","sha256":"{}""#, "0".repeat(64));
    let said = args(&also(&two, &wrong));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("1 of 2 shims could not be installed; two is the first"), "{said:?}");
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let parts = told["parts"].clone();
    assert_eq!((&parts[0]["name"], &parts[0]["reason"]), (&"one".into(), &serde_json::Value::Null));
    assert_eq!(parts[1]["reason"], "DigestMismatch", "{parts}");
    assert!(!fs::read_to_string(&config).unwrap().contains("second"));
    // What makes no sense for one of them is no trouble of the other.
    let bad = || Some("BadRequest".to_owned());
    for more in [r#","options":{"a":"text"}"#, r#","binary":"a b""#, r#","sha256":"no""#] {
        let said = args(&also(&two, more));
        assert_eq!((said.code, reasons(&said)), (1, [None, bad()]), "{said:?}");
        assert!(fs::read_to_string(&config).unwrap().contains("runtimes.one]"));
    }
    let said = with(&also(&two, ""), &["--option", "a=text"]);
    assert_eq!((said.code, reasons(&said)), (1, [bad(), None]), "{said:?}");
    assert!(said.err.contains("one is the first of them: option a is \"text\""), "{said:?}");
    assert!(fs::read_to_string(&config).unwrap().contains("runtimes.second]"));
    assert_eq!(node(root.path(), &["uninstall", "--name", "two"]).code, 0);
    let said = args(&also(&two, r#","options":{"SystemdCgroup":"true"}"#));
    assert_eq!(said.code, 0, "{said:?}");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("runtimes.one]") && text.contains("runtimes.second]"), "{text}");
    assert!(text.contains("SystemdCgroup = true"), "{text}");
    for (bad, code, words) in [
        ("two", 2, "describes no shim"),
        (r#"{"name":"one","assets":"/x"}"#, 2, "each of them once"),
        (r#"{"name":"two","location":"file:///x"}"#, 1, "only http and https"),
        (r#"{"name":"two"}"#, 1, "give its location or its assets"),
    ] {
        let said = args(bad);
        assert_eq!(said.code, code, "{bad}: {said:?}");
        assert!(said.err.contains(words), "{bad}: {said:?}");
    }
}

/// A proxy that has one file, whatever is asked for, and opens no tunnels; what it was asked.
fn proxy(bytes: Vec<u8>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or(0);
            let line = String::from_utf8_lossy(&request[..read]);
            let line = line.lines().next().unwrap_or_default().to_owned();
            let (status, body) = match line.starts_with("CONNECT ") {
                true => (403, &[][..]),
                false => (200, &bytes[..]),
            };
            log.lock().unwrap().push(line);
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(body);
        }
    });
    (url, asked)
}

#[test]
fn downloads_go_by_the_proxy_of_the_environment_and_this_machine_is_reached_without_it() {
    let (proxy, asked) = proxy(archive("containerd-shim-spin", 100));
    let direct = serve(archive("containerd-shim-spin", 200));
    let (root, assets) = (tree("version = 2\n"), tempfile::tempdir().unwrap());
    let fetch = |location: &str| -> Said {
        let mut fetch = portolan(root.path());
        for name in ["NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "REQUEST_METHOD"] {
            fetch.env_remove(name);
        }
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"] {
            fetch.env(name, &proxy);
        }
        fetch.args(["node", "fetch", "--name", "spin", "--retries", "0", "--location", location]);
        fetch.arg("--assets").arg(assets.path()).output().unwrap().into()
    };
    let asked = || std::mem::take(&mut *asked.lock().unwrap());
    // Names that nobody but the proxy could find.
    let said = fetch("http://shims.invalid/spin.tar.gz?a=b");
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(asked(), ["GET http://shims.invalid/spin.tar.gz?a=b HTTP/1.1"]);
    let said = fetch("https://shims.invalid/spin.tar.gz");
    assert_ne!(said.code, 0, "{said:?}");
    assert_eq!(asked(), ["CONNECT shims.invalid:443 HTTP/1.1"], "and no word of what is fetched");
    let said = fetch(&direct);
    assert_eq!((said.code, asked().len()), (0, 0), "{said:?}");
}

/// In a pod, the stage that fails leaves it to the one that installs.
#[test]
fn a_stage_that_fails_leaves_word_and_ends_well_where_it_is_asked_to() {
    let url = serve(archive("containerd-shim-spin", 100));
    let (root, assets) = (tree("version = 2\n"), tempfile::tempdir().unwrap());
    let fetch = |sha256: &str, more: &[&str]| -> Said {
        let mut fetch = portolan(root.path());
        fetch.args(["node", "fetch", "--name", "spin", "--location", &url, "--sha256", sha256]);
        fetch.arg("--assets").arg(assets.path()).args(more).output().unwrap().into()
    };
    for sha256 in [&"0".repeat(64), "no digest"] {
        assert_eq!(fetch(sha256, &[]).code, 2);
        let left = fetch(sha256, &["--leave-refusal"]);
        assert_eq!(left.code, 0, "{left:?}");
        assert!(left.err.contains("left to `node install`"), "{left:?}");
        let dir = assets.path().display().to_string();
        let said =
            node(root.path(), &["install", "--name", "spin", "--no-restart", "--assets", &dir]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(!root.path().join("opt").exists());
    }
    // Below a file there is no folder, whoever asks for one.
    let nowhere = root.path().join("etc/containerd/config.toml/assets");
    let report = root.path().join("report");
    let nowhere = portolan(root.path())
        .args(["node", "fetch", "--name", "x", "--location", "file:///x", "--leave-refusal"])
        .arg("--assets")
        .arg(nowhere)
        .arg("--report")
        .arg(&report)
        .output()
        .unwrap();
    assert_eq!(Said::from(nowhere).code, 2, "nobody would hear of it");
    // Nor whose trouble it is, but for this.
    let told: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let part = &told["parts"][0];
    assert_eq!((&part["name"], &part["reason"]), (&"x".into(), &told["reason"]), "{told}");
    let (all, own) = (told["message"].as_str().unwrap(), part["message"].as_str().unwrap());
    assert_eq!(all, format!("x: {own}"));
}
