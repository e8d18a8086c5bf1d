//! Releases from an API server that lies, hangs, forgets and is cut off, over loopback. What a real one says is tried in
//! `crates/e2e/tests/agent_cluster.rs`.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use portolan_registry::serving;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use futures_util::future::BoxFuture;
use portolan_core::Digest;

use super::judge::tests::{digest, host, release};
use super::*;
use crate::config::NodeConfig;
use crate::reason::Reason;

/// One answer of the server.
enum Answer {
    Json(u16, Value),
    /// These lines, and then as it says.
    Lines(Vec<Value>, End),
    Bytes(Vec<u8>),
    Never,
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// The answer is whole.
    Whole,
    /// In the middle of the last line.
    Cut,
    /// The connection breaks.
    Broken,
    /// It stays open.
    Open,
}

/// What a server says to a list and to a watch, one after the other; the last stays.
#[derive(Default)]
struct Script {
    lists: VecDeque<Answer>,
    watches: VecDeque<Answer>,
    asked: Vec<(Instant, String)>,
}

type Server = Arc<Mutex<Script>>;

async fn answer(Shared(script): Shared<Server>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let said = {
        let mut script = script.lock().unwrap();
        let asked = format!("{}?{query}", request.uri().path());
        script.asked.push((Instant::now(), asked));
        let watch = query.contains("watch=true");
        let list = if watch { &mut script.watches } else { &mut script.lists };
        list.pop_front().unwrap_or(Answer::Never)
    };
    match said {
        Answer::Json(status, value) => {
            let mut response = Response::new(Body::from(value.to_string()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        }
        Answer::Bytes(bytes) => Response::new(Body::from(bytes)),
        Answer::Lines(lines, end) => {
            let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            if end == End::Cut {
                let last = lines.last().map_or(0, |line| line.to_string().len());
                text.truncate(text.len() - last / 2);
            }
            let first = stream::iter([Ok::<_, io::Error>(Bytes::from(text))]);
            match end {
                End::Broken => {
                    // A moment later, so that the watch is open before.
                    let broken = stream::once(async {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        Err(io::Error::other("broken"))
                    });
                    Response::new(Body::from_stream(first.chain(broken)))
                }
                End::Open => Response::new(Body::from_stream(first.chain(stream::pending()))),
                End::Whole | End::Cut => Response::new(Body::from_stream(first)),
            }
        }
        Answer::Never => std::future::pending().await,
    }
}

/// Where it answers.
async fn serve(script: Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(script);
    tokio::spawn(async move {
        let listener = serving::Listener::Tcp(listener, None);
        serving::run(listener, router, &serving::Limits::default(), std::future::pending()).await;
    });
    url
}

/// A cache that takes everything but what it is told to refuse.
#[derive(Default)]
struct Fake {
    there: Mutex<BTreeSet<Digest>>,
    refuse: BTreeSet<String>,
    /// These it does not survive.
    panic: BTreeSet<String>,
    full: std::sync::atomic::AtomicBool,
    fetched: Mutex<Option<mpsc::UnboundedSender<String>>>,
}

impl Cache for Fake {
    fn fetch<'a>(
        &'a self,
        image: &'a ResolvedImage,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Fetched, NotFetched>> {
        let digest = image.resolved_digest;
        let refused = self.refuse.contains(&digest.to_string());
        if !refused && !self.panic.contains(&digest.to_string()) {
            self.there.lock().unwrap().insert(digest);
        }
        if let Some(sender) = &*self.fetched.lock().unwrap() {
            let _ = sender.send(digest.to_string());
        }
        if self.panic.contains(&digest.to_string()) {
            return async { panic!("on purpose") }.boxed();
        }
        let why = || NotFetched {
            reason: Reason::VerificationFailed,
            message: "nobody signed it".to_owned(),
            no_room: false,
        };
        let outcome = if refused { Err(why()) } else { Ok(Fetched { cached: false }) };
        std::future::ready(outcome).boxed()
    }

    fn cached(&self, of: &mut dyn Iterator<Item = Digest>) -> BTreeSet<Digest> {
        let there = self.there.lock().unwrap();
        of.filter(|digest| there.contains(digest)).collect()
    }

    fn is_full(&self) -> bool {
        self.full.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// An agent that follows a server with a script.
struct Bench {
    releases: Arc<Releases>,
    cache: Arc<Fake>,
    script: Server,
    fetched: mpsc::UnboundedReceiver<String>,
    _dir: tempfile::TempDir,
    _stop: DropGuard,
}

impl Bench {
    async fn start(
        lists: impl IntoIterator<Item = Answer>,
        watches: impl IntoIterator<Item = Answer>,
        cache: Fake,
    ) -> Self {
        Self::at_pace(PACE, lists, watches, cache).await
    }

    async fn at_pace(
        pace: Pace,
        lists: impl IntoIterator<Item = Answer>,
        watches: impl IntoIterator<Item = Answer>,
        cache: Fake,
    ) -> Self {
        let script = Server::default();
        script.lock().unwrap().lists.extend(lists);
        script.lock().unwrap().watches.extend(watches);
        let url = serve(Arc::clone(&script)).await;
        let dir = tempfile::tempdir().unwrap();
        let (sender, fetched) = mpsc::unbounded_channel();
        *cache.fetched.lock().unwrap() = Some(sender);
        let cache = Arc::new(cache);
        let config = PrefetchConfig::default();
        let server = ApiServer::new(&account(dir.path(), &url), |_| None).unwrap();
        let following = Following::new(&server, &config, host("linux/amd64")).unwrap();
        let releases = Arc::new(Releases::at_pace(pace, config, Arc::new(Metrics::new())));
        let stop = CancellationToken::new();
        let task = Arc::clone(&releases);
        tokio::spawn(task.run(following, Arc::clone(&cache) as _, stop.clone()));
        Self { releases, cache, script, fetched, _dir: dir, _stop: stop.drop_guard() }
    }

    async fn next(&mut self) -> String {
        let patience = Duration::from_secs(20);
        let next = tokio::time::timeout(patience, self.fetched.recv()).await;
        next.unwrap_or_else(|_| panic!("{:?}", self.releases.status())).unwrap()
    }

    /// Waits until its status is as expected.
    async fn until(&self, what: impl Fn(&PrefetchStatus) -> bool) -> PrefetchStatus {
        for _ in 0..400 {
            let status = self.releases.status();
            if what(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{:?}", self.releases.status())
    }

    fn asked(&self) -> Vec<String> {
        self.script.lock().unwrap().asked.iter().map(|(_, asked)| asked.clone()).collect()
    }

    /// When a watch was asked for.
    fn watched(&self) -> Vec<Instant> {
        let script = self.script.lock().unwrap();
        let watches = script.asked.iter().filter(|(_, asked)| asked.contains("watch=true"));
        watches.map(|(at, _)| *at).collect()
    }
}

fn account(dir: &Path, server: &str) -> NodeConfig {
    let (token_file, ca_file) = (dir.join("token"), dir.join("ca.crt"));
    std::fs::write(&token_file, "t").unwrap();
    std::fs::write(&ca_file, "not looked at over loopback").unwrap();
    NodeConfig {
        server: Some(server.to_owned()),
        token_file: Some(token_file),
        ca_file: Some(ca_file),
        ..NodeConfig::default()
    }
}

fn page(names: &[&str], next: Option<&str>) -> Answer {
    let items: Vec<_> = names.iter().map(|name| release(name)).collect();
    let metadata = json!({ "resourceVersion": "5", "continue": next.unwrap_or_default() });
    Answer::Json(200, json!({ "kind": "ReleaseList", "metadata": metadata, "items": items }))
}

fn event(kind: &str, name: &str) -> Value {
    json!({ "type": kind, "object": release(name) })
}

fn gone() -> Value {
    json!({ "kind": "Status", "code": 410, "reason": "Expired" })
}

fn image(name: &str) -> String {
    digest(&format!("{name} linux/amd64"))
}

#[tokio::test]
async fn releases_are_listed_in_pages_and_changes_are_heard_of() {
    let lists = [page(&["a"], Some("more")), page(&["b"], None)];
    let bookmark =
        json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": "9" } } });
    let first = vec![event("ADDED", "c"), bookmark, event("DELETED", "a")];
    let watches =
        [Answer::Lines(first, End::Whole), Answer::Lines(vec![event("MODIFIED", "d")], End::Open)];
    let mut bench = Bench::start(lists, watches, Fake::default()).await;
    let status = bench.until(|status| status.releases[&PrefetchState::Here] == 3).await;
    assert!(status.current && status.absent.is_empty(), "a is gone: {status:?}");
    let mut fetched = BTreeSet::new();
    while let Ok(one) = bench.fetched.try_recv() {
        fetched.insert(one);
    }
    // It was gone before its turn came, or after.
    fetched.remove(&image("a"));
    assert_eq!(fetched, BTreeSet::from(["b", "c", "d"].map(image)));
    let asked = bench.asked();
    let path = "/apis/portolan.dev/v1alpha1/releases?labelSelector=portolan.dev%2Fprefetch%3Dtrue";
    assert!(asked.iter().all(|one| one.starts_with(path)), "{asked:?}");
    assert!(asked[1].contains("continue=more"), "{asked:?}");
    // The first watch from the list, the second from what the first came to.
    let watches: Vec<_> = asked.iter().filter(|one| one.contains("watch=true")).collect();
    assert!(watches[0].contains("resourceVersion=5"), "{watches:?}");
    assert!(watches[1].contains("resourceVersion=7"), "{watches:?}");
}

#[tokio::test]
async fn an_api_server_that_has_forgotten_is_asked_for_everything_again() {
    let forgotten = json!({ "type": "ERROR", "object": gone() });
    let lists = [
        page(&["a"], Some("more")),
        // The list got too old between its pages.
        Answer::Json(410, gone()),
        page(&["a"], None),
        page(&["a", "b"], None),
        page(&["c"], None),
    ];
    let watches = [
        Answer::Lines(vec![forgotten], End::Whole),
        Answer::Json(410, gone()),
        Answer::Lines(vec![], End::Open),
    ];
    let mut bench = Bench::start(lists, watches, Fake::default()).await;
    for name in ["a", "b", "c"] {
        assert_eq!(bench.next().await, image(name));
    }
    let status = bench.until(|status| status.releases[&PrefetchState::Here] == 1).await;
    assert!(status.current, "what is no longer listed is no longer known: {status:?}");
}

#[tokio::test]
async fn a_server_that_refuses_breaks_off_or_talks_nonsense_is_asked_again_and_what_is_known_stays()
{
    let lists = [
        Answer::Json(401, json!({ "message": "Unauthorized" })),
        Answer::Bytes(b"{\"metadata\": {".to_vec()),
        page(&["a"], None),
        page(&["a", "b"], None),
    ];
    let watches = [
        // A line that is cut off is no line.
        Answer::Lines(vec![event("MODIFIED", "a"), event("ADDED", "cut")], End::Cut),
        Answer::Json(403, json!({ "message": "releases.portolan.dev is forbidden" })),
    ];
    let mut bench = Bench::start(lists, watches, Fake::default()).await;
    assert_eq!(bench.next().await, image("a"));
    let status = bench.until(|status| status.problem.is_some()).await;
    assert!(!status.current && status.problem.unwrap().contains("forbidden"));
    assert_eq!(status.releases[&PrefetchState::Here], 1, "a is still known");
    assert_eq!(bench.next().await, image("b"));
}

/// Each opens the watch and tells nothing in it.
#[tokio::test]
async fn a_server_whose_watches_end_as_soon_as_they_begin_is_asked_ever_more_seldom() {
    let pace = Pace { first: Duration::from_millis(40), ..PACE };
    let trouble = |code: u16| {
        let status = json!({ "kind": "Status", "code": code, "message": "etcd is away" });
        vec![json!({ "type": "ERROR", "object": status })]
    };
    for (lines, end) in [
        (vec![], End::Broken),
        (vec![], End::Whole),
        (trouble(500), End::Whole),
        (trouble(410), End::Whole),
    ] {
        let lists = (0..6).map(|_| page(&["a"], None));
        let watches = (0..5).map(|_| Answer::Lines(lines.clone(), end));
        let heard = Answer::Lines(vec![event("ADDED", "b")], End::Open);
        let watches = watches.chain([heard]);
        let mut bench = Bench::at_pace(pace, lists, watches, Fake::default()).await;
        assert_eq!((bench.next().await, bench.next().await), (image("a"), image("b")));
        let watched = bench.watched();
        let waited: Vec<_> = watched.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // With all the luck of the jitter: half of 40, 80, 160, 320 and 640 ms.
        for (n, waited) in (0_u32..).zip(&waited) {
            assert!(*waited >= pace.first * 2_u32.pow(n) / 2, "{n}: {waited:?}");
        }
        assert_eq!(waited.len(), 5);
        let status = bench.releases.status();
        assert!(status.current && status.problem.is_none(), "{status:?}");
    }
}

#[test]
fn a_watch_that_works_ends_all_trouble() {
    let mut trouble = Trouble::default();
    let waits = [(); 8].map(|()| trouble.more(PACE, 1.0).as_secs());
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    trouble.over();
    assert_eq!(trouble.more(PACE, 0.0), PACE.first / 2);
}

#[tokio::test]
async fn a_watch_that_lasts_works_although_nothing_happens() {
    let ends = json!({ "type": "ERROR", "object": { "code": 500 } });
    let at_pace =
        |pace| Releases::at_pace(pace, PrefetchConfig::default(), Arc::new(Metrics::new()));
    let (releases, quick) =
        (at_pace(PACE), at_pace(Pace { steady: Duration::from_millis(200), ..PACE }));
    let mut trouble = Trouble { failures: 5, told: true };
    // A machine that is busy may need longer than a second for a list and a watch: then it is asked again.
    const TURNS: usize = 30;
    let open = (0..TURNS).map(|_| Answer::Lines(vec![], End::Open));
    let script = Script {
        lists: (0..=TURNS).map(|_| page(&[], None)).collect(),
        watches: [Answer::Lines(vec![ends], End::Whole)].into_iter().chain(open).collect(),
        ..Script::default()
    };
    let (url, dir) = (serve(Arc::new(Mutex::new(script))).await, tempfile::tempdir().unwrap());
    let server = ApiServer::new(&account(dir.path(), &url), |_| None).unwrap();
    let mut follower = Follower::new(&server, None, host("linux/amd64")).unwrap();
    releases.round(&mut follower, &mut trouble).await.unwrap_err();
    assert_eq!(trouble.failures, 5, "it was open and told nothing");
    for _ in 0..TURNS {
        let open = quick.round(&mut follower, &mut trouble);
        tokio::time::timeout(Duration::from_secs(1), open).await.unwrap_err();
        if trouble.failures == 0 {
            return;
        }
    }
    panic!("{trouble:?}");
}

#[tokio::test]
async fn a_fetch_that_panics_is_tried_later_and_harms_no_other() {
    let cache = Fake { panic: BTreeSet::from([image("bad")]), ..Fake::default() };
    let mut bench = Bench::start([page(&["bad", "good"], None)], [Answer::Never], cache).await;
    let both = BTreeSet::from([bench.next().await, bench.next().await]);
    assert_eq!(both, BTreeSet::from([image("bad"), image("good")]));
    let status = bench
        .until(|status| {
            let [here, failed] =
                [PrefetchState::Here, PrefetchState::Failed].map(|state| status.releases[&state]);
            here == 1 && failed == 1
        })
        .await;
    assert!(status.absent[0].message.contains("ended without an outcome"), "{status:?}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(bench.fetched.try_recv().is_err(), "it was asked again at once");
}

#[tokio::test]
async fn a_malformed_release_harms_no_other_and_a_refused_one_is_told() {
    let mut broken = release("broken");
    broken["status"] = json!([1, 2]);
    let items = json!([json!(null), json!("x"), broken, release("refused"), release("good")]);
    let metadata = json!({ "resourceVersion": "5" });
    let lists = [Answer::Json(200, json!({ "metadata": metadata, "items": items }))];
    let refuse = BTreeSet::from([image("refused")]);
    let cache = Fake { refuse, ..Fake::default() };
    let mut bench = Bench::start(lists, [Answer::Never], cache).await;
    let both = BTreeSet::from([bench.next().await, bench.next().await]);
    assert_eq!(both, BTreeSet::from([image("good"), image("refused")]));
    let status = bench.until(|status| status.releases[&PrefetchState::Failed] == 1).await;
    assert_eq!(status.releases[&PrefetchState::Here], 1);
    let told = |name: &str| status.absent.iter().find(|one| one.release == name).unwrap();
    assert!(told("shop/broken").message.contains("cannot be read"));
    assert!(told("shop/refused").message.contains("verification_failed: nobody signed it"));
}

#[tokio::test]
async fn a_list_that_is_too_long_is_asked_for_in_smaller_pages_and_read_to_a_bound() {
    let mut huge = release("huge");
    huge["spec"]["image"] = json!("x".repeat(9 << 20));
    let items = json!({ "metadata": { "resourceVersion": "5" }, "items": [huge] });
    let lists = [Answer::Json(200, items), page(&["a"], None)];
    let mut bench = Bench::start(lists, [Answer::Never], Fake::default()).await;
    assert_eq!(bench.next().await, image("a"));
    let asked = bench.asked();
    assert!(asked[0].contains("limit=50") && asked[1].contains("limit=4"), "{asked:?}");
    // One of them in a watch is no more than a line may be.
    let line = json!({ "type": "ADDED", "object": { "x": "y".repeat(5 << 20) } });
    let lists = [page(&["a"], None), page(&["b"], None)];
    let mut bench =
        Bench::start(lists, [Answer::Lines(vec![line], End::Open)], Fake::default()).await;
    assert_eq!((bench.next().await, bench.next().await), (image("a"), image("b")));
    // Pages without an end, each with something new.
    let many = |n: usize| -> Answer {
        let names: Vec<String> = (0..500).map(|i| format!("r{n}-{i}")).collect();
        page(&names.iter().map(String::as_str).collect::<Vec<_>>(), Some("more"))
    };
    let cache = Fake::default();
    cache.full.store(true, std::sync::atomic::Ordering::Relaxed);
    let bench = Bench::start((0..20).map(many), [Answer::Never], cache).await;
    let status =
        bench.until(|status| status.current && status.releases.values().sum::<u64>() > 0).await;
    assert_eq!(status.releases.values().sum::<u64>(), 4096);
    assert_eq!(status.absent.len(), MAX_TOLD);
}

#[tokio::test]
async fn pages_of_what_has_no_name_end_as_well() {
    let nameless = || {
        let items: Vec<_> = (0..500).map(|n| json!({ "metadata": { "uid": n } })).collect();
        let metadata = json!({ "resourceVersion": "5", "continue": "more" });
        Answer::Json(200, json!({ "metadata": metadata, "items": items }))
    };
    let bench = Bench::start((0..20).map(|_| nameless()), [Answer::Never], Fake::default()).await;
    bench.until(|status| status.current).await;
    let lists = bench.asked().iter().filter(|one| !one.contains("watch=true")).count();
    assert_eq!(lists, 4096_usize.div_ceil(500));
}

#[tokio::test]
async fn without_room_nothing_is_fetched_until_there_is_some() {
    let cache = Fake::default();
    cache.full.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut bench = Bench::start([page(&["a"], None)], [Answer::Never], cache).await;
    let status = bench.until(|status| status.releases[&PrefetchState::Waiting] == 1).await;
    assert!(status.absent[0].message.contains("no room"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(bench.fetched.try_recv().is_err());
    bench.cache.full.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(bench.next().await, image("a"));
}
