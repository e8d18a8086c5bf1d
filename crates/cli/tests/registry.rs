//! Serving, logging in and out.

mod support;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use support::{HELLO, Said, Server, portolan, run};

/// bcrypt of `s3cret`, cost 4 so that the test does not wait.
fn htpasswd(dir: &std::path::Path) -> String {
    let path = dir.join("htpasswd");
    let hash = bcrypt::hash("s3cret", 4).expect("bcrypt works");
    std::fs::write(&path, format!("me:{hash}\n")).expect("a file");
    path.display().to_string()
}

fn login(home: &std::path::Path, host: &str, password: &str) -> Said {
    let mut child = portolan(home)
        .args(["registry", "login", host, "-u", "me", "--password-stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("portolan starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(password.as_bytes()).expect("it reads its input");
    drop(stdin);
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn what_was_served_is_there_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("data");
    let server = Server::start(home.path(), &root, &[]);
    run(home.path(), &["image", "copy", HELLO, &format!("{}/hello:1", server.address)]).ok();
    drop(server);
    let server = Server::start(home.path(), &root, &[]);
    let again = format!("{}/hello:1", server.address);
    assert!(run(home.path(), &["image", "inspect", &again]).ok().contains("linux/riscv64"));
}

#[test]
fn a_login_is_checked_kept_readable_by_its_owner_only_and_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let users = htpasswd(home.path());
    let server = Server::start(home.path(), &home.path().join("data"), &["--htpasswd", &users]);
    let remote = format!("{}/hello:1", server.address);

    let refused = run(home.path(), &["image", "copy", HELLO, &remote]);
    assert_eq!(refused.code, 5);
    assert!(refused.err.contains("registry login"), "{}", refused.err);

    let wrong = login(home.path(), &server.address, "n0t-it");
    assert_eq!(wrong.code, 5, "{}", wrong.err);
    assert!(!wrong.err.contains("n0t-it") && !home.path().join(".docker/config.json").exists());

    let said = login(home.path(), &server.address, "s3cret\n");
    assert!(!said.out.contains("s3cret") && !said.err.contains("s3cret"));
    said.ok();
    let config = home.path().join(".docker/config.json");
    assert_eq!(config.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    run(home.path(), &["image", "copy", HELLO, &remote]).ok();

    run(home.path(), &["registry", "logout", &server.address]).ok();
    assert_eq!(run(home.path(), &["image", "inspect", &remote]).code, 5);
    assert_eq!(run(home.path(), &["registry", "logout", &server.address]).code, 4);
}

#[test]
fn a_stopped_server_ends_well() {
    let home = tempfile::tempdir().unwrap();
    let mut child = portolan(home.path())
        .args(["registry", "serve", "--listen", "127.0.0.1:0", "--root"])
        .arg(home.path().join("data"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_root_that_cannot_be_used_is_said_at_once() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let root = file.join("below").display().to_string();
    let said = run(home.path(), &["registry", "serve", "--listen", "127.0.0.1:0", "--root", &root]);
    assert_eq!(said.code, 5, "{}", said.err);
    assert!(said.err.contains("below"), "{}", said.err);
}

#[test]
fn completions_and_version_are_printed() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(home.path(), &["completions", shell]).ok().contains("portolan"));
    }
    let version = run(home.path(), &["version", "-o", "json"]).json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(run(home.path(), &[]).code, 2);
}
