//! Who is let in.

use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::harness::{Bench, LONG, V1, authority, client, identity, until};

fn body(bench: &Bench) -> String {
    json!({"request": {"keys": [bench.key_for("amd64")]}}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn case_29_no_certificate_or_one_of_a_stranger_is_not_let_in() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let url = format!("https://localhost:{}{V1}", verifier.running.provider.port());
    let ca = bench.authority.pem();
    let stranger = identity(&authority());
    for who in [None, Some(stranger.as_str())] {
        let asked = client(&ca, who).post(&url).body(body(&bench)).send().await;
        assert!(asked.is_err(), "{who:?} was let in");
    }
    // A verifier of another authority is not believed either.
    let other = client(&authority().pem(), Some(&bench.identity()));
    assert!(other.post(&url).body(body(&bench)).send().await.is_err());
    assert!(bench.registry.seen().iter().all(|seen| !seen.path.ends_with("/manifests/v1")));
    let known = client(&ca, Some(&bench.identity()));
    assert_eq!(known.post(&url).body(body(&bench)).send().await.unwrap().status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_29_rotated_certificates_are_taken_while_it_runs() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let url = format!("https://localhost:{}{V1}", verifier.running.provider.port());
    // Gatekeeper and the verifier get a new authority, as rotation gives it to them.
    let next = authority();
    let (old_ca, old_client) = (bench.authority.pem(), bench.identity());
    let next_client = identity(&next);
    let ask = async |ca: &str, who: &str| {
        client(ca, Some(who)).post(&url).body(body(&bench)).send().await.is_ok()
    };
    assert!(ask(&old_ca, &old_client).await && !ask(&old_ca, &next_client).await);
    bench.write("ca.pem", &next.pem());
    let pair = identity(&next);
    let at = pair.find("-----BEGIN PRIVATE").unwrap();
    bench.write("tls.crt", &pair[..at]);
    bench.write("tls.key", &pair[at..]);
    let later = SystemTime::now() + Duration::from_secs(10);
    let file = std::fs::File::options().append(true).open(bench.path("tls.key")).unwrap();
    file.set_modified(later).unwrap();
    until(async || ask(&next.pem(), &next_client).await).await;
    assert!(!ask(&next.pem(), &old_client).await, "the old authority does not vouch any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_tls_1_3_is_spoken() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    let url = format!("https://localhost:{}{V1}", verifier.running.provider.port());
    let ca = reqwest::Certificate::from_pem(bench.authority.pem().as_bytes()).unwrap();
    let with = |version| {
        let identity = reqwest::Identity::from_pem(bench.identity().as_bytes()).unwrap();
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([ca.clone()]);
        builder.identity(identity).tls_version_max(version).build().unwrap()
    };
    let old = with(reqwest::tls::Version::TLS_1_2).post(&url).body("{}").send().await;
    assert!(old.is_err());
    let new = with(reqwest::tls::Version::TLS_1_3).post(&url).body("{}").send().await;
    assert_eq!(new.unwrap().status().as_u16(), 400);
    let plain = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    assert!(plain.post(url.replace("https", "http")).body("{}").send().await.is_err());
}

/// API servers show no certificate unless they are told to, so they may have a door of their own.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_may_have_an_address_of_its_own() {
    let bench = Bench::new();
    let own = format!("{LONG}\n[admission]\nlisten = \"127.0.0.1:0\"\n");
    let verifier = bench.start_with("", &own).await;
    let port = verifier.running.admission.port();
    assert_ne!(port, verifier.running.provider.port());
    let open = client(&bench.authority.pem(), None);
    let url = format!("https://localhost:{port}/admission/v1/validate");
    assert_eq!(open.post(url).body("{}").send().await.unwrap().status().as_u16(), 400);
    let wrong = open.post(format!("https://localhost:{port}{V1}")).body("{}").send().await;
    assert_eq!(
        wrong.unwrap().status().as_u16(),
        404,
        "Gatekeeper's questions are not answered there"
    );
}

/// As Gatekeeper's own client speaks it.
#[tokio::test(flavor = "multi_thread")]
async fn http_1_1_is_answered_too() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let verifier = bench.start().await;
    let ca = reqwest::Certificate::from_pem(bench.authority.pem().as_bytes()).unwrap();
    let identity = reqwest::Identity::from_pem(bench.identity().as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).identity(identity);
    let client = client.http1_only().build().unwrap();
    let url = format!("https://localhost:{}{V1}", verifier.running.provider.port());
    for _ in 0..3 {
        let answer = client.post(&url).body(body(&bench)).send().await.unwrap();
        assert_eq!(answer.version(), reqwest::Version::HTTP_11);
        assert_eq!(answer.status().as_u16(), 200);
        assert!(answer.text().await.unwrap().contains("\"isSuccess\":true"));
    }
}
