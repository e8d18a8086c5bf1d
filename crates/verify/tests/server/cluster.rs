//! What the verifier asks of its cluster: logins of who asks, nodes, and a place for its certificate.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portolan_verify::server::{self, Config, Running};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::{Api, login};
use crate::harness::{ADMISSION, Bench, LONG, MUTATE, SHORT, V1, client, policy, until};

const PULL: &str = "\npull_secrets = \"certified\"\nsecrets_ttl = \"1ms\"\n";

fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

fn tables(bench: &Bench, api: &Api, cache: &str, cluster: &str) -> String {
    bench.write("kubeconfig", &api.kubeconfig());
    let path = toml::Value::String(bench.path("kubeconfig").to_str().unwrap().to_owned());
    format!("{cache}\n[cluster]\nkubeconfig = {path}\n{cluster}")
}

fn account(secrets: &[&str]) -> Value {
    let named: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
    json!({"imagePullSecrets": named})
}

fn path(namespace: &str, kind: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{kind}/{name}")
}

/// A registry that lets in tenant b alone, with b's login in b's namespace and another in a's.
async fn two_tenants(bench: &Bench) -> Api {
    bench.sign_amd64().await;
    bench.registry.demand(&basic("b", "secret of b"));
    let (api, host) = (Api::start().await, bench.registry.host());
    api.put(&path("a", "secrets", "regcred"), login(&host, "a", "secret of a"));
    api.put(&path("b", "secrets", "regcred"), login(&host, "b", "secret of b"));
    for namespace in ["a", "b"] {
        api.put(&path(namespace, "serviceaccounts", "default"), account(&["regcred"]));
    }
    api
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_neither_passes_nor_learns_by_the_login_of_another() {
    let bench = Bench::new();
    let api = two_tenants(&bench).await;
    let verifier = bench.start_with("", &tables(&bench, &api, LONG, PULL)).await;
    let key = bench.key_for("amd64");
    // B first, so that everything is in the caches.
    for _ in 0..2 {
        let said = verifier.ask(V1, &[&format!("[b]{key}")]).await;
        assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    }
    let digest = bench.image.top.digest.to_string();
    for asker in ["[a]", "", "[c]"] {
        let said = verifier.ask(V1, &[&format!("{asker}{key}")]).await;
        assert!(said.system_error().contains(": DENIED: "), "{asker}: {}", said.body);
        assert!(!said.body.to_string().contains(&digest), "{asker}: {}", said.body);
    }
    // By digest too: the digest is no secret, what is in it is.
    let by_digest = bench.image(&format!("@{digest}"));
    let said = verifier.ask(V1, &[&format!("[a]{by_digest}")]).await;
    assert!(said.system_error().contains(": DENIED: "), "{}", said.body);
    let said = verifier.ask(V1, &[&format!("[b]{by_digest}")]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    // Nobody was shown what is not theirs.
    let shown = |user: &str, password: &str| {
        let wanted = Some(basic(user, password));
        bench.registry.seen().iter().filter(|seen| seen.authorization == wanted).count()
    };
    assert!(shown("a", "secret of a") > 0 && shown("b", "secret of b") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_the_same_login_shares_what_was_read_and_who_lost_it_does_not() {
    let bench = Bench::new();
    let api = two_tenants(&bench).await;
    let host = bench.registry.host();
    api.put(&path("c", "secrets", "other-name"), login(&host, "b", "secret of b"));
    api.put(&path("c", "serviceaccounts", "default"), account(&["nothing", "other-name"]));
    let verifier = bench.start_with("", &tables(&bench, &api, LONG, PULL)).await;
    let key = bench.key_for("amd64");
    let yes = async |asker: &str| {
        let said = verifier.ask(V1, &[&format!("[{asker}]{key}")]).await;
        said.body["response"]["items"][0]["value"]["isSuccess"] == true
    };
    assert!(yes("b").await);
    let before = bench.registry.seen().len();
    assert!(yes("c").await);
    assert_eq!(bench.registry.seen().len(), before, "the registry would say the same");
    api.remove(&path("c", "secrets", "other-name"));
    until(async || !yes("c").await).await;
    assert!(yes("b").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhooks_pod_has_its_own_pull_secrets_and_those_of_its_account() {
    let bench = Bench::new();
    let api = two_tenants(&bench).await;
    api.put(&path("a", "secrets", "mine"), login(&bench.registry.host(), "b", "secret of b"));
    api.put(&path("a", "serviceaccounts", "puller"), account(&["mine"]));
    let verifier = bench.start_with("", &tables(&bench, &api, LONG, PULL)).await;
    let allowed = async |namespace: &str, more: Value| {
        let mut spec = json!({"containers": [{"image": bench.image(":v1")}],
                              "nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let review = json!({"request": {"uid": "u", "namespace": namespace, "operation": "CREATE",
                                        "object": {"spec": spec}}});
        verifier.post(ADMISSION, review.to_string()).await.body["response"]["allowed"].clone()
    };
    assert_eq!(allowed("a", json!({})).await, false);
    let named = |name: &str| json!({"imagePullSecrets": [{"name": name}]});
    assert_eq!(allowed("a", named("regcred")).await, false);
    assert_eq!(allowed("a", named("mine")).await, true);
    assert_eq!(allowed("a", json!({"serviceAccountName": "puller"})).await, true);
    // Names lead nowhere but into the pod's own namespace.
    for name in ["../../b/secrets/regcred", "b/regcred", "..%2fb"] {
        assert_eq!(allowed("a", named(name)).await, false, "{name}");
    }
    let strange = api.store().seen.iter().filter(|(_, path)| path.contains("..")).count();
    assert_eq!(strange, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_cannot_be_used_are_passed_over_and_trouble_is_trouble() {
    let bench = Bench::new();
    let api = two_tenants(&bench).await;
    let broken =
        json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "bm8="}});
    api.put(&path("b", "secrets", "broken"), broken);
    api.put(&path("b", "secrets", "opaque"), json!({"type": "Opaque", "data": {}}));
    let old = json!({bench.registry.host(): {"auth": STANDARD.encode("b:secret of b")}});
    let old = json!({"type": "kubernetes.io/dockercfg",
                     "data": {".dockercfg": STANDARD.encode(old.to_string())}});
    api.put(&path("b", "secrets", "old"), old);
    let named = account(&["broken", "opaque", "missing", "Not a name", "old"]);
    api.put(&path("b", "serviceaccounts", "default"), named);
    let verifier = bench.start_with("", &tables(&bench, &api, SHORT, PULL)).await;
    let key = format!("[b]{}", bench.key_for("amd64"));
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    tokio::time::sleep(Duration::from_millis(20)).await;
    api.store().refuse = Some((path("b", "secrets", "old"), 403));
    let said = verifier.ask(V1, &[&key]).await;
    assert!(said.system_error().contains(": DENIED: "), "{}", said.body);
    // An API server in trouble: whether there is a login is not known.
    tokio::time::sleep(Duration::from_millis(20)).await;
    api.store().refuse = Some((path("b", "secrets", "old"), 500));
    let said = verifier.ask(V1, &[&key]).await;
    assert!(said.system_error().contains(": INTERNAL: "), "{}", said.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_the_operator_serve_everybody_and_namespaces_nobody_who_shows_no_certificate() {
    let bench = Bench::new();
    let api = two_tenants(&bench).await;
    api.put(&path("ops", "secrets", "shared"), login(&bench.registry.host(), "b", "secret of b"));
    let more = format!("{PULL}secrets = [\"regcred\", \"ops/shared\"]\n");
    let verifier = bench.start_with("", &tables(&bench, &api, SHORT, &more)).await;
    let said = verifier.ask(V1, &[&format!("[a]{}", bench.key_for("amd64"))]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    // Who names no namespace as well, and who only wants to know a digest.
    let said = verifier.ask(V1, &[&bench.key_for("amd64")]).await;
    assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    let said = verifier.ask(MUTATE, &[&bench.image(":v1")]).await;
    let pinned = bench.image(&format!("@{}", bench.image.top.digest));
    assert_eq!(said.value(), &json!(pinned), "{}", said.body);
    drop(verifier);
    // Another address, for API servers that show nothing.
    let open =
        format!("{}\n[admission]\nlisten = \"127.0.0.1:0\"\n", tables(&bench, &api, SHORT, PULL));
    let verifier = bench.start_with("", &open).await;
    let before = api.store().count("GET", "/api/v1/namespaces/");
    let review = json!({"request": {"uid": "u", "namespace": "b", "operation": "CREATE", "object":
        {"spec": {"containers": [{"image": bench.image(":v1")}], "imagePullSecrets": [{"name": "regcred"}]}}}});
    let url = format!("https://localhost:{}{ADMISSION}", verifier.running.admission.port());
    let open = client(&bench.authority.pem(), None);
    let said = open.post(url).body(review.to_string()).send().await.unwrap().text().await.unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["response"]["allowed"], false, "{said}");
    assert_eq!(api.store().count("GET", "/api/v1/namespaces/"), before, "no Secret was looked at");
}

fn node(arch: &str) -> Value {
    json!({"metadata": {"labels": {}}, "status": {"nodeInfo": {
        "operatingSystem": "linux", "architecture": arch, "bootID": "", "containerRuntimeVersion": "",
        "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "osImage": "",
        "systemUUID": ""}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_come_are_looked_at_and_before_the_first_list_everything_is() {
    let bench = Bench::new();
    bench.write("policy.yaml", &policy("  platforms: nodes\n"));
    bench.sign_amd64().await;
    let api = Api::start().await;
    api.put("/api/v1/nodes/one", node("amd64"));
    api.store().refuse = Some(("/api/v1/nodes".to_owned(), 403));
    let verifier = bench.start_with("", &tables(&bench, &api, LONG, "nodes = true\n")).await;
    let image = bench.image(":v1");
    let yes = async || {
        let said = verifier.ask(V1, &[&image]).await;
        said.value()["isSuccess"] == true
    };
    assert_eq!(verifier.health("/readyz").await.0, 503);
    assert!(!yes().await, "nobody knows the nodes: the image for arm64 is not signed");
    api.store().refuse = None;
    until(async || verifier.health("/readyz").await.0 == 200).await;
    assert!(yes().await, "there is a node for amd64 alone");
    api.put("/api/v1/nodes/two", node("arm64"));
    until(async || !yes().await).await;
}

/// A verifier that makes its own certificate.
struct Made {
    running: Running,
    _ending: DropGuard,
}

async fn start_made(bench: &Bench, api: &Api, more: &str) -> Result<Made, String> {
    bench.write("kubeconfig", &api.kubeconfig());
    let text = bench.config("", LONG);
    let (start, _) = text.split_once("[tls]").unwrap();
    let path = toml::Value::String(bench.path("kubeconfig").to_str().unwrap().to_owned());
    let text = format!(
        "{start}[tls.generate]\nnames = [\"localhost\"]\nproviders = [\"provider\"]\nwebhooks = [\"hooks\"]\n\
         check = \"20ms\"\n{more}\n[cluster]\nkubeconfig = {path}\n"
    );
    let config = Config::parse(&text, Path::new("verifier.toml")).unwrap();
    let ending = CancellationToken::new();
    let running = server::start(&config, ending.clone()).await;
    let running = running.map_err(|error| format!("{error}"))?;
    Ok(Made { running, _ending: ending.drop_guard() })
}

const SECRET: &str = "/api/v1/namespaces/own/secrets/portolan-verifier-tls";
const PROVIDER: &str = "/apis/externaldata.gatekeeper.sh/v1beta1/providers/provider";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks";

fn objects(api: &Api) {
    api.put(
        PROVIDER,
        json!({
        "apiVersion": "externaldata.gatekeeper.sh/v1beta1", "kind": "Provider", "metadata": {},
        "spec": {"url": "https://x", "timeout": 7, "caBundle": ""}}),
    );
    let hook = |name: &str| {
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
               "clientConfig": {"url": "https://x"}})
    };
    api.put(HOOKS, json!({"metadata": {}, "webhooks": [hook("one.dev"), hook("two.dev")]}));
}

fn bundle(value: &Value) -> String {
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn held(api: &Api, member: &str) -> String {
    bundle(&api.store().get(SECRET).unwrap()["data"][member])
}

/// Whom the Provider says to trust.
fn published(api: &Api) -> String {
    bundle(&api.store().get(PROVIDER).unwrap()["spec"]["caBundle"])
}

/// Whether who trusts this bundle is answered.
async fn reaches(made: &Made, bundle: &str) -> bool {
    let all = reqwest::Certificate::from_pem_bundle(bundle.as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only(all).build().unwrap();
    let url = format!("https://localhost:{}{V1}", made.running.provider.port());
    client.post(url).body("{}").send().await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_start_at_once_show_one_certificate_and_tell_whom_to_trust() {
    let (bench, api) = (Bench::new(), Api::start().await);
    objects(&api);
    let starts = (0..4).map(|_| start_made(&bench, &api, ""));
    let all = futures_util::future::try_join_all(starts).await.unwrap();
    until(async || published(&api) == held(&api, "ca.crt")).await;
    let ca = held(&api, "ca.crt");
    for made in &all {
        assert!(reaches(made, &ca).await);
    }
    {
        let store = api.store();
        let provider = store.get(PROVIDER).unwrap();
        assert_eq!(
            (&provider["spec"]["timeout"], &provider["spec"]["url"]),
            (&json!(7), &json!("https://x"))
        );
        for hook in store.get(HOOKS).unwrap()["webhooks"].as_array().unwrap() {
            assert_eq!(bundle(&hook["clientConfig"]["caBundle"]), ca);
            assert_eq!(hook["clientConfig"]["url"], "https://x");
        }
        let label =
            &store.get(SECRET).unwrap()["metadata"]["labels"]["app.kubernetes.io/managed-by"];
        assert_eq!(label, "portolan-verifier");
    }
    // Nothing is written when nothing is another.
    let writes = |api: &Api| {
        let store = api.store();
        ["PUT", "POST", "PATCH"].map(|method| store.count(method, "/")).iter().sum::<usize>()
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = writes(&api);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(writes(&api), before);
    // Somebody takes the bundle away: it is put back.
    api.put(
        PROVIDER,
        json!({"metadata": {}, "spec": {"url": "https://y", "timeout": 1, "caBundle": "eA=="}}),
    );
    until(async || published(&api) == ca).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_authorities_follow_one_another_and_nobody_is_turned_away() {
    let (bench, api) = (Bench::new(), Api::start().await);
    objects(&api);
    let short = "lifetime = \"10s\"\nca_lifetime = \"20s\"";
    let made = start_made(&bench, &api, short).await.unwrap();
    let (first, first_ca) = (held(&api, "tls.crt"), held(&api, "ca.crt"));
    let connected = {
        // One connection that stays.
        let all = reqwest::Certificate::from_pem_bundle(first_ca.as_bytes()).unwrap();
        reqwest::Client::builder().no_proxy().tls_certs_only(all).build().unwrap()
    };
    let url = format!("https://localhost:{}{V1}", made.running.provider.port());
    let (mut leaves, mut both) = (vec![first], false);
    let end = tokio::time::Instant::now() + Duration::from_secs(40);
    while tokio::time::Instant::now() < end {
        // As Gatekeeper would: whom the Provider says to trust, just before.
        let published = published(&api);
        if !published.is_empty() {
            assert!(reaches(&made, &published).await, "{published}");
        }
        both |= published.matches("BEGIN").count() == 2;
        let leaf = held(&api, "tls.crt");
        if leaves.last() != Some(&leaf) {
            leaves.push(leaf);
        }
        assert!(
            connected.post(&url).body("{}").send().await.is_ok(),
            "a connection that is there stays"
        );
        let gone = !held(&api, "ca.crt").contains(first_ca.trim());
        if gone && both && leaves.len() > 3 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} certificates, both {both}", leaves.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_somebody_else_is_left_alone_and_an_empty_or_broken_one_is_filled() {
    let (bench, api) = (Bench::new(), Api::start().await);
    let foreign = json!({"metadata": {}, "type": "Opaque", "data": {"tls.crt": "eA=="}});
    api.put(SECRET, foreign.clone());
    let error = start_made(&bench, &api, "").await.map(|_| ()).unwrap_err();
    assert!(
        error.contains("own/portolan-verifier-tls") && error.contains("tls.generate.secret"),
        "{error}"
    );
    assert_eq!(api.store().get(SECRET).unwrap()["data"], foreign["data"]);
    for data in [json!(null), json!({"tls.crt": "eA=="})] {
        let ours =
            json!({"labels": {"app.kubernetes.io/managed-by": "portolan-verifier", "mine": "too"}});
        api.put(SECRET, json!({"metadata": ours, "type": "Opaque", "data": data}));
        let made = start_made(&bench, &api, "").await.unwrap();
        assert!(reaches(&made, &held(&api, "ca.crt")).await);
        assert_eq!(api.store().get(SECRET).unwrap()["metadata"]["labels"]["mine"], "too");
    }
    api.store().refuse = Some((SECRET.to_owned(), 403));
    let error = start_made(&bench, &api, "").await.map(|_| ()).unwrap_err();
    assert!(error.contains("403"), "{error}");
}
