//! The policy, read again when it changes.

use crate::harness::{Bench, LONG, SHORT, V1, policy, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_policy_is_told_and_the_old_one_stays_until_a_good_one_comes() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start_with("", SHORT).await;
    let key = bench.key_for("amd64");
    let refused = "portolan_verifier_policy_reloads_total{result=\"refused\"}";
    for broken in ["version: 1\nsigners: [", "version: 1\n", "version: 9\ndefault: {}\n"] {
        let before = verifier.metric(refused).await;
        bench.write("policy.yaml", broken);
        until(async || verifier.metric(refused).await > before).await;
        let said = verifier.ask(V1, &[&key]).await;
        assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    }
    let before = verifier.metric(refused).await;
    std::fs::remove_file(bench.path("policy.yaml")).unwrap();
    until(async || verifier.metric(refused).await > before).await;
    assert_eq!(verifier.metric("portolan_verifier_policy_generation").await, 1.0);
    bench.write("policy.yaml", &policy("  indexPolicy: index\n"));
    verifier.generation(2.0).await;
    assert_eq!(verifier.health("/readyz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machines_of_the_cluster_are_those_in_the_file_of_nodes() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    bench.write("policy.yaml", &policy("  platforms: nodes\n"));
    let node = |arch: &str| {
        format!(
            "- {{metadata: {{name: {arch}}}, status: {{nodeInfo: {{operatingSystem: linux, architecture: {arch}}}}}}}\n"
        )
    };
    bench.write("nodes.yaml", &format!("items:\n{}", node("amd64")));
    let pods = format!("{SHORT}\n[pods]\nnodes = {:?}\n", bench.path("nodes.yaml"));
    let verifier = bench.start_with("", &pods).await;
    let key = bench.image(":v1");
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    bench.write("nodes.yaml", &format!("items:\n{}{}", node("amd64"), node("arm64")));
    verifier.generation(2.0).await;
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
    assert_eq!(said.value()["platforms"], serde_json::json!(["linux/amd64", "linux/arm64"]));
}

/// It is one of the policy's files: a change is in force within the poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_rego_decides_for_the_cluster_and_is_read_again() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let rego = |allow: &str| {
        format!(
            "package portolan\ndecision := {{\"allow\": {allow}, \"messages\": [\"as I said\"]}}\n"
        )
    };
    let signed = "count([1 | some one in input.subjects; count(one.signatures) > 0]) == count(input.subjects)";
    bench.write("decision.rego", &rego(signed));
    let text = "version: 1\nsigners: {release: {keys: {files: [release.pub]}}}\ndefault: {rego: decision.rego}\n";
    bench.write("policy.yaml", text);
    let verifier = bench.start_with("", LONG).await;
    let (amd64, arm64) = (bench.key_for("amd64"), bench.key_for("arm64"));
    for _ in 0..2 {
        let said = verifier.ask(V1, &[&amd64, &arm64]).await;
        let yes: Vec<_> = said.items().iter().map(|one| &one["value"]["isSuccess"]).collect();
        assert_eq!(yes, [true, false], "{}", said.body);
        assert_eq!(said.items()[1]["value"]["reasons"][0]["code"], "POLICY_DENIED");
        assert!(said.items()[1].to_string().contains("as I said"));
    }
    assert_eq!(verifier.metric("portolan_verifier_subjects_examined_total").await, 3.0, "kept");
    bench.write("decision.rego", &rego("false"));
    verifier.generation(2.0).await;
    let said = verifier.ask(V1, &[&amd64]).await;
    assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
}

/// A second is little on a busy machine: what was not decided in it is never a no that whoever asked
/// keeps. It is told for a moment, and then decided anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_rego_that_has_no_time_is_a_system_error_and_never_a_no() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let slow = "package portolan\ndigits := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n\
        decision := {\"allow\": true} if {\n  count(input.subjects) > 0\n\
        count([1 | digits[a]; digits[b]; digits[c]; digits[d]; digits[e]; digits[f]; digits[g]; digits[h]; digits[i]]) > 0\n}\n";
    bench.write("decision.rego", slow);
    let text = "version: 1\nsigners: {release: {keys: {files: [release.pub]}}}\ndefault: {rego: decision.rego}\n";
    bench.write("policy.yaml", text);
    let times = format!("{LONG}\n[timeouts]\nverify = \"30s\"\n");
    let verifier = bench.start_with("", &times).await;
    let key = bench.key_for("amd64");
    for asked in 1..=2 {
        let said = verifier.ask(V1, &[&key]).await;
        assert_eq!(said.status, 503, "{}", said.body);
        let error = said.system_error();
        assert!(error.contains("DEADLINE") && error.contains("the policy"), "{error}");
        let told = "ratify_system_error_count_total{error=\"DEADLINE\"}";
        assert_eq!(verifier.metric(told).await, f64::from(asked), "each who asks is told");
    }
    assert_eq!(verifier.metric("portolan_verifier_subjects_examined_total").await, 2.0);
}

/// Otherwise a list of nodes that broke would keep a stolen key in force.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_list_of_nodes_does_not_keep_a_new_policy_away() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let node = "items: [{metadata: {name: a, labels: {kubernetes.io/os: linux, kubernetes.io/arch: amd64}}}]";
    bench.write("nodes.yaml", node);
    let pods = format!("{SHORT}\n[pods]\nnodes = {:?}\n", bench.path("nodes.yaml"));
    let verifier = bench.start_with("", &pods).await;
    let key = bench.key_for("amd64");
    let stale = |input: &str| format!("portolan_verifier_stale{{input=\"{input}\"}}");
    bench.write("nodes.yaml", "items: [{}]");
    until(async || verifier.metric(&stale("nodes")).await == 1.0).await;
    assert_eq!(verifier.metric(&stale("policy")).await, 0.0);
    assert_eq!(verifier.health("/readyz").await, (200, "ok\nstale: nodes\n".to_owned()));
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    // The key is dropped.
    let other = portolan_verify::key::PrivateKey::generate().unwrap();
    bench.write("release.pub", &other.public().to_pem());
    verifier.generation(2.0).await;
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], false, "{}", said.body);
    // And the other way round.
    bench.write("policy.yaml", "version: 9");
    until(async || verifier.metric(&stale("policy")).await == 1.0).await;
    bench.write("nodes.yaml", node);
    verifier.generation(3.0).await;
    assert_eq!(verifier.health("/readyz").await.1, "ok\nstale: policy\n");
    bench.write("policy.yaml", &policy(""));
    verifier.generation(4.0).await;
    assert_eq!(verifier.health("/readyz").await.1, "ok\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_policy_or_certificate_nothing_starts() {
    use portolan_verify::server::{Config, start};
    use tokio_util::sync::CancellationToken;
    for missing in ["policy.yaml", "release.pub", "tls.crt", "tls.key", "ca.pem"] {
        let bench = Bench::new();
        std::fs::remove_file(bench.path(missing)).unwrap();
        let config = Config::parse(&bench.config("", ""), &bench.path("verifier.toml")).unwrap();
        let error = start(&config, CancellationToken::new()).await.unwrap_err();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        assert!(text.contains(missing), "{missing}: {text}");
    }
}
