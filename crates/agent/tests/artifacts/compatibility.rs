//! What an image needs of its host, before anything is built and at every start.

use std::path::Path;

use bytes::Bytes;
use portolan_agent::artifacts::CompatibilityGate;
use portolan_agent::config::{CompatibilityConfig, CompatibilityMode, CompatibilityOf};
use portolan_agent::reason::Reason;
use portolan_compat::artifact::{Attachment, Kind, attach};
use portolan_registry::images::Place;

use crate::harness::{Yard, chain, resolved_at, small};
use crate::support::embedded::Embedded;
use crate::support::fault::{Answer, Fault, FaultServer, REPOSITORY};
use crate::support::image::Image;
use crate::support::scenarios::{client, seed};

const NEW: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[7.0,)"}}}}}}"#;

async fn attached(server: &Embedded, image: &Image, spec: &str) {
    let place = Place::Remote(
        client().repository(&server.host().parse().unwrap(), &REPOSITORY.parse().unwrap()),
    );
    let attachment = Attachment {
        kind: Kind::Spec,
        spec: Bytes::copy_from_slice(spec.as_bytes()),
        plugins: Vec::new(),
        created: "2026-01-01T00:00:00Z".parse().unwrap(),
    };
    attach(&place, &image.top, &attachment).await.unwrap();
}

fn yard(mode: CompatibilityMode, host: &Path, kernel: Option<&str>) -> Yard {
    let mut yard = Yard::new();
    yard.config.compatibility = CompatibilityConfig {
        mode,
        of: CompatibilityOf::Host,
        host_root: Some(host.to_owned()),
        ..CompatibilityConfig::default()
    };
    let dir = host.join("proc/sys/kernel");
    std::fs::create_dir_all(&dir).unwrap();
    if let Some(kernel) = kernel {
        std::fs::write(dir.join("osrelease"), kernel).unwrap();
    }
    yard
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_needs_the_host_does_not_meet_is_not_started() {
    let server = Embedded::start().await;
    let image = small(1);
    seed(&image, &server.host(), &format!("{REPOSITORY}:v1")).await;
    attached(&server, &image, NEW).await;
    let wanted = resolved_at(&server.host(), image.top.digest);
    let hosts = tempfile::tempdir().unwrap();
    let host = |name: &str| hosts.path().join(name);

    let old = yard(CompatibilityMode::Enforce, &host("old"), Some("6.1.0")).open();
    old.refused(&wanted, Reason::HostIncompatible, &["does not meet", "6.1.0"]).await;
    let bare = yard(CompatibilityMode::Enforce, &host("bare"), None).open();
    bare.refused(&wanted, Reason::HostIncompatible, &["not known whether"]).await;
    let new = yard(CompatibilityMode::Enforce, &host("new"), Some("7.1.0")).open();
    new.acquire("i", &wanted).await;
    for mode in [CompatibilityMode::Warn, CompatibilityMode::Off] {
        yard(mode, &host("old"), Some("6.1.0")).open().acquire("i", &wanted).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_an_artifact_starts_and_a_broken_one_does_not() {
    let server = Embedded::start().await;
    let hosts = tempfile::tempdir().unwrap();
    let berth = yard(CompatibilityMode::Enforce, hosts.path(), Some("6.1.0")).open();
    let (plain, broken) = (small(1), small(2));
    seed(&plain, &server.host(), &format!("{REPOSITORY}:v1")).await;
    seed(&broken, &server.host(), &format!("{REPOSITORY}:v2")).await;
    berth.acquire("plain", &resolved_at(&server.host(), plain.top.digest)).await;
    attached(&server, &broken, "{}").await;
    let wanted = resolved_at(&server.host(), broken.top.digest);
    berth.refused(&wanted, Reason::HostIncompatible, &["not valid"]).await;
}

/// A gateway's page is no word that the image needs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_needs_a_web_page_hides_is_not_started() {
    let image = small(1);
    let server = FaultServer::holding(&image);
    let wanted = resolved_at(&server.host(), image.top.digest);
    let hosts = tempfile::tempdir().unwrap();
    let page = Answer::new(200, "<html>").header("content-type", "text/html");
    let path = format!("/referrers/{}", image.top.digest);
    server.script("GET", path, vec![Fault::Answer(page)]);
    let berth = yard(CompatibilityMode::Enforce, hosts.path(), Some("6.1.0")).open();
    let words = ["could not be found out", "text/html"];
    berth.refused(&wanted, Reason::HostIncompatible, &words).await;
    // Nothing of it is kept: the truth is that nothing is attached.
    berth.acquire("i", &wanted).await;
}

/// A disk that is cached, and a registry that is gone: what was asked just before still counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_cached_disk_passes_the_gate_without_asking_again() {
    let server = Embedded::start().await;
    let image = small(1);
    seed(&image, &server.host(), &format!("{REPOSITORY}:v1")).await;
    attached(&server, &image, NEW).await;
    let wanted = resolved_at(&server.host(), image.top.digest);
    let hosts = tempfile::tempdir().unwrap();
    let berth = yard(CompatibilityMode::Enforce, hosts.path(), Some("7.0.0")).open();
    berth.acquire("one", &wanted).await;
    drop(server);
    berth.acquire("two", &wanted).await;
    // The host is looked at each time.
    std::fs::write(hosts.path().join("proc/sys/kernel/osrelease"), "6.9.0").unwrap();
    let error = berth.try_acquire("three", &wanted).await.unwrap_err();
    assert_eq!(error.reason(), Reason::HostIncompatible, "{}", chain(&error));
}

/// What an image needs of its kernel it needs of the guest's: the host's it never sees.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_s_needs_are_held_against_the_machine_that_it_runs_in() {
    let server = Embedded::start().await;
    let image = small(1);
    seed(&image, &server.host(), &format!("{REPOSITORY}:v1")).await;
    attached(&server, &image, NEW).await;
    let wanted = resolved_at(&server.host(), image.top.digest);
    let dir = tempfile::tempdir().unwrap();
    let guest = |name: &str, host: &str, kernel: &str| {
        let mut yard = yard(CompatibilityMode::Enforce, &dir.path().join(name), Some(host));
        yard.config.compatibility.of = CompatibilityOf::Guest;
        let file = dir.path().join(format!("{name}-vmlinux"));
        std::fs::write(&file, format!("\x7fELF Linux version {kernel} (gcc)\0")).unwrap();
        yard.config.guest.kernel = Some(file);
        yard.open()
    };
    guest("new-guest", "6.1.0", "7.1.0").acquire("i", &wanted).await;
    let old = guest("new-host", "7.1.0", "6.1.0");
    let words = ["a machine of this agent does not meet", "6.1.0"];
    old.refused(&wanted, Reason::HostIncompatible, &words).await;
    let mut none = yard(CompatibilityMode::Enforce, &dir.path().join("none"), Some("7.1.0"));
    none.config.compatibility.of = CompatibilityOf::Guest;
    none.open().refused(&wanted, Reason::HostIncompatible, &["not known whether"]).await;
}

/// Plugins that are not built in run where the policy says so, in the agent's own cage.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_the_policy_allows_decides_a_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(program) = crate::naughty::naughty() else {
        return crate::support::skip::skip("no C compiler that links statically");
    };
    let server = Embedded::start().await;
    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins/plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::copy(program, plugins.join("naughty")).unwrap();
    let policy = dir.path().join("policy.json");
    let rules = r#"{"version": 1, "rules": [{"providers": ["directory"], "plugins": ["naughty"], "timeoutSeconds": 60}]}"#;
    std::fs::write(&policy, rules).unwrap();
    let chmod = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod(&dir.path().join("plugins"), 0o755);
    chmod(&plugins, 0o755);
    chmod(&policy, 0o644);
    let open = |name: &str, policy: &Path| {
        let mut yard = yard(CompatibilityMode::Enforce, &dir.path().join(name), Some("6.1.0"));
        yard.config.compatibility.plugin_policy = policy.to_owned();
        yard.config.compatibility.plugin_dir = dir.path().join("plugins");
        // The agent's program is the helper; this test's is not.
        let runner = portolan_compat::external::Runner {
            helper: env!("CARGO_BIN_EXE_portolan-agent").into(),
            ..Default::default()
        };
        yard.open_with_gate(|gate: CompatibilityGate| gate.with_runner(runner))
    };
    for (n, mode) in [(1, "pass"), (2, "fail"), (3, "garbage")] {
        let image = small(n);
        seed(&image, &server.host(), &format!("{REPOSITORY}:v{n}")).await;
        let spec = format!(
            r#"{{"schemaVersion": "0.1.0", "namespaces": {{"n": {{"plugins": {{"naughty": {{"data": {{"mode": "{mode}"}}}}}}}}}}}}"#
        );
        attached(&server, &image, &spec).await;
        let wanted = resolved_at(&server.host(), image.top.digest);
        let berth = open(mode, &policy);
        match (mode, berth.try_acquire("i", &wanted).await) {
            (_, Err(error)) if chain(&error).contains("is not to be had here") => {
                return crate::support::skip::skip(&chain(&error));
            }
            ("pass", acquired) => drop(acquired.unwrap()),
            ("fail", Err(error)) => {
                assert!(chain(&error).contains("so it is"), "{}", chain(&error))
            }
            (_, Err(error)) => {
                assert!(chain(&error).contains("not known whether"), "{}", chain(&error))
            }
            (_, Ok(_)) => panic!("{mode}: started"),
        }
        // Once more, with the programs that were kept; and without a policy it stays unknown.
        if mode == "pass" {
            berth.acquire("again", &wanted).await;
        }
        let bare = open(&format!("{mode}-bare"), &dir.path().join("no-policy.json"));
        bare.refused(&wanted, Reason::HostIncompatible, &["external plugins are off"]).await;
    }
    chmod(&policy, 0o666);
    let wanted = resolved_at(&server.host(), small(1).top.digest);
    let open_to_all = open("open", &policy);
    open_to_all.refused(&wanted, Reason::HostIncompatible, &["others may write to it"]).await;
}

#[test]
fn the_agent_is_its_own_helper_and_nobody_s_command() {
    let said = std::process::Command::new(env!("CARGO_BIN_EXE_portolan-agent"))
        .arg("plugin-sandbox")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(2));
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("started by portolan itself"), "{text}");
}
