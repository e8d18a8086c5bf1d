//! Where source comes from: a directory that is sent, an artifact, a repository that asks who is there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Repository, Running, Testbed, digest, free_port, hello_source, ok, portolan, wait_for,
};
use serde_json::json;

use crate::works::{Works, both_run, not_published};

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is text")
}

/// `examples/hello` in a directory of a directory.
fn nested(works: &Works) -> Result<PathBuf> {
    let files = works.dir.path().join("files");
    std::fs::create_dir(&files)?;
    ok(Command::new("cp").arg("-r").arg(hello_source()).arg(files.join("app")));
    std::fs::write(files.join("README"), "not built")?;
    Ok(files)
}

#[test]
fn a_directory_of_this_machine_is_uploaded_and_built() -> Result<()> {
    let works = Works::new("upload")?;
    let image = works.image("app");
    // Whatever the source is, this part of it is built.
    let git = ["--source-git-url", "https://git.invalid/app.git", "--source-context-dir", "app"];
    works.make("app", &image[0], &[&git[..], &["--output-timestamp", "1700000000"]].concat())?;
    let source = nested(&works)?;
    let said = works.follow(&["build", "upload", "app", text(&source)?])?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());
    both_run(&works, &image)?;
    // Built here from the same directory: the same index, and the same source beside it.
    let laptop = &works.image("laptop")[1];
    let here = works.here("app", laptop, &["--dir", text(&source)?])?;
    assert_eq!(here["output"]["digest"], digest(&image[1]), "{here}");
    assert_eq!(digest(&format!("{laptop}-src")), digest(&format!("{}-src", image[1])));
    Ok(())
}

#[test]
fn an_upload_that_never_comes_is_told_in_the_status() -> Result<()> {
    let works = Works::new("waiting")?;
    let image = works.image("app");
    works.make("app", &image[0], &[])?;
    works.site.apply(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": "waits"},
        "spec": {"build": {"name": "app"}, "source": {"type": "Local", "local": {"timeout": "2s"}}},
    }))?;
    let failed = works.site.reaches("waits", "False", "Failed", Duration::from_secs(120));
    let failed = failed.with_context(|| works.told())?;
    let details = &failed["status"]["failureDetails"];
    assert_eq!(details["reason"], "UploadTimeout", "{details}");
    assert!(details["message"].to_string().contains("portolan build upload"), "{details}");
    assert_eq!(details["location"]["container"], "step-source-local", "{details}");
    not_published(&image[1])
}

#[test]
fn an_artifact_is_a_source_and_goes_when_everybody_has_it() -> Result<()> {
    let works = Works::new("artifact")?;
    let (image, stored) = (works.image("app"), works.image("source"));
    let source = nested(&works)?;
    ok(portolan().args(["step", "source-push", "--image", &stored[1], "--source"]).arg(&source));
    let from = ["--source-oci-artifact-image", &stored[0], "--source-context-dir", "app"];
    let prune =
        ["--source-oci-artifact-prune", "AfterPull", "--output-timestamp", "SourceTimestamp"];
    works.make("app", &image[0], &[from, prune].concat())?;
    let here = works.here("app", &works.image("laptop")[1], &["--source", &stored[1]])?;
    let was = digest(&stored[1]);
    let said = works.follow(&["build", "run", "app"])?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());
    let status = &works.run_of("app")?["status"];
    assert_eq!(status["source"]["ociArtifact"]["digest"], json!(was), "{status}");
    assert_eq!(status["output"]["digest"], here["output"]["digest"], "{here}\n{status}");
    both_run(&works, &image)?;
    wait_for("the artifact to go", Duration::from_secs(60), || not_published(&stored[1]))
}

/// The source goes to the registry with the developer's own login, and the run takes it from there.
#[test]
fn a_directory_is_sent_by_way_of_the_registry() -> Result<()> {
    let works = Works::new("bundle")?;
    let (image, stored) = (works.image("app"), works.image("source"));
    works.make("app", &image[0], &["--source-oci-artifact-image", &stored[0]])?;
    // Pods reach the registry by another address than this machine, where only one is plain HTTP unasked.
    let registries = works.dir.path().join("registries.toml");
    let host = &Testbed::get().registry.cluster;
    std::fs::write(&registries, format!("[host.\"{host}\"]\nplain_http = true\n"))?;
    let registries = text(&registries)?;
    let upload = ["--registries", registries, "build", "upload", "app"];
    let said = works.follow(&[&upload[..], &[text(&hello_source())?]].concat())?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());
    let status = &works.run_of("app")?["status"];
    assert_eq!(status["source"]["ociArtifact"]["digest"], json!(digest(&stored[1])), "{status}");
    both_run(&works, &image)
}

/// An ssh server on the bridge, with a key that it knows and one that it does not.
struct Sshd {
    port: u16,
    keys: PathBuf,
    _server: Running,
}

impl Sshd {
    fn start(parent: &Path) -> Result<Self> {
        let keys = parent.join("keys");
        std::fs::create_dir(&keys)?;
        for name in ["host", "client", "stranger"] {
            let args = ["-q", "-t", "ed25519", "-N", "", "-f"];
            ok(Command::new("ssh-keygen").args(args).arg(keys.join(name)));
        }
        std::fs::create_dir_all("/run/sshd")?;
        let address = Testbed::get().bridge_address;
        let port = free_port(address)?;
        let config = keys.join("sshd_config");
        let dir = keys.display();
        std::fs::write(
            &config,
            format!(
                "Port {port}\nListenAddress {address}\nHostKey {dir}/host\nAuthorizedKeysFile {dir}/client.pub\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nPermitRootLogin yes\n"
            ),
        )?;
        let server =
            Running::start(Command::new("/usr/sbin/sshd").args(["-D", "-e", "-f"]).arg(&config))?;
        wait_for("sshd", Duration::from_secs(10), || {
            std::net::TcpStream::connect((address, port)).map(drop).context("connect")
        })?;
        Ok(Self { port, keys, _server: server })
    }

    fn secret(&self, name: &str, key: &str) -> Result<serde_json::Value> {
        let read = |file: &str| std::fs::read_to_string(self.keys.join(file));
        let host = read("host.pub")?;
        let known = format!("[{}]:{} {host}", Testbed::get().bridge_address, self.port);
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/ssh-auth",
            "stringData": {"ssh-privatekey": read(key)?, "known_hosts": known},
        }))
    }
}

#[test]
fn a_repository_that_asks_for_a_key_is_cloned_with_the_builds_secret() -> Result<()> {
    let works = Works::new("ssh")?;
    let _daemon = Repository::serve(&hello_source(), works.dir.path())?;
    let sshd = Sshd::start(works.dir.path())?;
    let address = Testbed::get().bridge_address;
    let place = works.dir.path().join("app.git/.git");
    let url = format!("ssh://root@{address}:{}{}", sshd.port, place.display());
    works.site.apply(sshd.secret("key", "client")?)?;
    works.site.apply(sshd.secret("wrong", "stranger")?)?;
    let image = works.image("app");
    let build = |name: &str, secret: &str| {
        works.make(
            name,
            &image[0],
            &["--source-git-url", &url, "--source-git-clone-secret", secret],
        )
    };
    build("wrong", "wrong")?;
    let said = works.follow(&["build", "run", "wrong"])?;
    ensure!(said.code == Some(1), "{said}");
    let details = works.run_of("wrong")?["status"]["failureDetails"].clone();
    assert_eq!(details["reason"], "GitAuthInvalidKey", "{details}");
    not_published(&image[1])?;
    build("app", "key")?;
    let said = works.follow(&["build", "run", "app"])?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());
    both_run(&works, &image)
}
