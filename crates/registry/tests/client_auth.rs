//! Who gets to see which credentials: tokens, basic, helpers, redirects, TLS.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod client_support;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;
use client_support::*;
use portolan_core::{Descriptor, Host};
use portolan_registry::ErrorClass;
use portolan_registry::client::{
    Client, ClientCertificate, Credential, CredentialStore, Failure, LoginCheck, Secret, Settings,
    Stored,
};
use tokio::net::TcpListener;

const BASIC: &str = "Basic bWU6c2VjcmV0";

fn me() -> Credential {
    Credential::Basic { username: "me".into(), password: Secret::new("secret") }
}

fn with(server: &Server, credential: Credential) -> CredentialStore {
    CredentialStore::anonymous().with(server.host.clone(), credential)
}

/// A registry that takes `Bearer good`, and otherwise names a token server.
async fn token_registry(realm: &Host, scope: &'static str) -> Server {
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"the registry\",scope=\"{scope}\"",
        realm.as_str()
    );
    serve(move |seen| match seen.header("authorization") {
        Some("Bearer good") => manifest_reply(),
        _ => reply(401, &[("www-authenticate", &challenge)], "{}"),
    })
    .await
}

fn token(text: &str) -> Response {
    reply(
        200,
        &[("content-type", "application/json")],
        format!("{{\"token\":\"{text}\",\"expires_in\":300}}"),
    )
}

#[tokio::test]
async fn an_anonymous_token_is_fetched_once_and_used_again() {
    let tokens = serve(|_| token("good")).await;
    let registry = token_registry(&tokens.host, "repository:team/app:pull").await;
    let remote = anonymous(&registry);
    remote.manifest(&tag("1")).await.unwrap();
    remote.manifest(&tag("2")).await.unwrap();
    let asked = tokens.seen();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].line(), "GET /token");
    assert_eq!(Seen::parameters(&asked[0].query, "service"), ["the registry"]);
    assert_eq!(Seen::parameters(&asked[0].query, "scope"), ["repository:team/app:pull"]);
    assert_eq!(asked[0].header("authorization"), None);
    assert_eq!(registry.seen().len(), 3, "one refusal, two answers");
}

#[tokio::test]
async fn many_callers_wait_for_one_token() {
    let tokens = serve(|_| token("good")).await;
    let registry = token_registry(&tokens.host, "repository:team/app:pull").await;
    let remote = anonymous(&registry);
    let calls = (0..8).map(|_| {
        let remote = remote.clone();
        tokio::spawn(async move { remote.manifest(&tag("1")).await.map(drop) })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(tokens.seen().len(), 1);
}

#[tokio::test]
async fn a_password_goes_to_the_token_server_and_not_to_the_registry() {
    let tokens = serve(|seen| match seen.header("authorization") {
        Some(BASIC) => token("good"),
        _ => reply(401, &[], "{\"details\":\"incorrect username or password\"}"),
    })
    .await;
    let registry = token_registry(&tokens.host, "repository:team/app:pull").await;
    let remote = remote(&registry, quick(), with(&registry, me()));
    remote.manifest(&tag("1")).await.unwrap();
    assert_eq!(Seen::parameters(&tokens.seen()[0].query, "account"), ["me"]);
    let shown: Vec<_> =
        registry.seen().iter().map(|s| s.header("authorization").map(str::to_owned)).collect();
    assert_eq!(shown, [None, Some("Bearer good".to_owned())]);
}

#[tokio::test]
async fn a_wrong_password_is_told_with_what_to_do_and_not_tried_again() {
    let tokens =
        serve(|_| reply(401, &[], "{\"details\":\"incorrect username or password\"}")).await;
    let registry = token_registry(&tokens.host, "").await;
    let remote = remote(&registry, quick(), with(&registry, me()));
    let error = remote.manifest(&tag("1")).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Denied);
    let text = chain(&error);
    assert!(text.contains("incorrect username or password"), "{text}");
    assert!(
        text.contains(&format!("portolan registry login {}", registry.host.as_str())),
        "{text}"
    );
    assert!(!text.contains("secret") && !format!("{error:?}").contains("secret"), "{error:?}");
    assert_eq!(tokens.seen().len(), 1);
}

#[tokio::test]
async fn an_identity_token_is_exchanged_by_the_oauth2_form() {
    let tokens = serve(|seen| {
        let form = String::from_utf8_lossy(&seen.body).into_owned();
        let fits = seen.method == "POST"
            && Seen::parameters(&form, "grant_type") == ["refresh_token"]
            && Seen::parameters(&form, "refresh_token") == ["identity"]
            && Seen::parameters(&form, "service") == ["the registry"]
            && Seen::parameters(&form, "scope") == ["repository:team/app:pull"]
            && seen.header("content-type") == Some("application/x-www-form-urlencoded");
        if fits { reply(200, &[], "{\"access_token\":\"good\"}") } else { reply(400, &[], form) }
    })
    .await;
    let registry = token_registry(&tokens.host, "repository:team/app:pull").await;
    let identity = Credential::IdentityToken(Secret::new("identity"));
    remote(&registry, quick(), with(&registry, identity)).manifest(&tag("1")).await.unwrap();
}

#[tokio::test]
async fn a_token_server_without_the_get_form_gets_the_password_by_post() {
    let tokens = serve(|seen| {
        let form = String::from_utf8_lossy(&seen.body).into_owned();
        match seen.method.as_str() {
            "POST" if Seen::parameters(&form, "password") == ["secret"] => {
                reply(200, &[], "{\"access_token\":\"good\"}")
            }
            _ => reply(405, &[], ""),
        }
    })
    .await;
    let registry = token_registry(&tokens.host, "").await;
    remote(&registry, quick(), with(&registry, me())).manifest(&tag("1")).await.unwrap();
    assert_eq!((tokens.count("GET"), tokens.count("POST")), (1, 1));
}

#[tokio::test]
async fn a_token_that_went_stale_is_renewed() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let tokens =
        serve(move |_| token(&format!("token-{}", counter.fetch_add(1, Ordering::SeqCst)))).await;
    let challenge = format!("Bearer realm=\"http://{}/token\"", tokens.host.as_str());
    let calls = Arc::new(AtomicUsize::new(0));
    let registry = serve(move |seen| match seen.header("authorization") {
        Some("Bearer token-0") if calls.fetch_add(1, Ordering::SeqCst) == 0 => manifest_reply(),
        Some("Bearer token-1") => manifest_reply(),
        _ => reply(401, &[("www-authenticate", &challenge)], ""),
    })
    .await;
    let remote = anonymous(&registry);
    remote.manifest(&tag("1")).await.unwrap();
    remote.manifest(&tag("1")).await.unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_registry_that_refuses_every_token_is_asked_a_bounded_number_of_times() {
    let tokens = serve(|_| token("useless")).await;
    let registry = token_registry(&tokens.host, "repository:team/app:pull").await;
    let error = anonymous(&registry).manifest(&tag("1")).await.unwrap_err();
    assert_eq!((error.class(), error.status()), (ErrorClass::Denied, Some(401)));
    assert_eq!((registry.seen().len(), tokens.seen().len()), (2, 1));
}

#[tokio::test]
async fn a_scope_the_registry_adds_is_asked_for() {
    let tokens = serve(|seen| {
        let scopes = Seen::parameters(&seen.query, "scope");
        token(if scopes.iter().any(|s| s == "registry:catalog:*") { "good" } else { "poor" })
    })
    .await;
    let registry = token_registry(&tokens.host, "registry:catalog:*").await;
    let remote = anonymous(&registry);
    remote.manifest(&tag("1")).await.unwrap();
    remote.manifest(&tag("2")).await.unwrap();
    assert_eq!(tokens.seen().len(), 1, "remembered with the scope that was learned");
}

#[tokio::test]
async fn basic() {
    let registry = serve(|seen| match seen.header("authorization") {
        Some(BASIC) => manifest_reply(),
        _ => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
    })
    .await;
    let known = remote(&registry, quick(), with(&registry, me()));
    known.manifest(&tag("1")).await.unwrap();
    known.manifest(&tag("1")).await.unwrap();
    assert_eq!(registry.seen().len(), 3, "the scheme is remembered");
    let unknown = anonymous(&registry).manifest(&tag("1")).await.unwrap_err();
    assert_eq!(unknown.class(), ErrorClass::Denied);
    assert!(unknown.to_string().contains("portolan registry login"), "{unknown}");
}

#[tokio::test]
async fn logins_are_checked() {
    let registry = serve(|seen| match seen.header("authorization") {
        Some(BASIC) if seen.path == "/v2/" => reply(200, &[], "{}"),
        _ => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
    })
    .await;
    let client = Client::new(quick(), CredentialStore::anonymous()).unwrap();
    assert_eq!(client.check_login(&registry.host, &me()).await.unwrap(), LoginCheck::Accepted);
    let wrong = Credential::Basic { username: "me".into(), password: Secret::new("guess") };
    let error = client.check_login(&registry.host, &wrong).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Denied);
    let open = serve(|_| reply(200, &[], "{}")).await;
    assert_eq!(client.check_login(&open.host, &me()).await.unwrap(), LoginCheck::NotAsked);
}

#[tokio::test]
async fn credentials_stay_behind_on_a_redirect_to_another_host() {
    let content = b"the blob".as_slice();
    let storage = serve(move |_| reply(200, &[], content)).await;
    let target = format!("http://{}/elsewhere?signed=1", storage.host.as_str());
    let registry = serve(move |seen| match seen.header("authorization") {
        Some(BASIC) => reply(307, &[("location", &target)], ""),
        _ => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
    })
    .await;
    let remote = remote(&registry, quick(), with(&registry, me()));
    let blob = Descriptor::of("application/octet-stream", content);
    assert_eq!(read(remote.blob(&blob).await.unwrap()).await.unwrap(), content);
    let seen = storage.seen();
    assert_eq!((seen.len(), seen[0].header("authorization")), (1, None));
    assert_eq!(seen[0].query, "signed=1");
}

async fn read(
    mut stream: portolan_registry::client::BlobStream,
) -> Result<Vec<u8>, portolan_registry::client::ClientError> {
    use futures_util::StreamExt as _;
    let mut out = Vec::new();
    while let Some(piece) = stream.next().await {
        out.extend_from_slice(&piece?);
    }
    Ok(out)
}

#[tokio::test]
async fn redirects_that_go_round_end() {
    let registry = serve(|seen| reply(302, &[("location", &format!("{}x", seen.path))], "")).await;
    let error = anonymous(&registry).manifest(&tag("1")).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::TooManyRedirects { .. }), "{error}");
    assert_eq!(registry.seen().len(), 9);
}

/// Settings that trust `authority` for one host.
fn trusting(authority: &Authority, host: &Host, dir: &tempfile::TempDir) -> Settings {
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    let mut settings = quick();
    let own = settings.host_mut(host);
    own.plain_http = Some(false);
    own.ca = vec![path];
    settings
}

#[tokio::test]
async fn a_redirect_to_plain_http_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let plain = serve(|_| manifest_reply()).await;
    let target = format!("http://{}/x", plain.host.as_str());
    let registry =
        serve_tls(&authority, None, move |_| reply(307, &[("location", &target)], "")).await;
    let settings = trusting(&authority, &registry.host, &dir);
    let remote = remote(&registry, settings, CredentialStore::anonymous());
    let blob = Descriptor::of("application/octet-stream", b"x");
    for error in
        [remote.manifest(&tag("1")).await.unwrap_err(), remote.blob(&blob).await.unwrap_err()]
    {
        assert!(matches!(error.failure(), Failure::InsecureRedirect { .. }), "{error}");
        assert!(error.to_string().contains("plain http"), "{error}");
    }
    assert!(plain.seen().is_empty(), "nothing was sent there");
    assert_eq!(registry.seen().len(), 2, "nothing was tried again");
}

#[tokio::test]
async fn an_https_registry_may_not_name_a_plain_http_token_server() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let tokens = serve(|_| token("good")).await;
    let challenge = format!("Bearer realm=\"http://{}/token\"", tokens.host.as_str());
    let registry =
        serve_tls(&authority, None, move |_| reply(401, &[("www-authenticate", &challenge)], ""))
            .await;
    let settings = trusting(&authority, &registry.host, &dir);
    let error =
        remote(&registry, settings, with(&registry, me())).manifest(&tag("1")).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::InsecureRealm { .. }), "{error}");
    assert!(tokens.seen().is_empty(), "nothing was sent there");
}

#[tokio::test]
async fn certificates_are_checked_as_the_settings_say() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let registry = serve_tls(&authority, None, |_| manifest_reply()).await;
    let fetch = async |settings: Settings| {
        remote(&registry, settings, CredentialStore::anonymous())
            .manifest(&tag("1"))
            .await
            .map(drop)
    };
    fetch(trusting(&authority, &registry.host, &dir)).await.unwrap();

    let stranger = Authority::new();
    let shaken = registry.connections();
    let error = fetch(trusting(&stranger, &registry.host, &dir)).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::Handshake { .. }), "{}", chain(&error));
    assert!(error.to_string().contains("registries.toml"), "{error}");
    assert_eq!(registry.connections(), shaken + 1, "not tried again");

    let mut lenient = quick();
    let own = lenient.host_mut(&registry.host);
    own.plain_http = Some(false);
    own.insecure_skip_verify = true;
    fetch(lenient).await.unwrap();
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, clients) = (Authority::new(), Authority::new());
    let registry = serve_tls(&authority, Some(&clients), |_| manifest_reply()).await;
    let mut settings = trusting(&authority, &registry.host, &dir);
    let without = remote(&registry, settings.clone(), CredentialStore::anonymous());
    assert!(without.manifest(&tag("1")).await.is_err());
    let pair = clients.issue("me");
    let certificate = ClientCertificate {
        certificate: dir.path().join("me.pem"),
        key: dir.path().join("me.key"),
    };
    std::fs::write(&certificate.certificate, pair.certificate).unwrap();
    std::fs::write(&certificate.key, pair.key).unwrap();
    settings.host_mut(&registry.host).client_certificate = Some(certificate);
    remote(&registry, settings, CredentialStore::anonymous()).manifest(&tag("1")).await.unwrap();
}

/// A real program that speaks the helper protocol and keeps what it is given in a directory.
fn helper(dir: &std::path::Path) {
    let program = dir.join("docker-credential-files");
    let script = "#!/bin/sh\ncd \"$(dirname \"$0\")\" || exit 2\ncase \"$1\" in\nget) if [ -f kept ]; then cat kept; else echo 'credentials not found in native keychain'; exit 1; fi;;\nstore) cat > kept;;\nerase) cat > erased; rm -f kept;;\n*) echo unknown; exit 1;;\nesac\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn a_helper_keeps_finds_and_forgets() {
    let dir = tempfile::tempdir().unwrap();
    helper(dir.path());
    let config = dir.path().join("config.json");
    std::fs::write(&config, r#"{"credsStore":"files","x":1}"#).unwrap();
    let store = CredentialStore::from_files(Some(config.clone()), vec![], dir.path().into());
    let host: Host = "r.example".parse().unwrap();
    assert!(matches!(store.lookup(&host, None).await.unwrap(), Credential::Anonymous));

    let stored = store.store(&host, "me", &Secret::new("p\"w")).await.unwrap();
    assert_eq!(stored, Stored::Helper("files".into()));
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(
        text.contains("\"r.example\": {}") && text.contains("\"x\": 1") && !text.contains("p\\\"w"),
        "{text}"
    );
    let Credential::Basic { username, password } = store.lookup(&host, None).await.unwrap() else {
        panic!()
    };
    assert_eq!((username.as_str(), password.expose()), ("me", "p\"w"));

    std::fs::write(
        dir.path().join("kept"),
        r#"{"ServerURL":"r","Username":"<token>","Secret":"id"}"#,
    )
    .unwrap();
    let Credential::IdentityToken(token) = store.lookup(&host, None).await.unwrap() else {
        panic!()
    };
    assert_eq!(token.expose(), "id");

    assert!(store.erase(&host).await.unwrap().removed);
    assert_eq!(std::fs::read_to_string(dir.path().join("erased")).unwrap(), "r.example");
    assert!(!store.erase(&host).await.unwrap().removed);
    // Docker Hub has a name of its own before helpers.
    store.store(&Host::docker_hub(), "me", &Secret::new("pw")).await.unwrap();
    let kept = std::fs::read_to_string(dir.path().join("kept")).unwrap();
    assert!(kept.contains("https://index.docker.io/v1/"), "{kept}");
}

#[tokio::test]
async fn a_helper_that_is_missing_or_talks_nonsense_is_named() {
    let dir = tempfile::tempdir().unwrap();
    helper(dir.path());
    std::fs::write(dir.path().join("kept"), "{\"Secret\": \"s3cr3t\" nonsense").unwrap();
    let config = dir.path().join("config.json");
    let host: Host = "r.example".parse().unwrap();
    for (name, expected) in [
        ("files", "not the JSON"),
        ("absent", "docker-credential-absent"),
        ("../x", "cannot be the name"),
    ] {
        std::fs::write(&config, format!("{{\"credHelpers\":{{\"r.example\":{name:?}}}}}")).unwrap();
        let store = CredentialStore::from_files(Some(config.clone()), vec![], dir.path().into());
        let error = store.lookup(&host, None).await.unwrap_err();
        let text = chain(&error);
        assert!(
            text.contains(expected) && text.contains("config.json") && !text.contains("s3cr3t"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_login_in_a_file_is_used_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let registry = serve(|seen| match seen.header("authorization") {
        Some(BASIC) => manifest_reply(),
        _ => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
    })
    .await;
    let config = dir.path().join("config.json");
    let other = dir.path().join("auth.json");
    let store = CredentialStore::from_files(Some(config.clone()), vec![other.clone()], "".into());
    let stored = store.store(&registry.host, "me", &Secret::new("secret")).await.unwrap();
    assert_eq!(stored, Stored::File(config.clone()));
    assert_eq!(std::fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    remote(&registry, quick(), store.clone()).manifest(&tag("1")).await.unwrap();

    // A login that another program keeps is used too, and said to remain.
    std::fs::copy(&config, &other).unwrap();
    let erased = store.erase(&registry.host).await.unwrap();
    assert_eq!((erased.removed, erased.remains_in), (true, Some(other.clone())));
    remote(&registry, quick(), store.clone()).manifest(&tag("1")).await.unwrap();
    std::fs::remove_file(&other).unwrap();
    assert!(remote(&registry, quick(), store).manifest(&tag("1")).await.is_err());
}

/// A process that runs for months meets logins that come, and passwords that change.
#[tokio::test]
async fn a_login_that_comes_or_changes_later_is_used_by_a_client_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("auth.json");
    let by_password = serve(|seen| match seen.header("authorization") {
        Some(BASIC) => manifest_reply(),
        _ => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], "{}"),
    })
    .await;
    let tokens = serve(|seen| match seen.header("authorization") {
        Some(BASIC) => token("good"),
        _ => reply(401, &[], "{}"),
    })
    .await;
    let by_token = token_registry(&tokens.host, "repository:team/app:pull").await;
    for registry in [&by_password, &by_token] {
        let login = |auth: Option<&str>| {
            let entry = auth.map(|auth| serde_json::json!({ "auth": auth }));
            let auths = serde_json::json!({"auths": {registry.host.as_str(): entry}});
            let none = serde_json::json!({"auths": {}});
            let text = if entry.is_some() { auths } else { none };
            std::fs::write(&file, text.to_string()).unwrap();
        };
        login(None);
        let store = CredentialStore::from_files(None, vec![file.clone()], "".into());
        let remote = remote(registry, quick(), store);
        assert!(remote.manifest(&tag("1")).await.is_err(), "nobody has logged in");
        // me:wrong
        login(Some("bWU6d3Jvbmc="));
        assert!(remote.manifest(&tag("1")).await.is_err(), "a wrong password");
        login(Some("bWU6c2VjcmV0"));
        remote.manifest(&tag("1")).await.unwrap();
    }
}

/// Settings in which `mirror` stands before `upstream`.
fn mirrored(upstream: &Server, mirror: &Host, keys: &str) -> Settings {
    let text = format!(
        "[defaults]\nretries = 0\nconnect_timeout = \"2s\"\n[[host.{:?}.mirror]]\nhost = {:?}\n{keys}\n",
        upstream.host.as_str(),
        mirror.as_str()
    );
    Settings::parse(&text, std::path::Path::new("registries.toml")).unwrap()
}

#[tokio::test]
async fn a_mirror_is_asked_first_and_never_with_the_registry_s_credentials() {
    let registry = serve(|_| manifest_reply()).await;
    let mirror = serve(|seen| match seen.path.as_str() {
        "/v2/hub/team/app/manifests/1" => manifest_reply(),
        _ => reply(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
    })
    .await;
    let settings = mirrored(&registry, &mirror.host, "prefix = \"hub\"");
    let remote = remote(&registry, settings, with(&registry, me()));
    remote.manifest(&tag("1")).await.unwrap();
    assert_eq!((mirror.seen().len(), registry.seen().len()), (1, 0));
    // Refused by the mirror, which is not shown what belongs to the registry.
    remote.manifest(&tag("2")).await.unwrap();
    assert_eq!((mirror.seen().len(), registry.seen().len()), (2, 1));
    assert!(mirror.seen().iter().all(|seen| seen.header("authorization").is_none()));
    assert_eq!(registry.seen()[0].path, "/v2/team/app/manifests/2");
}

#[tokio::test]
async fn a_mirror_that_fails_or_is_gone_is_passed_over() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let busy = serve(|_| reply(503, &[], "")).await;
    let registry =
        serve(
            |seen| {
                if seen.path.contains("blobs") { reply(200, &[], "blob") } else { manifest_reply() }
            },
        )
        .await;
    let blob = Descriptor::of("application/octet-stream", b"blob");
    for mirror in [gone.to_string().parse().unwrap(), busy.host.clone()] {
        let remote =
            remote(&registry, mirrored(&registry, &mirror, ""), CredentialStore::anonymous());
        remote.manifest(&tag("1")).await.unwrap();
        remote.resolve(&tag("1")).await.unwrap();
        assert_eq!(read(remote.blob(&blob).await.unwrap()).await.unwrap(), b"blob");
    }
}

#[tokio::test]
async fn a_mirror_is_asked_only_for_what_it_is_set_to() {
    let registry = serve(|seen| {
        if seen.path.contains("tags") {
            reply(200, &[], "{\"tags\":[\"a\"]}")
        } else {
            manifest_reply()
        }
    })
    .await;
    let mirror = serve(|seen| {
        if seen.path.contains("tags") {
            reply(200, &[], "{\"tags\":[\"b\"]}")
        } else {
            manifest_reply()
        }
    })
    .await;
    let digest = portolan_core::Target::Digest(Descriptor::of("", &manifest()).digest);
    let digests = remote(
        &registry,
        mirrored(&registry, &mirror.host, "pull = \"digest\""),
        CredentialStore::anonymous(),
    );
    digests.manifest(&tag("1")).await.unwrap();
    assert_eq!((mirror.seen().len(), registry.seen().len()), (0, 1));
    digests.manifest(&digest).await.unwrap();
    assert_eq!((mirror.seen().len(), registry.seen().len()), (1, 1));
    assert_eq!(digests.tags().await.unwrap()[0].as_str(), "a", "lists come from the registry");
    let believed = remote(
        &registry,
        mirrored(&registry, &mirror.host, "discovery = true"),
        CredentialStore::anonymous(),
    );
    assert_eq!(believed.tags().await.unwrap()[0].as_str(), "b");
}

#[tokio::test]
async fn a_mirror_that_lies_about_a_digest_is_told() {
    let registry = serve(|_| manifest_reply()).await;
    let mirror = serve(|_| {
        reply(200, &[("content-type", "application/vnd.oci.image.manifest.v1+json")], "{}")
    })
    .await;
    let digest = portolan_core::Target::Digest(Descriptor::of("", &manifest()).digest);
    let error =
        remote(&registry, mirrored(&registry, &mirror.host, ""), CredentialStore::anonymous())
            .manifest(&digest)
            .await
            .unwrap_err();
    assert!(matches!(error.failure(), Failure::Digest { .. }), "{error}");
    assert_eq!(error.host(), &mirror.host);
    assert!(registry.seen().is_empty());
}
