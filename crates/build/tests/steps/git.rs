//! Real repositories, cloned: branches, tags, commits, depth, submodules, credentials, and URLs that
//! nobody should follow. What needs a program that a machine may lack says so and is left out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use portolan_build::source;
use portolan_build::steps::StepError;
use portolan_build::steps::git::{Clone, Cloned, clone};
use portolan_registry::layout::Layout;

use super::skip::skip;

/// A repository with two commits on `main`, a tag on the first, and a branch.
struct Repository {
    dir: tempfile::TempDir,
}

fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .args(["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(dir)
        .env("GIT_AUTHOR_NAME", "Ada Lovelace")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Charles")
        .env("GIT_COMMITTER_EMAIL", "c@example.com")
        .env("GIT_COMMITTER_DATE", "1700000000 +0000")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

impl Repository {
    fn new() -> Self {
        let repository = Self { dir: tempfile::tempdir().unwrap() };
        let dir = repository.work();
        std::fs::create_dir(&dir).unwrap();
        git(&dir, &["init", "--quiet"]);
        repository.commit("file", "one");
        git(&dir, &["tag", "v1"]);
        git(&dir, &["tag", "-a", "-m", "words", "v1-annotated"]);
        repository.commit("file", "two");
        git(&dir, &["branch", "feature/x", "v1"]);
        repository
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("code")
    }

    fn commit(&self, name: &str, text: &str) -> String {
        let dir = self.work();
        std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        std::fs::write(dir.join(name), text).unwrap();
        git(&dir, &["add", "."]);
        git(&dir, &["commit", "--quiet", "-m", text]);
        git(&dir, &["rev-parse", "HEAD"])
    }

    fn url(&self) -> String {
        format!("file://{}", self.work().display())
    }

    fn request(&self, name: &str, url: &str) -> Clone {
        Clone {
            url: url.to_owned(),
            target: self.dir.path().join(name),
            revision: None,
            depth: 1,
            secret: None,
            rewrite: false,
        }
    }

    fn run(&self, request: &Clone) -> Result<Cloned, StepError> {
        clone(request, self.dir.path(), &|_| {})
    }

    fn at(&self, name: &str, revision: &str) -> Result<Cloned, StepError> {
        let revision = Some(revision.to_owned());
        self.run(&Clone { revision, ..self.request(name, &self.url()) })
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }
}

#[test]
fn the_default_branch_is_cloned_with_what_a_status_tells() {
    let repository = Repository::new();
    let head = git(&repository.work(), &["rev-parse", "HEAD"]);
    let cloned = repository.run(&repository.request("to", &repository.url())).unwrap();
    let expected = Cloned {
        commit: head,
        author: "Ada Lovelace".to_owned(),
        branch: Some("main".to_owned()),
        timestamp: 1_700_000_000,
    };
    assert_eq!(cloned, expected);
    assert_eq!(repository.read("to/file"), "two");
    let commits = git(&repository.dir.path().join("to"), &["rev-list", "--count", "HEAD"]);
    assert_eq!(commits, "1", "one commit is enough to build");
    let all = Clone { depth: 0, ..repository.request("all", &repository.url()) };
    repository.run(&all).unwrap();
    assert_eq!(git(&repository.dir.path().join("all"), &["rev-list", "--count", "HEAD"]), "2");
}

#[test]
fn branches_tags_and_commits_are_found() {
    let repository = Repository::new();
    let first = git(&repository.work(), &["rev-parse", "v1"]);
    for (at, revision) in
        ["v1", "v1-annotated", "feature/x", &first, &first[..9], "refs/tags/v1"].iter().enumerate()
    {
        let cloned = repository.at(&format!("to-{at}"), revision).unwrap();
        assert_eq!((cloned.commit.as_str(), cloned.branch), (first.as_str(), None), "{revision}");
        assert_eq!(repository.read(&format!("to-{at}/file")), "one", "{revision}");
    }
}

/// Objects as `git hash-object --literally` writes them: what no git makes today, and what is in old histories.
fn literal(dir: &Path, kind: &str, content: &[u8]) -> String {
    let mut hashed = Command::new("git")
        .args(["hash-object", "-t", kind, "-w", "--literally", "--stdin"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    hashed.stdin.take().unwrap().write_all(content).unwrap();
    let out = hashed.wait_with_output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn old_histories_are_cloned_and_objects_that_mean_harm_are_not() {
    let repository = Repository::new();
    let dir = repository.work();
    let tree = git(&dir, &["rev-parse", "HEAD^{tree}"]);
    let bytes = |hash: &str| -> Vec<u8> {
        (0..hash.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hash[at..at + 2], 16).unwrap())
            .collect()
    };
    let entry = |mode: &str, name: &str| {
        [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &bytes(&tree)].concat()
    };
    let padded = literal(&dir, "tree", &entry("040000", "sub"));
    let harmful = literal(&dir, "tree", &entry("40000", ".git"));
    let commit = |tree: &str, author: &str| {
        let good = "C <c@example.com> 1700000000 +0000";
        literal(
            &dir,
            "commit",
            format!("tree {tree}\nauthor {author}\ncommitter {good}\n\nold\n").as_bytes(),
        )
    };
    let good = "A <a@example.com> 1200000000 +0000";
    for (name, commit) in [
        ("zone", commit(&tree, "A <a@example.com> 1200000000 +051800")),
        ("space", commit(&tree, "A <a@example.com>1200000000 +0000")),
        ("padded", commit(&padded, good)),
    ] {
        git(&dir, &["update-ref", &format!("refs/heads/{name}"), &commit]);
        let cloned = repository.at(name, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(cloned.commit, commit);
    }
    git(&dir, &["update-ref", "refs/heads/harm", &commit(&harmful, good)]);
    let error = repository.at("harm", "harm").unwrap_err();
    assert!(error.to_string().contains("hasDotgit"), "{error}");
}

#[test]
fn what_is_not_there_has_the_reason_that_status_documents_name() {
    let repository = Repository::new();
    let nowhere = "0123456789012345678901234567890123456789";
    for (at, revision) in ["nope", nowhere, "abcdef01"].iter().enumerate() {
        let error = repository.at(&format!("to-{at}"), revision).unwrap_err();
        assert_eq!((error.reason, error.exit), ("GitRevisionNotFound", 128), "{revision}: {error}");
    }
    let none = format!("file://{}/none", repository.dir.path().display());
    let error = repository.run(&repository.request("none-to", &none)).unwrap_err();
    assert_eq!((error.reason, error.exit), ("GitRemoteRepositoryNotFound", 128), "{error}");
    let empty = repository.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "--quiet", "--bare"]);
    let url = format!("file://{}", empty.display());
    let error = repository.run(&repository.request("empty-to", &url)).unwrap_err();
    assert_eq!(error.reason, "GitRevisionNotFound", "{error}");
    for (url, target, exit) in [("", "t", 100), ("file:///x", "", 101)] {
        let request =
            Clone { url: url.to_owned(), target: target.into(), ..repository.request("", "") };
        assert_eq!(repository.run(&request).unwrap_err().exit, exit);
    }
}

#[test]
fn submodules_come_along() {
    let inner = Repository::new();
    let outer = Repository::new();
    git(&outer.work(), &["submodule", "--quiet", "add", &inner.url(), "inner"]);
    outer.commit("more", "three");
    let cloned = outer.run(&outer.request("to", &outer.url())).unwrap();
    assert_eq!(cloned.branch.as_deref(), Some("main"));
    assert_eq!(outer.read("to/inner/file"), "two");
}

/// Whenever it is cloned, a commit is the same artifact: what is stored twice is there already, and a laptop and a cluster agree.
#[test]
fn two_clones_of_one_commit_are_one_artifact() {
    let (repository, module) = (Repository::new(), Repository::new());
    let dir = repository.work();
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
    std::fs::write(dir.join("run"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(dir.join("run"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    git(&dir, &["submodule", "--quiet", "add", &module.url(), "module"]);
    repository.commit("sub/deep", "three");
    let packed = |name: &str| {
        repository.run(&repository.request(name, &repository.url())).unwrap();
        let clone = repository.dir.path().join(name);
        let layout = Layout::create(&repository.dir.path().join(format!("{name}-layout"))).unwrap();
        let packed = source::pack(&clone, &layout).unwrap();
        for part in [clone.clone(), clone.join("module")] {
            assert_eq!(git(&part, &["status", "--porcelain"]), "", "nothing looks changed");
        }
        assert_eq!(packed.newest, 1_700_000_000, "the time of the commit");
        packed.manifest.digest
    };
    let first = packed("one");
    // Times are packed in whole seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(packed("two"), first);
}

#[test]
fn hostile_urls_run_nothing() {
    let repository = Repository::new();
    let mark = repository.dir.path().join("mark");
    let touch = format!("touch {}", mark.display());
    for url in [
        format!("--upload-pack={touch}"),
        format!("ext::sh -c {touch}"),
        format!("ext::{touch}").replace(' ', "%20"),
        format!("ssh://-oProxyCommand={}/x", touch.replace(' ', "%20")),
    ] {
        assert!(repository.run(&repository.request("to", &url)).is_err(), "{url}");
    }
    // A submodule is a stranger's word too.
    let text = format!("[submodule \"x\"]\n\tpath = x\n\turl = ext::{touch}\n");
    std::fs::write(repository.work().join(".gitmodules"), text).unwrap();
    let commit = git(&repository.work(), &["rev-parse", "HEAD"]);
    git(
        &repository.work(),
        &["update-index", "--add", "--cacheinfo", &format!("160000,{commit},x")],
    );
    git(&repository.work(), &["add", ".gitmodules"]);
    git(&repository.work(), &["commit", "--quiet", "-m", "hostile"]);
    assert!(repository.run(&repository.request("hostile", &repository.url())).is_err());
    // Nor does a hook or a filter of the repository's own run.
    assert!(!mark.exists());
}

/// `git http-backend` behind a few lines of HTTP, with or without a password.
fn serve(root: &Path, password: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let root = root.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let root = root.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &root, password));
        }
    });
    format!("http://{address}")
}

fn answer(mut stream: std::net::TcpStream, root: &Path, password: Option<&str>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut words = line.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut kind, mut login, mut protocol) =
        (0, String::new(), String::new(), String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((key, value)) = header.trim().split_once(": ") else { break };
        match key.to_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "content-type" => kind = value.to_owned(),
            "authorization" => login = value.to_owned(),
            "git-protocol" => protocol = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    if password.is_some_and(|password| login != password) {
        let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        return;
    }
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*", "http-backend"])
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", protocol)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method)
        .env("CONTENT_TYPE", kind)
        .env("CONTENT_LENGTH", length.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&body).unwrap();
    let out = child.wait_with_output().unwrap().stdout;
    let end = out.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&out[..end]);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let _ = write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n{head}\r\n\r\n");
    let _ = stream.write_all(&out[end + 4..]);
}

#[test]
fn over_http_a_repository_is_found_is_missing_or_is_private() {
    let repository = Repository::new();
    let open = serve(repository.dir.path(), None);
    let cloned = repository.run(&repository.request("to", &format!("{open}/code/.git"))).unwrap();
    assert_eq!(cloned.branch.as_deref(), Some("main"));
    let commit = git(&repository.work(), &["rev-parse", "v1"]);
    let revision = Some(commit.clone());
    let request = Clone { revision, ..repository.request("commit", &format!("{open}/code/.git")) };
    assert_eq!(repository.run(&request).unwrap().commit, commit);
    let error =
        repository.run(&repository.request("none", &format!("{open}/none.git"))).unwrap_err();
    assert_eq!((error.reason, error.exit), ("GitRemoteRepositoryNotFound", 128), "{error}");
    let closed = serve(repository.dir.path(), Some("Basic bWU6aHVudGVyMg=="));
    let error =
        repository.run(&repository.request("closed", &format!("{closed}/code/.git"))).unwrap_err();
    assert_eq!(error.reason, "GitRemoteRepositoryPrivate", "{error}");
    // In the URL it is taken as written, and told to nobody.
    let url = closed.replace("http://", "http://me:wrong@") + "/code/.git";
    let error = repository.run(&repository.request("wrong", &url)).unwrap_err();
    assert_eq!(error.reason, "GitAuthInvalidUserOrPass", "{error}");
    assert!(!error.to_string().contains("wrong@"), "{error}");
    let url = closed.replace("http://", "http://me:hunter2@") + "/code/.git";
    assert!(repository.run(&repository.request("right", &url)).is_ok());
}

/// All that has this text below a directory.
fn holding(dir: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            holding(&path, text, found);
        } else if std::fs::read(&path).unwrap().windows(text.len()).any(|w| w == text.as_bytes()) {
            found.push(path);
        }
    }
}

#[test]
fn a_password_in_the_url_stays_out_of_the_clone_and_opens_its_submodules() {
    let outer = Repository::new();
    // Two deep, each named from where the one around it is.
    for (name, inside) in [("lib", Some("deep")), ("deep", None)] {
        let dir = outer.dir.path().join(name);
        git(outer.dir.path(), &["clone", "--quiet", &outer.url(), name]);
        if let Some(inside) = inside {
            let url = format!("../../{inside}/.git");
            std::fs::write(
                dir.join(".gitmodules"),
                format!("[submodule \"{inside}\"]\n\tpath = {inside}\n\turl = {url}\n"),
            )
            .unwrap();
            let commit = git(&dir, &["rev-parse", "HEAD"]);
            let entry = format!("160000,{commit},{inside}");
            git(&dir, &["update-index", "--add", "--cacheinfo", &entry]);
            git(&dir, &["add", ".gitmodules"]);
            git(&dir, &["commit", "--quiet", "-m", "deeper"]);
        }
    }
    let commit = git(&outer.dir.path().join("lib"), &["rev-parse", "HEAD"]);
    let modules = "[submodule \"lib\"]\n\tpath = lib\n\turl = ../../lib/.git\n";
    std::fs::write(outer.work().join(".gitmodules"), modules).unwrap();
    git(&outer.work(), &["update-index", "--add", "--cacheinfo", &format!("160000,{commit},lib")]);
    git(&outer.work(), &["add", ".gitmodules"]);
    git(&outer.work(), &["commit", "--quiet", "-m", "with a library"]);
    let closed = serve(outer.dir.path(), Some("Basic bWU6aHVudGVyMg=="));
    let url = closed.replace("http://", "http://me:hunter2@") + "/code/.git";
    for revision in [None, Some(git(&outer.work(), &["rev-parse", "HEAD"]))] {
        let name = if revision.is_some() { "commit" } else { "branch" };
        outer.run(&Clone { revision, ..outer.request(name, &url) }).unwrap();
        assert_eq!(outer.read(&format!("{name}/lib/deep/file")), "two");
        let mut found = Vec::new();
        holding(&outer.dir.path().join(name), "hunter2", &mut found);
        assert!(found.is_empty(), "{found:?}");
        // Where it came from is still told.
        let origin = git(&outer.dir.path().join(name), &["remote", "get-url", "origin"]);
        assert_eq!(origin, format!("{closed}/code/.git"));
    }
}

#[test]
fn large_files_are_fetched() {
    if Command::new("git-lfs").arg("version").output().is_err() {
        return skip("there is no git-lfs");
    }
    let repository = Repository::new();
    git(&repository.work(), &["lfs", "install", "--local"]);
    git(&repository.work(), &["lfs", "track", "*.bin"]);
    repository.commit("large.bin", "a large file");
    let stored = git(&repository.work(), &["show", "HEAD:large.bin"]);
    assert!(stored.starts_with("version https://git-lfs"), "{stored}");
    repository.run(&repository.request("to", &repository.url())).unwrap();
    assert_eq!(repository.read("to/large.bin"), "a large file");
}

/// A server of one key on loopback.
struct Sshd {
    child: std::process::Child,
    port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    fn start(dir: &Path) -> Option<Self> {
        let named = std::env::var_os("PORTOLAN_PART_SSHD");
        let sshd = named.map_or_else(|| PathBuf::from("/usr/sbin/sshd"), PathBuf::from);
        let keygen = |name: &str| {
            let args = ["-q", "-t", "ed25519", "-N", "", "-f"];
            Command::new("ssh-keygen").args(args).arg(dir.join(name)).status()
        };
        if !sshd.exists() || keygen("host").is_err() {
            return None;
        }
        keygen("client").ok()?;
        keygen("stranger").ok()?;
        std::fs::copy(dir.join("client.pub"), dir.join("authorized")).unwrap();
        std::fs::create_dir_all("/run/sshd").ok()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nAuthorizedKeysFile {0}/authorized\n\
             StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin yes\n",
            dir.display()
        );
        std::fs::write(dir.join("sshd_config"), config).unwrap();
        let child = Command::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let started = Self { child, port };
        for _ in 0..100 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(started);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        None
    }
}

#[test]
fn over_ssh_the_key_and_known_hosts_count() {
    let repository = Repository::new();
    let keys = repository.dir.path().join("keys");
    std::fs::create_dir(&keys).unwrap();
    let Some(sshd) = Sshd::start(&keys) else {
        return skip("there is no sshd that could be started");
    };
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    let user = String::from_utf8(user).unwrap();
    let url = format!(
        "ssh://{}@127.0.0.1:{}{}/.git",
        user.trim(),
        sshd.port,
        repository.work().display()
    );
    let host = std::fs::read_to_string(keys.join("host.pub")).unwrap();
    let known = |key: &str| format!("[127.0.0.1]:{} {key}", sshd.port);
    let stranger = std::fs::read_to_string(keys.join("stranger.pub")).unwrap();
    let with = |name: &str, key: &str, known: Option<String>| {
        let secret = repository.dir.path().join(format!("secret-{name}"));
        std::fs::create_dir(&secret).unwrap();
        let text = std::fs::read_to_string(keys.join(key)).unwrap();
        // As clusters often have it: without the end of the last line.
        std::fs::write(secret.join("ssh-privatekey"), text.trim_end()).unwrap();
        if let Some(known) = known {
            std::fs::write(secret.join("known_hosts"), known).unwrap();
        }
        let secret = Some(secret);
        repository.run(&Clone { secret, ..repository.request(name, &url) })
    };
    assert_eq!(
        with("known", "client", Some(known(&host))).unwrap().branch.as_deref(),
        Some("main")
    );
    assert!(with("first", "client", None).is_ok());
    let error = with("stranger", "stranger", None).unwrap_err();
    assert_eq!(error.reason, "GitAuthInvalidKey", "{error}");
    let error = with("other", "client", Some(known(&stranger))).unwrap_err();
    assert_eq!(error.reason, "GitError", "{error}");
    assert!(!repository.dir.path().join("other/file").exists());
}
