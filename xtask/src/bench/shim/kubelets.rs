//! The bench in the place of kubelets and of the controller of Jobs: Jobs end well, nodes say that they live.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::BufRead as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Body, Connection, Server};
use super::objects::{TIME, jobs};
use super::plane::Plane;

/// How many end Jobs at once. The next Job of a node is made when the one before it has ended, so this must not be what is
/// waited for.
const HANDS: usize = 16;

/// Where our Jobs say what they are.
const IDENTITY: &str = "runtime.spinkube.dev/job";

/// What is looked at of an event.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// How many Shims a Job installs: ours says who comes along, everybody else's is for one.
    fn installs(&self) -> usize {
        let identity = self.annotations.get(IDENTITY);
        let identity = identity.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let also = identity.as_ref().and_then(|identity| identity["also"].as_array());
        1 + also.map_or(0, Vec::len)
    }
}

/// A Job that is to end: when, its name, and how many Shims it installs.
type Due = (Instant, String, usize);

/// Jobs of one namespace: when the last was made, and when each is to end.
#[derive(Debug, Default)]
struct Heard {
    jobs: usize,
    made: usize,
    last: Option<Instant>,
    ended: usize,
    due: BinaryHeap<Reverse<Due>>,
    trouble: Option<String>,
}

/// Ends the Jobs of a namespace as they come.
#[derive(Debug)]
pub(super) struct Kubelets {
    server: Server,
    path: String,
    /// How long Jobs take: the first, and so much more for the last.
    takes: (Duration, Duration),
    heard: Mutex<Heard>,
    news: Condvar,
    over: AtomicBool,
}

impl Kubelets {
    pub(super) fn new(plane: &Plane, namespace: &str, takes: (Duration, Duration)) -> Self {
        Self {
            server: plane.server.clone(),
            path: jobs(namespace),
            takes,
            heard: Mutex::default(),
            news: Condvar::new(),
            over: AtomicBool::new(false),
        }
    }

    /// Starts to listen and to work, until `stop`.
    pub(super) fn start<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<()> {
        let mut connection = Connection::open(&self.server)?;
        let list = connection.get(&format!("{}?limit=1", self.path))?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a version")?;
        let version = version.to_owned();
        scope.spawn(move || {
            if let Err(error) = self.listen(version) {
                self.fail(&error.context("the watch of Jobs"));
            }
        });
        for _ in 0..HANDS {
            scope.spawn(move || {
                let mut connection = None;
                while let Some((name, installs)) = self.next() {
                    if let Err(error) = self.end(&mut connection, &name) {
                        return self.fail(&error);
                    }
                    self.lock().ended += installs;
                }
            });
        }
        Ok(())
    }

    /// Hears of Jobs until all is over. Watches end, by the server or in silence: the next goes on where the last one was.
    fn listen(&self, mut version: String) -> Result<()> {
        while !self.over.load(Ordering::Relaxed) {
            let path =
                format!("{}?watch=1&timeoutSeconds=3600&resourceVersion={version}", self.path);
            for line in Connection::open(&self.server)?.watch(&path)?.lines() {
                // Nothing happened for longer than a connection waits, or it broke.
                let Ok(line) = line else { break };
                let event: Event = serde_json::from_str(&line).with_context(|| line.clone())?;
                version.clone_from(&event.object.metadata.resource_version);
                if event.kind == "ADDED" {
                    self.made(event.object.metadata);
                }
                if self.over.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: &anyhow::Error) {
        // A watch that ends because all is over is no trouble.
        if !self.over.load(Ordering::Relaxed) {
            self.lock().trouble.get_or_insert_with(|| format!("{error:#}"));
        }
    }

    fn made(&self, job: Metadata) {
        let (now, installs) = (Instant::now(), job.installs());
        let mut heard = self.lock();
        // The same for everybody who is measured, and not all at the same time.
        let spread = u32::try_from(heard.jobs * 7919 % 997).unwrap_or_default();
        heard.jobs += 1;
        heard.made += installs;
        heard.last = Some(now);
        let at = now + self.takes.0 + self.takes.1 * spread / 997;
        heard.due.push(Reverse((at, job.name, installs)));
        self.news.notify_one();
    }

    /// The next Job to end, when its time has come.
    fn next(&self) -> Option<(String, usize)> {
        let mut heard = self.lock();
        loop {
            if self.over.load(Ordering::Relaxed) {
                return None;
            }
            let now = Instant::now();
            let due = heard.due.peek().map(|Reverse((at, ..))| *at);
            let wait = match due {
                Some(at) if at <= now => {
                    return heard.due.pop().map(|Reverse((_, name, installs))| (name, installs));
                }
                Some(at) => at - now,
                None => Duration::from_millis(200),
            };
            let waited = self.news.wait_timeout(heard, wait.min(Duration::from_millis(200)));
            heard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends a Job. A server hangs up on who has said nothing for a while: it is said again then, which changes nothing.
    fn end(&self, connection: &mut Option<Connection>, name: &str) -> Result<()> {
        if let Some(open) = connection
            && self.say_ended(open, name).is_ok()
        {
            return Ok(());
        }
        self.say_ended(connection.insert(Connection::open(&self.server)?), name)
    }

    fn say_ended(&self, connection: &mut Connection, name: &str) -> Result<()> {
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": TIME, "lastTransitionTime": TIME});
        let status = json!({"status": {
            "startTime": TIME, "completionTime": TIME, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        }});
        let path = format!("{}/{name}/status", self.path);
        connection.bytes("PATCH", &path, Body::Merge(status.to_string().as_bytes())).map(drop)
    }

    /// How many installs were begun and ended, by how many Jobs, and when the last was made.
    pub(super) fn progress(&self) -> Result<Progress> {
        let heard = self.lock();
        if let Some(trouble) = &heard.trouble {
            anyhow::bail!("{trouble}");
        }
        let Heard { jobs, made, ended, last, .. } = *heard;
        Ok(Progress { jobs, made, ended, last })
    }

    /// Ends it. The watch hears of one more Job, and so sees that it is over.
    pub(super) fn stop(&self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        self.news.notify_all();
        let last = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "over"},
            "spec": {"suspend": true, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}],
            }}},
        });
        Connection::open(&self.server)?.post(&self.path, &last).map(drop)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    pub(super) jobs: usize,
    /// Installs: a Job may be several.
    pub(super) made: usize,
    pub(super) ended: usize,
    pub(super) last: Option<Instant>,
}

/// What a kubelet says of its node every five minutes.
pub(super) fn heartbeat(connection: &mut Connection, node: &str, number: usize) -> Result<()> {
    let time = format!("2026-01-01T01:{:02}:{:02}Z", number / 60 % 60, number % 60);
    let change = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as the kubelet says it",
        "lastHeartbeatTime": time, "lastTransitionTime": TIME,
    }]}});
    let path = format!("/api/v1/nodes/{node}/status");
    connection.bytes("PATCH", &path, Body::Strategic(change.to_string().as_bytes())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_several_shims_is_several_installs_and_a_strangers_is_one() {
        let installs = |annotations: Value| {
            let job = json!({"name": "a", "resourceVersion": "1", "annotations": annotations});
            serde_json::from_value::<Metadata>(job).unwrap().installs()
        };
        let also = json!({"shim": "x", "also": [{"shim": "y"}, {"shim": "z"}]}).to_string();
        assert_eq!(installs(json!({IDENTITY: also})), 3);
        assert_eq!(installs(json!({IDENTITY: "{\"shim\":\"x\"}"})), 1);
        assert_eq!(installs(json!({"spinkube.dev/operation": "install"})), 1);
    }
}
