//! Controllers that are killed, doubled or not alone, and what they clear away.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{BuildSite, wait_for};
use serde_json::json;

use crate::objects::{SOON, build, busybox, many, merge, run, strategy, two_platforms};

#[test]
fn a_controller_that_is_killed_after_making_the_executor_loses_nothing() -> Result<()> {
    let site = BuildSite::new("killed")?;
    site.apply(strategy("slow", 20, 0)?)?;
    site.apply(build("app", "slow", &json!({})))?;
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
    site.apply(build("wide", "slow", &many(&class)))?;
    // Killed as soon as the first executor is seen, wherever it is then with the others.
    let controller = site.lead(busybox()?, &[])?;
    for number in 0..10 {
        site.apply(run(
            &format!("run-{number}"),
            if number % 2 == 0 { "app" } else { "wide" },
            &json!({}),
        ))?;
    }
    let end = Instant::now() + SOON;
    while site.executors()? == 0 {
        ensure!(Instant::now() < end, "nothing is made\n{}", controller.log());
    }
    controller.kill();
    // The very moment between making and writing: an executor that no status names, of either kind.
    let torn = ["torn", "torn-wide"];
    site.apply(run(torn[0], "app", &json!({})))?;
    site.apply(run(torn[1], "wide", &json!({})))?;
    let controller = site.lead(busybox()?, &[])?;
    let [task, pipeline] = [site.executor(torn[0])?, site.executor(torn[1])?];
    assert_eq!((&task["kind"], &pipeline["kind"]), (&json!("TaskRun"), &json!("PipelineRun")));
    controller.kill();
    for name in torn {
        let nothing = r#"{"status":{"executor":null,"taskRunName":null,"conditions":null}}"#;
        site.namespace.kubectl(&[
            "patch",
            "buildrun",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            nothing,
        ])?;
    }
    let controller = site.lead(busybox()?, &[])?;
    for name in (0..10).map(|number| format!("run-{number}")).chain(torn.map(str::to_owned)) {
        site.executor(&name).with_context(|| controller.log())?;
    }
    for (name, before) in torn.iter().zip([task, pipeline]) {
        let now = site.executor(name)?;
        let (now, before) = (&now["metadata"], &before["metadata"]);
        assert_eq!((&now["name"], &now["uid"]), (&before["name"], &before["uid"]), "the same");
    }
    let mut owners: Vec<String> = Vec::new();
    let all = site.namespace.kubectl_json(&["get", "taskruns,pipelineruns"])?;
    for object in all["items"].as_array().context("executors")? {
        if let Some(owner) = object["metadata"]["ownerReferences"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["kind"] == "BuildRun"))
        {
            owners.push(owner["name"].to_string());
        }
    }
    let made = owners.len();
    owners.sort();
    owners.dedup();
    assert_eq!((made, owners.len()), (12, 12), "one for each run");
    Ok(())
}

#[test]
fn of_two_controllers_one_acts_and_the_other_takes_over() -> Result<()> {
    let site = BuildSite::new("two")?;
    site.apply(strategy("plain", 0, 0)?)?;
    site.apply(build("app", "plain", &json!({})))?;
    let first = site.lead(busybox()?, &[])?;
    let mut second = site.start(busybox()?, &[])?;
    second.ready()?;
    site.apply(run("before", "app", &json!({})))?;
    site.executor("before")?;
    assert!(!second.is_leading(), "{}", second.log());
    assert!(!second.log().contains("made"), "{}", second.log());
    // Asked to end, it gives the lease back, and the other need not wait for it to run out.
    first.terminate()?;
    // How long the first takes to end is not what the second waits for.
    let since = Instant::now();
    second.leads()?;
    assert!(since.elapsed() < Duration::from_secs(12), "it took {:?}", since.elapsed());
    site.apply(run("after", "app", &json!({})))?;
    site.executor("after")?;
    // Killed, it gives nothing back: the lease runs out.
    second.kill();
    let mut third = site.start(busybox()?, &[])?;
    third.leads()?;
    // One whose lease somebody else holds stops.
    site.steal_lease()?;
    wait_for("the controller to end", SOON, || {
        ensure!(third.check().is_err(), "it runs");
        Ok(())
    })?;
    assert!(third.log().contains("the lease portolan-controller was lost"), "{}", third.log());
    assert_eq!(site.executors()?, 2);
    Ok(())
}

#[test]
fn runs_are_kept_as_long_and_as_many_as_asked_for() -> Result<()> {
    let site = BuildSite::new("kept")?;
    let _controller = site.lead(busybox()?, &[])?;
    site.apply(strategy("plain", 0, 0)?)?;
    site.apply(build(
        "app",
        "plain",
        &json!({"retention": {"failedLimit": 2, "atBuildDeletion": true}}),
    ))?;
    // Refused runs are failed runs, and quickly made.
    let bad = json!({"serviceAccount": "nobody"});
    for number in 0..4 {
        site.apply(run(&format!("run-{number}"), "app", &bad))?;
        // Ages are in whole seconds.
        std::thread::sleep(Duration::from_millis(1100));
    }
    let names = || -> Result<Vec<String>> {
        let all = site.namespace.kubectl_json(&["get", "buildruns"])?;
        let names = all["items"]
            .as_array()
            .context("runs")?
            .iter()
            .map(|run| run["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        Ok(names.collect())
    };
    wait_for("the oldest to go", SOON, || {
        ensure!(names()? == ["run-2", "run-3"], "{:?}", names()?);
        Ok(())
    })?;
    let mut brief = bad.clone();
    merge(&mut brief, &json!({"retention": {"ttlAfterFailed": "3s"}}));
    site.apply(build("free", "plain", &json!({})))?;
    site.apply(run("brief", "free", &brief))?;
    site.reaches("brief", "False", "ServiceAccountNotFound", SOON)?;
    wait_for("its time to be over", SOON, || {
        ensure!(!names()?.contains(&"brief".to_owned()), "{:?}", names()?);
        Ok(())
    })?;
    // Runs go with their Build.
    site.namespace.kubectl(&["delete", "build", "app"])?;
    wait_for("the runs to go with it", SOON, || {
        ensure!(names()?.is_empty(), "{:?}", names()?);
        Ok(())
    })
}

#[test]
fn another_controller_is_noticed_and_taken_over_from_only_on_request() -> Result<()> {
    let site = BuildSite::new("other")?;
    site.apply(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shipwright-build-controller"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"nodeSelector": {"portolan.dev/no-such": "node"}, "containers": [{"name": "a", "image": busybox()?}]},
        }},
    }))?;
    let mut refused = site.start(busybox()?, &[])?;
    wait_for("the controller to end", SOON, || {
        ensure!(refused.check().is_err(), "it runs");
        Ok(())
    })?;
    let log = refused.log();
    assert!(
        log.contains("another controller serves these resources") && log.contains("--takeover"),
        "{log}"
    );
    let taking = site.lead(busybox()?, &["--takeover"])?;
    assert!(taking.log().contains("taking over as asked"), "{}", taking.log());
    taking.terminate()?;
    site.namespace.kubectl(&[
        "scale",
        "deployment",
        "shipwright-build-controller",
        "--replicas=0",
    ])?;
    site.lead(busybox()?, &[])?;
    Ok(())
}
