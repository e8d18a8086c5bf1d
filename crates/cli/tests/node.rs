//! `portolan node`, as Jobs and people run it, on a tree of files.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

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
