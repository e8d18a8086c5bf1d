//! The calls themselves against servers that speak the real protocol: retries, uploads, lists, referrers.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod client_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use client_support::*;
use portolan_core::{Descriptor, Digest, Index, Manifest, Tag, Target, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::client::{
    BytesSource, CredentialStore, Failure, ReferrersIn, Remote, Upload,
};

// ---- answers and repetition

#[tokio::test]
async fn a_busy_registry_is_asked_again_after_the_time_it_names() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let registry = serve(move |_| match counter.fetch_add(1, Ordering::SeqCst) {
        0 => reply(429, &[("retry-after", "1")], ""),
        1 => reply(503, &[("retry-after", "0")], ""),
        _ => manifest_reply(),
    })
    .await;
    let started = std::time::Instant::now();
    anonymous(&registry).manifest(&tag("1")).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn statuses_are_told_with_the_registry_s_words_and_what_to_try() {
    for (status, class, hint, requests) in [
        (401, ErrorClass::Denied, "portolan registry login", 1),
        (403, ErrorClass::Denied, "no right", 1),
        (404, ErrorClass::NotFound, "check the name", 1),
        (400, ErrorClass::BadInput, "", 1),
        (429, ErrorClass::Transport, "limits how often", 3),
        (500, ErrorClass::Transport, "try again later", 3),
        (503, ErrorClass::Transport, "try again later", 3),
    ] {
        let registry = serve(move |_| {
            let body =
                "{\"errors\":[{\"code\":\"SOME_CODE\",\"message\":\"its \\u001b[31mwords\"}]}";
            reply(status, &[("content-type", "application/json")], body)
        })
        .await;
        let error = anonymous(&registry).manifest(&tag("1")).await.unwrap_err();
        let text = error.to_string();
        assert_eq!((error.class(), error.status()), (class, Some(status)), "{text}");
        for part in [
            "reading manifest 1",
            registry.host.as_str(),
            "team/app",
            &status.to_string(),
            "SOME_CODE: its [31mwords",
            hint,
        ] {
            assert!(text.contains(part), "{part:?} is missing: {text}");
        }
        assert!(!text.contains('\u{1b}'));
        assert_eq!(registry.seen().len(), requests, "{status}");
    }
}

#[tokio::test]
async fn nobody_there() {
    let address = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client =
        portolan_registry::client::Client::new(quick(), CredentialStore::anonymous()).unwrap();
    let remote = client.repository(&address.to_string().parse().unwrap(), &repository());
    let error = remote.manifest(&tag("1")).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transport);
    let text = chain(&error);
    assert!(text.contains("tried 3 times") && text.contains("Connection refused"), "{text}");
}

#[tokio::test]
async fn a_host_that_is_no_url_is_told() {
    let client =
        portolan_registry::client::Client::new(quick(), CredentialStore::anonymous()).unwrap();
    let remote = client.repository(&"1.2.3.4.5".parse().unwrap(), &repository());
    let error = remote.manifest(&tag("1")).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::Url { .. }), "{error}");
}

#[tokio::test]
async fn a_registry_that_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string().parse().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            kept.push(accepted);
        }
    });
    let mut settings = quick();
    let limits = &mut settings.defaults_mut().limits;
    (limits.stall_timeout, limits.connect_timeout, limits.retries) =
        (Duration::from_millis(200), Duration::from_millis(200), 4);
    let client =
        portolan_registry::client::Client::new(settings, CredentialStore::anonymous()).unwrap();
    let remote = client.repository(&host, &repository());
    let blob = Descriptor::of("application/octet-stream", b"x");
    for error in
        [remote.manifest(&tag("1")).await.unwrap_err(), remote.blob(&blob).await.unwrap_err()]
    {
        assert_eq!(error.class(), ErrorClass::Transport);
        let text = error.to_string();
        assert!(
            text.contains("no byte moved for 0.2 s") && text.contains("tried 2 times"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn resolve_asks_by_head_and_by_get_where_head_does_not_tell() {
    let digest = Digest::sha256(&manifest());
    let size = manifest().len().to_string();
    let full: Vec<(&str, String)> = vec![
        ("content-type", media_type::OCI_MANIFEST.into()),
        ("content-length", size),
        ("docker-content-digest", digest.to_string()),
    ];
    for (status, missing, gets) in [
        (200, None, 0),
        (200, Some("docker-content-digest"), 1),
        (200, Some("content-type"), 1),
        (405, None, 1),
    ] {
        let headers: Vec<(&str, String)> =
            full.iter().filter(|(name, _)| Some(*name) != missing).cloned().collect();
        let registry = serve(move |seen| {
            if seen.method == "GET" {
                return manifest_reply();
            }
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
            reply(status, &headers, "")
        })
        .await;
        let found = anonymous(&registry).resolve(&tag("1")).await.unwrap();
        assert_eq!((found.digest, found.media_type.as_str()), (digest, media_type::OCI_MANIFEST));
        assert_eq!(found.size, manifest().len() as u64);
        assert_eq!(
            (registry.count("HEAD"), registry.count("GET")),
            (1, gets),
            "{status} without {missing:?}"
        );
    }
}

#[tokio::test]
async fn a_manifest_that_is_not_what_its_digest_says_is_refused() {
    let other = Digest::sha256(b"other").to_string();
    let registry = serve(move |_| {
        reply(
            200,
            &[("content-type", media_type::OCI_MANIFEST), ("docker-content-digest", &other)],
            manifest(),
        )
    })
    .await;
    let error = anonymous(&registry).manifest(&tag("1")).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::Digest { .. }), "{error}");
    assert_eq!(registry.seen().len(), 1, "never tried again");
}

// ---- uploads

/// The uploads of a small registry: one session, strict about ranges.
#[derive(Default)]
struct Uploads {
    received: Vec<u8>,
    complete: Option<Vec<u8>>,
    /// Answers to give instead of the right one, by request line, each once.
    trouble: Vec<(&'static str, u16)>,
    /// How much of a body that meets trouble is kept nevertheless.
    keep: usize,
    min_chunk: Option<&'static str>,
    max_body: usize,
    single_post: bool,
}

const SESSION: &str = "/v2/team/app/blobs/uploads/session";

fn uploads(state: &Mutex<Uploads>, seen: &Seen) -> Response {
    let mut state = state.lock().unwrap();
    let line = seen.line();
    if let Some(at) = state.trouble.iter().position(|(begin, _)| line.starts_with(begin)) {
        let (_, status) = state.trouble.remove(at);
        let keep = state.keep.min(seen.body.len());
        state.received.extend_from_slice(&seen.body[..keep]);
        if seen.method == "PUT" && keep == seen.body.len() && keep > 0 {
            state.complete = Some(std::mem::take(&mut state.received));
        }
        return reply(status, &[], "");
    }
    if seen.body.len() > state.max_body && state.max_body > 0 {
        return reply(413, &[], "");
    }
    let location = format!("{SESSION}?state={}", state.received.len());
    let range = format!("0-{}", state.received.len().saturating_sub(1));
    match seen.method.as_str() {
        "HEAD" => match &state.complete {
            Some(blob) => reply(200, &[("content-length", &blob.len().to_string())], ""),
            None => reply(404, &[], ""),
        },
        "POST" if state.single_post && seen.query.contains("digest=") => {
            state.complete = Some(seen.body.to_vec());
            reply(201, &[("location", "/x")], "")
        }
        "POST" => {
            state.received.clear();
            let min = state.min_chunk.unwrap_or("0");
            reply(
                202,
                &[("location", &format!("{SESSION}?state=0")), ("oci-chunk-min-length", min)],
                "",
            )
        }
        "GET" => reply(204, &[("location", &location), ("range", &range)], ""),
        "PATCH" => {
            let expected =
                format!("{}-{}", state.received.len(), state.received.len() + seen.body.len() - 1);
            if seen.header("content-range") != Some(&expected)
                || seen.query != format!("state={}", state.received.len())
            {
                return reply(416, &[("location", &location), ("range", &range)], "");
            }
            state.received.extend_from_slice(&seen.body);
            let range = format!("0-{}", state.received.len() - 1);
            reply(
                202,
                &[
                    ("location", &format!("{SESSION}?state={}", state.received.len())),
                    ("range", &range),
                ],
                "",
            )
        }
        "PUT" => {
            let digest = Seen::parameters(&seen.query, "digest");
            state.received.extend_from_slice(&seen.body);
            let blob = std::mem::take(&mut state.received);
            if digest != [Digest::sha256(&blob).to_string()] {
                return reply(400, &[], "{\"errors\":[{\"code\":\"DIGEST_INVALID\"}]}");
            }
            state.complete = Some(blob);
            reply(201, &[("location", "/x")], "")
        }
        _ => reply(405, &[], ""),
    }
}

async fn upload_registry(state: Uploads) -> (Server, Arc<Mutex<Uploads>>) {
    let state = Arc::new(Mutex::new(state));
    let shared = state.clone();
    (serve(move |seen| uploads(&shared, seen)).await, state)
}

fn blob(size: usize) -> (Descriptor, BytesSource) {
    let mut bytes = (0..=250u8).collect::<Vec<u8>>().repeat(size / 251 + 1);
    bytes.truncate(size);
    (Descriptor::of("application/octet-stream", &bytes), BytesSource(Bytes::from(bytes)))
}

fn in_chunks(server: &Server, bytes: u64) -> Remote {
    let mut settings = quick();
    settings.host_mut(&server.host).upload_chunk_bytes = Some(bytes);
    remote(server, settings, CredentialStore::anonymous())
}

fn lines(server: &Server) -> Vec<String> {
    server.seen().iter().map(|seen| seen.method.clone()).collect()
}

#[tokio::test]
async fn a_blob_that_is_there_is_not_sent() {
    let (descriptor, source) = blob(1000);
    let (registry, _) =
        upload_registry(Uploads { complete: Some(source.0.to_vec()), ..Uploads::default() }).await;
    assert_eq!(
        anonymous(&registry).push_blob(&descriptor, &source).await.unwrap(),
        Upload::Present
    );
    assert_eq!(lines(&registry), ["HEAD"]);
}

#[tokio::test]
async fn a_small_blob_goes_in_one_request_where_that_works() {
    let (descriptor, source) = blob(1000);
    for (single_post, expected) in
        [(true, vec!["HEAD", "POST"]), (false, vec!["HEAD", "POST", "PUT"])]
    {
        let (registry, state) =
            upload_registry(Uploads { single_post, ..Uploads::default() }).await;
        assert_eq!(
            anonymous(&registry).push_blob(&descriptor, &source).await.unwrap(),
            Upload::Uploaded
        );
        assert_eq!(lines(&registry), expected);
        assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
    }
    // A registry that does not expect a body there gets the form it knows.
    let (registry, state) =
        upload_registry(Uploads { trouble: vec![("POST", 400)], ..Uploads::default() }).await;
    anonymous(&registry).push_blob(&descriptor, &source).await.unwrap();
    assert_eq!(lines(&registry), ["HEAD", "POST", "POST", "PUT"]);
    assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
}

#[tokio::test]
async fn an_empty_blob() {
    let (descriptor, source) = blob(0);
    let (registry, state) = upload_registry(Uploads::default()).await;
    anonymous(&registry).push_blob(&descriptor, &source).await.unwrap();
    assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&[][..]));
}

#[tokio::test]
async fn a_large_blob_goes_whole_by_default() {
    let (descriptor, source) = blob(3_000_000);
    let (registry, state) = upload_registry(Uploads::default()).await;
    anonymous(&registry).push_blob(&descriptor, &source).await.unwrap();
    assert_eq!(lines(&registry), ["HEAD", "POST", "PUT"]);
    let put = &registry.seen()[2];
    assert_eq!(put.header("content-length"), Some("3000000"));
    assert_eq!(put.header("content-type"), Some("application/octet-stream"));
    assert!(Seen::parameters(&put.query, "state") == ["0"], "the location's own parameters stay");
    assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
}

#[tokio::test]
async fn pieces_have_the_size_that_is_set_or_that_the_registry_wants() {
    let (descriptor, source) = blob(250_000);
    for (min_chunk, expected) in
        [(None, vec![100_000, 100_000, 50_000]), (Some("120000"), vec![120_000, 120_000, 10_000])]
    {
        let (registry, state) = upload_registry(Uploads { min_chunk, ..Uploads::default() }).await;
        in_chunks(&registry, 100_000).push_blob(&descriptor, &source).await.unwrap();
        let sizes: Vec<usize> =
            registry.seen().iter().filter(|s| s.method == "PATCH").map(|s| s.body.len()).collect();
        assert_eq!(sizes, expected);
        assert_eq!(lines(&registry).last().unwrap(), "PUT");
        assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
    }
}

#[tokio::test]
async fn a_broken_upload_goes_on_where_the_registry_stopped() {
    let (descriptor, source) = blob(250_000);
    let state = Uploads { trouble: vec![("PUT", 502)], keep: 70_000, ..Uploads::default() };
    let (registry, state) = upload_registry(state).await;
    in_chunks(&registry, 1_000_000).push_blob(&descriptor, &source).await.unwrap();
    let sent: usize = registry.seen().iter().skip(3).map(|seen| seen.body.len()).sum();
    assert_eq!(lines(&registry), ["HEAD", "POST", "PUT", "HEAD", "GET", "PATCH", "PUT"]);
    assert_eq!(sent, 180_000, "the rest only");
    assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
}

#[tokio::test]
async fn a_broken_piece_goes_on_where_the_registry_stopped() {
    let (descriptor, source) = blob(250_000);
    let state = Uploads { trouble: vec![("PATCH", 500)], keep: 30_000, ..Uploads::default() };
    let (registry, state) = upload_registry(state).await;
    in_chunks(&registry, 100_000).push_blob(&descriptor, &source).await.unwrap();
    assert_eq!(registry.count("POST"), 1);
    assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
}

#[tokio::test]
async fn a_session_that_is_lost_is_begun_anew() {
    let (descriptor, source) = blob(250_000);
    for trouble in [vec![("PATCH", 404), ("GET", 404)], vec![("PATCH", 416), ("GET", 404)]] {
        let (registry, state) = upload_registry(Uploads { trouble, ..Uploads::default() }).await;
        in_chunks(&registry, 100_000).push_blob(&descriptor, &source).await.unwrap();
        assert_eq!(registry.count("POST"), 2);
        assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_is_looked_up() {
    let (descriptor, source) = blob(250_000);
    let state = Uploads { trouble: vec![("PUT", 504)], keep: usize::MAX, ..Uploads::default() };
    let (registry, _) = upload_registry(state).await;
    assert_eq!(
        anonymous(&registry).push_blob(&descriptor, &source).await.unwrap(),
        Upload::Uploaded
    );
    assert_eq!(lines(&registry), ["HEAD", "POST", "PUT", "HEAD"]);
}

#[tokio::test]
async fn a_registry_with_a_small_mouth_gets_pieces() {
    let (descriptor, source) = blob(40 * 1024 * 1024);
    let (registry, state) =
        upload_registry(Uploads { max_body: 33 * 1024 * 1024, ..Uploads::default() }).await;
    anonymous(&registry).push_blob(&descriptor, &source).await.unwrap();
    assert_eq!(state.lock().unwrap().complete.as_deref(), Some(&source.0[..]));
}

#[tokio::test]
async fn a_source_that_is_too_short_is_told_and_not_tried_again() {
    let (descriptor, _) = blob(250_000);
    let (registry, state) = upload_registry(Uploads::default()).await;
    let error = anonymous(&registry).push_blob(&descriptor, &blob(200_000).1).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Local);
    assert!(chain(&error).contains("50000 are missing"), "{}", chain(&error));
    assert_eq!(registry.count("POST"), 1);
    assert!(state.lock().unwrap().complete.is_none());
}

#[tokio::test]
async fn a_wrong_digest_is_the_registry_s_to_refuse() {
    let (mut descriptor, source) = blob(250_000);
    descriptor.digest = Digest::sha256(b"other");
    let (registry, _) = upload_registry(Uploads::default()).await;
    let error = anonymous(&registry).push_blob(&descriptor, &source).await.unwrap_err();
    assert!(error.to_string().contains("DIGEST_INVALID"), "{error}");
    assert_eq!(registry.count("PUT"), 1);
}

#[tokio::test]
async fn mounting() {
    let digest = Digest::sha256(b"x");
    for (status, expected) in [(201, true), (202, false), (403, false), (405, false)] {
        let registry = serve(move |_| reply(status, &[("location", SESSION)], "")).await;
        let mounted =
            anonymous(&registry).mount_blob(&digest, &"other/app".parse().unwrap()).await.unwrap();
        assert_eq!(mounted, expected, "{status}");
        let first = &registry.seen()[0];
        assert_eq!(Seen::parameters(&first.query, "mount"), [digest.to_string()]);
        assert_eq!(Seen::parameters(&first.query, "from"), ["other/app"]);
        assert_eq!(
            registry.count(&format!("DELETE {SESSION}")),
            usize::from(status == 202),
            "a session is given back"
        );
    }
    let broken = serve(|_| reply(500, &[], "")).await;
    assert!(anonymous(&broken).mount_blob(&digest, &repository()).await.is_err());
}

// ---- lists

#[tokio::test]
async fn tags_of_all_pages() {
    let registry = serve(|seen| match seen.query.as_str() {
        "" => reply(
            200,
            &[("link", "</v2/team/app/tags/list?last=b>; rel=\"next\"")],
            "{\"tags\":[\"a\",\"b\"]}",
        ),
        "last=b" => reply(200, &[("link", "<list?last=c>; rel=next")], "{\"tags\":[\"c\"]}"),
        _ => reply(200, &[], "{\"name\":\"team/app\",\"tags\":null}"),
    })
    .await;
    let tags = anonymous(&registry).tags().await.unwrap();
    assert_eq!(tags.iter().map(Tag::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[tokio::test]
async fn lists_that_lead_away_or_round_are_refused() {
    let elsewhere = serve(|_| reply(200, &[], "{}")).await;
    let foreign = format!("<http://{}/v2/team/app/tags/list>; rel=next", elsewhere.host.as_str());
    let registry = serve(move |_| reply(200, &[("link", &foreign)], "{\"tags\":[]}")).await;
    let error = anonymous(&registry).tags().await.unwrap_err();
    assert!(matches!(error.failure(), Failure::ForeignPage { .. }), "{error}");
    assert!(elsewhere.seen().is_empty());
    let round = serve(|_| {
        reply(200, &[("link", "</v2/team/app/tags/list?a=1>; rel=next")], "{\"tags\":[\"a\"]}")
    })
    .await;
    let error = anonymous(&round).tags().await.unwrap_err();
    assert!(matches!(error.failure(), Failure::EndlessList { .. }), "{error}");
    assert_eq!(round.seen().len(), 2);
    let nonsense = serve(|_| reply(200, &[], "{\"tags\":[\"not a tag\"]}")).await;
    assert_eq!(anonymous(&nonsense).tags().await.unwrap_err().class(), ErrorClass::BadInput);
}

// ---- referrers

/// Manifests by tag and digest, with or without the referrers API and conditional requests.
#[derive(Default)]
struct Store {
    manifests: BTreeMap<String, Vec<u8>>,
    conditional: bool,
    says_subject: bool,
    /// Runs once before the next write to a list, as a second writer would.
    intruder: Option<Vec<u8>>,
}

fn store(state: &Mutex<Store>, seen: &Seen) -> Response {
    let mut state = state.lock().unwrap();
    let Some(name) = seen.path.strip_prefix("/v2/team/app/manifests/") else {
        return reply(404, &[], "");
    };
    if seen.method == "PUT"
        && name.starts_with("sha256-")
        && let Some(intruder) = state.intruder.take()
    {
        state.manifests.insert(name.to_owned(), intruder);
    }
    let etag = |bytes: &[u8]| format!("\"{}\"", Digest::sha256(bytes));
    let current = state.manifests.get(name).cloned();
    match (seen.method.as_str(), current) {
        ("GET", Some(bytes)) => {
            let is_index = serde_json::from_slice::<Index>(&bytes).is_ok();
            let kind = if is_index { media_type::OCI_INDEX } else { media_type::OCI_MANIFEST };
            let mut headers = vec![("content-type", kind.to_owned())];
            if state.conditional {
                headers.push(("etag", etag(&bytes)));
            }
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
            reply(200, &headers, bytes)
        }
        ("PUT", current) => {
            let matches = seen
                .header("if-match")
                .is_none_or(|wanted| current.as_ref().map(|c| etag(c)).as_deref() == Some(wanted));
            let absent = seen.header("if-none-match").is_none() || current.is_none();
            if state.conditional && !(matches && absent) {
                return reply(412, &[], "");
            }
            let digest = Digest::sha256(&seen.body).to_string();
            state.manifests.insert(name.to_owned(), seen.body.to_vec());
            state.manifests.insert(digest.clone(), seen.body.to_vec());
            let subject =
                serde_json::from_slice::<Manifest>(&seen.body).ok().and_then(|m| m.subject);
            match subject.filter(|_| state.says_subject) {
                Some(subject) => reply(
                    201,
                    &[
                        ("docker-content-digest", &digest),
                        ("oci-subject", &subject.digest.to_string()),
                    ],
                    "",
                ),
                None => reply(201, &[("docker-content-digest", &digest)], ""),
            }
        }
        ("DELETE", Some(_)) => {
            state.manifests.remove(name);
            reply(202, &[], "")
        }
        _ => reply(404, &[], ""),
    }
}

async fn store_registry(state: Store) -> (Server, Arc<Mutex<Store>>) {
    let state = Arc::new(Mutex::new(state));
    let shared = state.clone();
    (serve(move |seen| store(&shared, seen)).await, state)
}

fn subject() -> Descriptor {
    Descriptor::of(media_type::OCI_MANIFEST, &manifest())
}

fn referrer(kind: &str, name: &str) -> Vec<u8> {
    let config = Descriptor::of(media_type::OCI_EMPTY, b"{}");
    let mut manifest = Manifest::new(config, vec![]);
    manifest.artifact_type = (!kind.is_empty()).then(|| kind.to_owned());
    manifest.subject = Some(subject());
    manifest.annotations.insert("name".into(), name.into());
    manifest.to_vec()
}

async fn push(remote: &Remote, bytes: &[u8]) -> Digest {
    let target = Target::Digest(Digest::sha256(bytes));
    remote.push_manifest(&target, media_type::OCI_MANIFEST, bytes).await.unwrap().descriptor.digest
}

fn list(state: &Mutex<Store>) -> Vec<Descriptor> {
    let state = state.lock().unwrap();
    let Some(bytes) = state.manifests.get(&subject().digest.referrers_tag()) else {
        return Vec::new();
    };
    serde_json::from_slice::<Index>(bytes).unwrap().manifests
}

#[tokio::test]
async fn a_registry_without_the_api_gets_a_list_under_a_tag() {
    for conditional in [false, true] {
        let (registry, state) = store_registry(Store { conditional, ..Store::default() }).await;
        let remote = anonymous(&registry);
        let one = push(&remote, &referrer("application/vnd.a", "one")).await;
        let two = push(&remote, &referrer("", "two")).await;
        push(&remote, &referrer("application/vnd.a", "one")).await;
        let entries = list(&state);
        assert_eq!(
            entries.iter().map(|e| e.digest).collect::<Vec<_>>(),
            [one, two],
            "no duplicates"
        );
        assert_eq!(entries[0].artifact_type.as_deref(), Some("application/vnd.a"));
        assert_eq!(
            entries[1].artifact_type.as_deref(),
            Some(media_type::OCI_EMPTY),
            "the config's type"
        );
        assert_eq!(entries[0].annotations["name"], "one");
        let found = remote.referrers(&subject().digest, Some("application/vnd.a")).await.unwrap();
        assert_eq!(found.iter().map(|e| e.digest).collect::<Vec<_>>(), [one]);
        remote.delete_manifest(&one).await.unwrap();
        assert_eq!(list(&state).iter().map(|e| e.digest).collect::<Vec<_>>(), [two]);
        assert!(remote.delete_manifest(&one).await.unwrap_err().is_not_found());
    }
}

#[tokio::test]
async fn a_registry_that_lists_subjects_itself_gets_no_tag() {
    let (registry, state) = store_registry(Store { says_subject: true, ..Store::default() }).await;
    push(&anonymous(&registry), &referrer("application/vnd.a", "one")).await;
    assert!(list(&state).is_empty());
}

#[tokio::test]
async fn a_second_writer_s_entry_is_kept() {
    let other = Descriptor::of(media_type::OCI_MANIFEST, b"other");
    let intruder = Some(Index::new(vec![other.clone()]).to_vec());
    let (registry, state) =
        store_registry(Store { conditional: true, intruder, ..Store::default() }).await;
    let one = push(&anonymous(&registry), &referrer("application/vnd.a", "one")).await;
    let digests: Vec<_> = list(&state).iter().map(|entry| entry.digest).collect();
    assert_eq!(digests, [other.digest, one]);
}

#[tokio::test]
async fn many_writers_in_one_process_lose_nothing() {
    let (registry, state) = store_registry(Store::default()).await;
    let remote = anonymous(&registry);
    let writers = (0..6).map(|n| {
        let remote = remote.clone();
        tokio::spawn(
            async move { push(&remote, &referrer("application/vnd.a", &n.to_string())).await },
        )
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(list(&state).len(), 6);
}

#[tokio::test]
async fn many_writers_in_many_processes_lose_nothing_where_the_registry_checks() {
    let (registry, state) = store_registry(Store { conditional: true, ..Store::default() }).await;
    let writers = (0..4).map(|n| {
        // A client of its own shares nothing with the others, as in another process.
        let remote = anonymous(&registry);
        tokio::spawn(
            async move { push(&remote, &referrer("application/vnd.a", &n.to_string())).await },
        )
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(list(&state).len(), 4);
}

#[tokio::test]
async fn a_tag_that_holds_something_else_is_not_overwritten() {
    let manifests = BTreeMap::from([(subject().digest.referrers_tag(), manifest())]);
    let (registry, state) = store_registry(Store { manifests, ..Store::default() }).await;
    let remote = anonymous(&registry);
    let bytes = referrer("application/vnd.a", "one");
    let error =
        remote.push_manifest(&tag("sig"), media_type::OCI_MANIFEST, &bytes).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::NotAReferrersList { .. }), "{error}");
    assert_eq!(state.lock().unwrap().manifests[&subject().digest.referrers_tag()], manifest());
    assert!(remote.referrers(&subject().digest, None).await.unwrap().is_empty(), "it is no list");
}

#[tokio::test]
async fn entries_without_a_type_are_looked_up() {
    let bytes = referrer("application/vnd.a", "one");
    let bare = Descriptor::of(media_type::OCI_MANIFEST, &bytes);
    let gone = Descriptor::of(media_type::OCI_MANIFEST, b"gone");
    let manifests = BTreeMap::from([
        (subject().digest.referrers_tag(), Index::new(vec![bare.clone(), gone]).to_vec()),
        (bare.digest.to_string(), bytes),
    ]);
    let (registry, _) = store_registry(Store { manifests, ..Store::default() }).await;
    let found =
        anonymous(&registry).referrers(&subject().digest, Some("application/vnd.a")).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].digest, found[0].annotations["name"].as_str()), (bare.digest, "one"));
}

#[tokio::test]
async fn entries_that_an_api_without_filter_leaves_untyped_are_looked_up() {
    let bytes = referrer("application/vnd.a", "one");
    let bare = Descriptor::of(media_type::OCI_MANIFEST, &bytes);
    let (list, digest) = (Index::new(vec![bare.clone()]).to_vec(), bare.digest);
    let registry = serve(move |seen| match seen.path.contains("/referrers/") {
        true => reply(200, &[("content-type", media_type::OCI_INDEX)], list.clone()),
        false => reply(200, &[("content-type", media_type::OCI_MANIFEST)], bytes.clone()),
    })
    .await;
    let remote = anonymous(&registry);
    for (wanted, expected) in [("application/vnd.a", vec![digest]), ("application/vnd.b", vec![])] {
        let found = remote.referrers(&subject().digest, Some(wanted)).await.unwrap();
        assert_eq!(found.iter().map(|entry| entry.digest).collect::<Vec<_>>(), expected);
    }
}

/// A list of strangers that would each cost a request, and one that is long without being many.
#[tokio::test]
async fn lists_of_referrers_cost_no_more_than_they_may() {
    let untyped: Vec<Descriptor> = (0..1001)
        .map(|n: u32| Descriptor::of(media_type::OCI_MANIFEST, &n.to_be_bytes()))
        .collect();
    let list = Index::new(untyped).to_vec();
    let registry = serve(move |seen| match seen.path.contains("/referrers/") {
        true => reply(200, &[("content-type", media_type::OCI_INDEX)], list.clone()),
        false => reply(404, &[], ""),
    })
    .await;
    let error = anonymous(&registry).referrers(&subject().digest, Some("a/b")).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::UntypedList { limit: 1000 }), "{error}");

    let mut entry = Descriptor::of(media_type::OCI_MANIFEST, b"1");
    entry.artifact_type = Some("a/b".to_owned());
    entry.annotations.insert("long".to_owned(), "x".repeat(3 << 20));
    let list = Index::new(vec![entry]).to_vec();
    let registry = serve(move |seen| {
        let page: usize =
            Seen::parameters(&seen.query, "page").first().map_or(0, |n| n.parse().unwrap());
        let next = format!("<?page={}>; rel=\"next\"", page + 1);
        reply(200, &[("content-type", media_type::OCI_INDEX), ("link", &next)], list.clone())
    })
    .await;
    let error = anonymous(&registry).referrers(&subject().digest, Some("a/b")).await.unwrap_err();
    assert!(matches!(error.failure(), Failure::EndlessList { pages: ..40, .. }), "{error}");
}

#[tokio::test]
async fn what_a_registry_chose_by_type_need_not_tell_it() {
    let bare = Descriptor::of(media_type::OCI_MANIFEST, b"1");
    let list = Index::new(vec![bare]).to_vec();
    let headers =
        [("content-type", media_type::OCI_INDEX), ("oci-filters-applied", "artifactType")];
    let registry = serve(move |_| reply(200, &headers, list.clone())).await;
    let found = anonymous(&registry).referrers(&subject().digest, Some("a/b")).await.unwrap();
    assert_eq!(found[0].artifact_type.as_deref(), Some("a/b"));
}

#[tokio::test]
async fn the_referrers_api_with_pages_and_filters() {
    let entry = |kind: &str, content: &[u8]| {
        let mut entry = Descriptor::of(media_type::OCI_MANIFEST, content);
        entry.artifact_type = Some(kind.to_owned());
        entry
    };
    for filters in [false, true] {
        let registry = serve(move |seen| {
            let page = Seen::parameters(&seen.query, "page");
            let entries = match page.first().map(String::as_str) {
                None => vec![entry("application/vnd.a", b"1"), entry("application/vnd.b", b"2")],
                Some(_) => vec![entry("application/vnd.a", b"3")],
            };
            let mut headers = vec![("content-type", media_type::OCI_INDEX)];
            if page.is_empty() {
                headers.push(("link", "</elsewhere>; rel=\"prev\""));
                headers.push(("link", "<?artifactType=application%2Fvnd.a&page=2>; rel=\"next\""));
            }
            if filters {
                headers.push(("oci-filters-applied", "artifactType"));
            }
            reply(200, &headers, Index::new(entries).to_vec())
        })
        .await;
        let found = anonymous(&registry)
            .referrers(&subject().digest, Some("application/vnd.a"))
            .await
            .unwrap();
        // A registry that says it filtered is believed.
        assert_eq!(found.len(), if filters { 3 } else { 2 });
        let first = &registry.seen()[0];
        assert_eq!(first.path, format!("/v2/team/app/referrers/{}", subject().digest));
        assert_eq!(Seen::parameters(&first.query, "artifactType"), ["application/vnd.a"]);
        assert_eq!(registry.seen().len(), 2);
    }
}

#[tokio::test]
async fn a_web_page_is_no_referrers_api_and_trouble_is_not_an_empty_list() {
    let page = serve(|seen| match seen.path.contains("/referrers/") {
        true => reply(200, &[("content-type", "text/html")], "<html>"),
        false => reply(404, &[], ""),
    })
    .await;
    // Who decides by what is not there is not told that nothing is.
    for wanted in [None, Some("application/vnd.a")] {
        let error = anonymous(&page).referrers(&subject().digest, wanted).await.unwrap_err();
        assert!(matches!(error.failure(), Failure::NoReferrers { .. }), "{error}");
        assert_eq!(error.class(), ErrorClass::Transport);
        assert!(error.to_string().contains("text/html"), "{error}");
    }
    let error = anonymous(&page).referring(&subject().digest, 9).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transport);
    let none = serve(|_| reply(404, &[], "")).await;
    assert!(anonymous(&none).referrers(&subject().digest, None).await.unwrap().is_empty());
    assert!(anonymous(&none).referring(&subject().digest, 9).await.unwrap().is_empty());
    let broken = serve(|seen| match seen.path.contains("/referrers/") {
        true => reply(404, &[], ""),
        false => reply(403, &[], ""),
    })
    .await;
    let error = anonymous(&broken).referrers(&subject().digest, None).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Denied);
}

/// Some registries send who asks for referrers to a web site of theirs. That says nothing of what is
/// attached, until somebody who knows the registry says where its lists are.
#[tokio::test]
async fn a_registry_that_sends_referrers_elsewhere_is_asked_by_tag_where_the_settings_say_so() {
    let limited = serve(|_| reply(429, &[], "")).await;
    let page = serve(|_| reply(200, &[("content-type", "text/html")], "<html>")).await;
    for elsewhere in [limited, page] {
        let to = format!("http://{}/search", elsewhere.host.as_str());
        let state = Arc::new(Mutex::new(Store { says_subject: true, ..Store::default() }));
        let shared = Arc::clone(&state);
        let registry = serve(move |seen| match seen.path.contains("/referrers/") {
            true => reply(303, &[("location", &to)], ""),
            false => store(&shared, seen),
        })
        .await;
        let error = anonymous(&registry).referrers(&subject().digest, None).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Transport, "{error}");
        assert!(error.to_string().contains("set `referrers = \"tag\"` for this host"), "{error}");
        assert!(anonymous(&registry).referring(&subject().digest, 9).await.is_err());

        let mut by_tag = quick();
        by_tag.host_mut(&registry.host).referrers = ReferrersIn::Tag;
        let by_tag = remote(&registry, by_tag, CredentialStore::anonymous());
        let asked = elsewhere.seen().len();
        assert!(by_tag.referrers(&subject().digest, None).await.unwrap().is_empty());
        // It says that it has listed it, and it is listed where it is looked for all the same.
        let one = push(&by_tag, &referrer("application/vnd.a", "one")).await;
        let found = by_tag.referrers(&subject().digest, Some("application/vnd.a")).await.unwrap();
        assert_eq!(found.iter().map(|entry| entry.digest).collect::<Vec<_>>(), [one]);
        assert_eq!(by_tag.referring(&subject().digest, 9).await.unwrap(), [one].into());
        by_tag.delete_manifest(&one).await.unwrap();
        assert!(list(&state).is_empty());
        assert_eq!(elsewhere.seen().len(), asked, "the API is never asked");
    }
}

/// Who gave a page has the API: what is missing then is trouble, and no old list under the tag counts.
#[tokio::test]
async fn a_list_of_referrers_whose_second_page_is_gone_is_an_error() {
    let entry = |content: &[u8]| {
        let mut entry = Descriptor::of(media_type::OCI_MANIFEST, content);
        entry.artifact_type = Some("application/vnd.a".to_owned());
        entry
    };
    let (page, old) = (Index::new(vec![entry(b"1")]), Index::new(vec![entry(b"old")]));
    let (page, old) = (page.to_vec(), old.to_vec());
    let registry = serve(move |seen| {
        let next = [("content-type", media_type::OCI_INDEX), ("link", "<?page=2>; rel=\"next\"")];
        match (seen.path.contains("/referrers/"), seen.query.contains("page=2")) {
            (true, false) => reply(200, &next, page.clone()),
            (true, true) => reply(404, &[], ""),
            (false, _) => reply(200, &next[..1], old.clone()),
        }
    })
    .await;
    let remote = anonymous(&registry);
    for wanted in [None, Some("application/vnd.a")] {
        let error = remote.referrers(&subject().digest, wanted).await.unwrap_err();
        assert!(matches!(error.failure(), Failure::LostPage { read: 1 }), "{error}");
        assert_eq!(error.class(), ErrorClass::Transport, "it is no word that there is nothing");
    }
    assert!(remote.referring(&subject().digest, 9).await.is_err());
}

/// A page in the place of the API neither keeps a deletion from the list under the tag nor makes one.
#[tokio::test]
async fn deleting_behind_a_web_page_makes_no_list() {
    let bytes = referrer("application/vnd.a", "one");
    let (digest, written) = (Digest::sha256(&bytes), Arc::new(AtomicUsize::new(0)));
    let seen_writes = Arc::clone(&written);
    let registry = serve(move |seen| {
        let html = [("content-type", "text/html")];
        match (seen.method.as_str(), seen.path.contains("/referrers/")) {
            (_, true) => reply(200, &html, "<html>"),
            ("PUT", _) => {
                seen_writes.fetch_add(1, Ordering::Relaxed);
                reply(201, &[], "")
            }
            ("DELETE", _) => reply(202, &[], ""),
            _ if seen.path.ends_with(&digest.to_string()) => {
                reply(200, &[("content-type", media_type::OCI_MANIFEST)], bytes.clone())
            }
            _ => reply(404, &[], ""),
        }
    })
    .await;
    anonymous(&registry).delete_manifest(&digest).await.unwrap();
    assert_eq!(written.load(Ordering::Relaxed), 0);
}
