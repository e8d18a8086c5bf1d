//! Runs that are refused: nothing is made for them, and everything that is wrong is named.

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{BuildSite, condition, wait_for};
use serde_json::{Value, json};

use crate::objects::{
    OfCluster, SOON, build, busybox, many, merge, nothing_forbidden, run, strategy, two_platforms,
};

#[test]
fn a_refused_run_makes_nothing_and_names_everything_that_is_wrong() -> Result<()> {
    let site = BuildSite::new("refused")?;
    let controller = site.lead(busybox()?, &[])?;
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
    let pinned = json!({"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "builds", "operator": "Exists"}], "runtimeClass": {"name": "kata"}});
    let _third = OfCluster::platform(&format!("{class}-s390x"), "s390x", &pinned)?;
    let _pinned = OfCluster::class(&format!("{class}-pinned"), &[&format!("{class}-s390x")])?;
    let _broken = OfCluster::class(&format!("{class}-broken"), &["nobody"])?;
    site.apply(strategy("plain", 0, 0)?)?;
    site.apply(build("app", "plain", &many(&class)))?;
    let other = |class: &str, platforms: Value| json!({"output": {"multiArch": {"imagePlatformClass": class, "platforms": platforms}}});
    let linux = |arch: &str| json!({"os": "linux", "arch": arch});
    let mut collides = other(&format!("{class}-pinned"), json!([linux("s390x")]));
    merge(
        &mut collides,
        &json!({"nodeSelector": {"disk": "slow"}, "runtimeClassName": "gvisor",
                                 "tolerations": [{"key": "builds", "operator": "Exists"}]}),
    );
    let mut twice = many(&class);
    merge(&mut twice, &json!({"paramValues": [{"name": "SHP_BUILD_PLATFORM", "value": "x"}]}));
    let cases: [(&str, Value, &str, &[&str]); 12] = [
        ("no-build", run("", "nobody", &json!({})), "BuildNotFound", &["nobody"]),
        (
            "no-class",
            run("", "app", &other("nobody", json!([linux("amd64")]))),
            "ImagePlatformClassNotFound",
            &["nobody"],
        ),
        (
            "broken",
            run("", "app", &other(&format!("{class}-broken"), json!([linux("amd64")]))),
            "ImagePlatformClassNotAvailable",
            &["ImagePlatformNotFound"],
        ),
        (
            "unsupported",
            run("", "app", &other(&class, json!([linux("amd64"), linux("riscv64")]))),
            "PlatformNotSupported",
            &["riscv64"],
        ),
        (
            "duplicate",
            run("", "app", &other(&class, json!([linux("amd64"), linux("amd64")]))),
            "InvalidPlatform",
            &["duplicate"],
        ),
        (
            "collisions",
            run("", "app", &collides),
            "NodeSelectorCollision",
            &["disk", "TolerationCollision", "builds", "RuntimeClassCollision", "gvisor"],
        ),
        (
            "params",
            run("", "app", &twice),
            "ParamValueCollision",
            &["amd64", "arm64", "SHP_BUILD_PLATFORM"],
        ),
        (
            "digest",
            run("", "app", &json!({"output": {"image": format!("h.example/a@sha256:{:064}", 1)}})),
            "OutputImageNotValid",
            &["name a tag"],
        ),
        (
            "undefined",
            run("", "app", &json!({"paramValues": [{"name": "nobody", "value": "x"}]})),
            "UndefinedParameter",
            &["nobody"],
        ),
        (
            "account",
            run("", "app", &json!({"serviceAccount": "nobody"})),
            "ServiceAccountNotFound",
            &["nobody"],
        ),
        (
            "secret",
            run("", "app", &json!({"output": {"pushSecret": "nobody"}})),
            "VolumeDoesNotExist",
            &["nobody"],
        ),
        (
            "canceled",
            run("", "app", &json!({"state": "BuildRunCanceled"})),
            "BuildRunCanceled",
            &["canceled"],
        ),
    ];
    for (name, mut object, _, _) in cases.clone() {
        object["metadata"]["name"] = json!(name);
        site.apply(object)?;
    }
    for (name, _, reason, parts) in &cases {
        let refused =
            site.reaches(name, "False", reason, SOON).with_context(|| controller.log())?;
        let message = condition(&refused, "Succeeded").context("one")?["message"]
            .as_str()
            .unwrap_or_default();
        for part in *parts {
            assert!(message.contains(part), "{name}: {message}");
        }
        assert!(refused["status"]["completionTime"].is_string(), "{refused}");
        assert!(refused["status"]["executor"].is_null(), "{refused}");
    }
    // Builds that cannot be used, each with its reason.
    let long = "a".repeat(64);
    let git = |secret: &str| json!({"source": {"type": "Git", "git": {"url": "https://git.example/a.git", "cloneSecret": secret}}});
    let mut both = git("missing-a");
    merge(&mut both, &json!({"output": {"pushSecret": "missing-b"}}));
    for (name, more, reason, told) in [
        (long.as_str(), json!({}), "BuildNameInvalid", "not a label value"),
        (
            "clone-secret",
            git("missing"),
            "SpecSourceSecretRefNotFound",
            "referenced secret missing not found",
        ),
        (
            "push-secret",
            json!({"output": {"pushSecret": "missing"}}),
            "SpecOutputSecretRefNotFound",
            "referenced secret missing not found",
        ),
        ("secrets", both, "MultipleSecretRefNotFound", "missing secrets are missing-a,missing-b"),
    ] {
        site.apply(build(name, "plain", &more))?;
        wait_for(reason, SOON, || {
            let found = site.namespace.kubectl_json(&["get", "build", name])?;
            let said = &found["status"];
            ensure!(said["registered"] == "False" && said["reason"] == reason, "{said}");
            ensure!(said["message"].as_str().is_some_and(|text| text.contains(told)), "{said}");
            Ok(())
        })?;
    }
    site.apply(run("no-secret", "clone-secret", &json!({})))?;
    let refused = site.reaches("no-secret", "False", "BuildRegistrationFailed", SOON)?;
    assert!(refused.to_string().contains("reason: SpecSourceSecretRefNotFound"), "{refused}");
    // A Build that cannot be used.
    site.apply(build("bad", "nobody", &json!({})))?;
    site.apply(run("unregistered", "bad", &json!({})))?;
    let refused = site.reaches("unregistered", "False", "BuildRegistrationFailed", SOON)?;
    assert!(refused.to_string().contains("reason: BuildStrategyNotFound"), "{refused}");
    assert_eq!(site.executors()?, 0);
    nothing_forbidden(&controller);
    Ok(())
}
