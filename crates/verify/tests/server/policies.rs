//! The policy, read again when it changes.

use crate::harness::{Bench, SHORT, V1, policy, until};

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
    std::fs::remove_file(bench.path("policy.yaml")).unwrap();
    let before = verifier.metric(refused).await;
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
