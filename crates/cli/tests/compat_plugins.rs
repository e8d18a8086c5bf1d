//! `portolan compat check` with plugins that are not built in: allowed, found, run, told.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod support;

#[path = "../../compat/tests/external/naughty.rs"]
mod naughty;
#[path = "../../registry/tests/common/skip.rs"]
mod skip;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{HELLO, Said, Server, run};

/// A home with a directory of plugins and a policy.
struct Bench {
    home: tempfile::TempDir,
    program: PathBuf,
}

impl Bench {
    /// None where the program cannot be built.
    fn new() -> Option<Self> {
        let Some(program) = naughty::naughty() else {
            skip::skip("no C compiler that links statically");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        let plugins = home.path().join("compat/plugins");
        fs::create_dir_all(&plugins).unwrap();
        for path in [&home.path().join("compat"), &plugins] {
            chmod(path, 0o755);
        }
        Some(Self { home, program: program.to_owned() })
    }

    fn install(&self, name: &str) {
        let path = self.home.path().join("compat/plugins").join(name);
        fs::copy(&self.program, &path).unwrap();
        chmod(&path, 0o755);
    }

    fn file(&self, name: &str, content: &Value) -> String {
        let path = self.home.path().join(name);
        fs::write(&path, content.to_string()).unwrap();
        chmod(&path, 0o644);
        path.display().to_string()
    }

    fn policy(&self, rules: &Value, http: &Value) -> String {
        self.file("policy.json", &json!({"version": 1, "rules": rules, "http": http}))
    }

    fn spec(&self, plugin: &Value) -> String {
        let namespaces = json!({"n": {"plugins": {"naughty": plugin}}});
        self.file("spec.json", &json!({"schemaVersion": "0.1.0", "namespaces": namespaces}))
    }

    fn check(&self, policy: &str, more: &[&str]) -> Said {
        let dir = self.home.path().join("compat").display().to_string();
        let args =
            ["compat", "check", "--plugin-policy", policy, "--plugin-dir", &dir, "-o", "json"];
        run(self.home.path(), &[&args[..], more].concat())
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What the report says of the plugin, provided its cage can be built here.
fn answer(said: &Said) -> Option<Value> {
    let report: Value = serde_json::from_str(&said.out)
        .unwrap_or_else(|e| panic!("{e}: {} {}", said.out, said.err));
    let answer = report["namespaces"]["n"]["plugins"]["naughty"].clone();
    let first = &answer["reasons"][0];
    if first["code"] == "E_SANDBOX" {
        skip::skip(first["message"].as_str().unwrap_or_default());
        return None;
    }
    Some(answer)
}

#[test]
fn an_installed_plugin_decides_the_exit_code() {
    let Some(bench) = Bench::new() else { return };
    bench.install("naughty");
    let rules = json!([{"providers": ["directory"], "plugins": ["naughty"], "timeoutSeconds": 60}]);
    let policy = bench.policy(&rules, &json!({}));
    for (mode, code) in [("pass", 0), ("fail", 1), ("unknown", 3), ("garbage", 3), ("signal", 3)] {
        let spec = bench.spec(&json!({"data": {"mode": mode}}));
        let said = bench.check(&policy, &["--spec", &spec]);
        let Some(answer) = answer(&said) else { return };
        assert_eq!(said.code, code, "{mode}: {answer:#} {}", said.err);
        assert_eq!(answer["provider"], "directory");
        assert!(answer["digest"].as_str().unwrap().starts_with("sha256:"));
        if mode == "pass" {
            assert!(
                answer["sandbox"].as_array().unwrap().contains(&json!("landlock")),
                "{answer:#}"
            );
            assert!(answer["durationMs"].is_u64());
        }
    }
}

#[test]
fn a_policy_decides_and_a_bad_one_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    bench.install("naughty");
    let spec = bench.spec(&json!({"data": {"mode": "pass"}}));
    let nothing = bench.policy(&json!([]), &json!({}));
    let said = bench.check(&nothing, &["--spec", &spec]);
    assert_eq!(
        (said.code, &answer(&said).unwrap()["reasons"][0]["code"]),
        (3, &json!("E_PLUGIN_POLICY"))
    );

    chmod(Path::new(&nothing), 0o666);
    let said = bench.check(&nothing, &["--spec", &spec]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("others may write to it"), "{}", said.err);
    assert_eq!(bench.check("/nonexistent/policy.json", &["--spec", &spec]).code, 4);
    // What is built in needs no policy, not even a good one.
    let plain = json!({"schemaVersion": "0.1.0", "namespaces": {"n": {"plugins": {"kernelVersion": {"data": {"range": "[1.0,)"}}}}}});
    let plain = bench.file("plain.json", &plain);
    assert_eq!(bench.check(&nothing, &["--spec", &plain]).code, 0);
}

#[test]
fn a_plugin_comes_with_the_artifact_or_from_another_one() {
    let Some(bench) = Bench::new() else { return };
    let server = Server::start(bench.home.path(), &bench.home.path().join("data"), &[]);
    let repository = format!("{}/team/hello", server.address);
    let image = format!("{repository}:1");
    run(bench.home.path(), &["image", "copy", HELLO, &image]).ok();
    let spec = bench.spec(&json!({"data": {"mode": "pass"}}));
    let here = portolan_host::Host::here().unwrap().platform().unwrap().platform;
    let here = format!("{}/{}", here.os, here.architecture);
    let plugin = format!("naughty={}@{here}", bench.program.display());
    let attach = ["compat", "attach", &image, "--file", &spec, "--plugin", &plugin];
    run(bench.home.path(), &attach).ok();

    let rules = json!([{"providers": ["layer"], "repositories": [format!("{}/team/*", server.address)], "timeoutSeconds": 60}]);
    let policy = bench.policy(&rules, &json!({}));
    let said = bench.check(&policy, &[&image, "--platform", &here]);
    let Some(found) = answer(&said) else { return };
    assert_eq!((said.code, &found["provider"]), (0, &json!("layer")), "{found:#}");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let artifact = report["artifact"].as_str().unwrap().to_owned();

    // Another repository's spec may not use it, and neither may one from a file.
    let other =
        json!([{"providers": ["layer"], "repositories": [format!("{}/other/*", server.address)]}]);
    let said = bench.check(&bench.policy(&other, &json!({})), &[&image, "--platform", &here]);
    assert_eq!(
        (said.code, &answer(&said).unwrap()["reasons"][0]["code"]),
        (3, &json!("E_PLUGIN_POLICY"))
    );

    // By way of `oci://`, from a spec in a file.
    let rules = json!([{"providers": ["http"], "plugins": ["naughty"], "timeoutSeconds": 60}]);
    let source = format!("oci://{repository}@{artifact}");
    let spec = bench.spec(&json!({"source": source, "data": {"mode": "fail"}}));
    let said = bench.check(&bench.policy(&rules, &json!({})), &["--spec", &spec]);
    assert_eq!(answer(&said).unwrap()["reasons"][0]["code"], "E_PLUGIN_FETCH", "not listed");
    let listed = bench.policy(&rules, &json!({"registries": [repository]}));
    let said = bench.check(&listed, &["--spec", &spec, "--offline"]);
    assert_eq!(answer(&said).unwrap()["reasons"][0]["code"], "E_PLUGIN_FETCH", "offline");
    let said = bench.check(&listed, &["--spec", &spec]);
    let found = answer(&said).unwrap();
    assert_eq!((said.code, &found["provider"]), (1, &json!("http")), "{found:#}");
}

#[test]
fn resolving_asks_plugins_as_checking_does() {
    let Some(bench) = Bench::new() else { return };
    bench.install("naughty");
    let server = Server::start(bench.home.path(), &bench.home.path().join("data"), &[]);
    let image = format!("{}/team/hello:1", server.address);
    run(bench.home.path(), &["image", "copy", HELLO, &image]).ok();
    let rules = json!([{"providers": ["directory"], "plugins": ["naughty"], "timeoutSeconds": 60}]);
    let policy = bench.policy(&rules, &json!({}));
    let dir = bench.home.path().join("compat").display().to_string();
    let resolve = |more: &[&str]| {
        let args = ["image", "resolve", &image, "--compatible", "--plugin-dir", &dir];
        run(bench.home.path(), &[&args[..], more].concat())
    };
    for (mode, code) in [("fail", 1), ("pass", 0)] {
        run(bench.home.path(), &["compat", "remove", &image]);
        let spec = bench.spec(&json!({"data": {"mode": mode}}));
        run(bench.home.path(), &["compat", "attach", &image, "--file", &spec]).ok();
        let said = resolve(&["--plugin-policy", &policy]);
        if said.err.contains("E_SANDBOX") || said.err.contains("is not to be had here") {
            return skip::skip(&said.err);
        }
        assert_eq!(said.code, code, "{mode}: {} {}", said.out, said.err);
        let nothing = bench.file("nothing.json", &json!({"version": 1, "rules": []}));
        let said = resolve(&["--plugin-policy", &nothing]);
        assert_eq!(said.code, 3, "{mode}: {} {}", said.out, said.err);
    }
}

/// B15: a source beside a built-in plugin's name is not even looked at, unless a rule says so.
#[test]
fn a_built_in_plugin_keeps_its_name_unless_the_policy_says_otherwise() {
    let Some(bench) = Bench::new() else { return };
    bench.install("kernelVersion");
    let source = format!("oci://127.0.0.1:1/a/b@sha256:{}", "a".repeat(64));
    let plugin = json!({"source": source, "data": {"range": "[1.0,)", "mode": "fail"}});
    let spec = json!({"schemaVersion": "0.1.0", "namespaces": {"n": {"plugins": {"kernelVersion": plugin}}}});
    let spec = bench.file("spec.json", &spec);
    for (overrides, provider) in [(false, "built-in"), (true, "directory")] {
        let rules = json!([{"providers": ["directory"], "plugins": ["*"], "overrides": overrides, "timeoutSeconds": 60}]);
        let said = bench.check(&bench.policy(&rules, &json!({})), &["--spec", &spec]);
        let report: Value = serde_json::from_str(&said.out).unwrap();
        let answer = &report["namespaces"]["n"]["plugins"]["kernelVersion"];
        if answer["reasons"][0]["code"] == "E_SANDBOX" {
            return skip::skip("no cage for plugins here");
        }
        assert_eq!(answer["provider"], provider, "{answer:#}");
    }
}

#[test]
fn the_helper_is_nobody_s_command() {
    let home = tempfile::tempdir().unwrap();
    let said = run(home.path(), &["plugin-sandbox"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("started by portolan itself"), "{}", said.err);
}
