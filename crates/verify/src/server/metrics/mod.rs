//! What the verifier counts, in the text form that Prometheus reads.
//!
//! No series is named after an image, a namespace or a key: strangers choose those, and each would
//! be kept for ever. Every series that can exist from the beginning does, at zero.

mod words;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use portolan_registry::serving::program::openmetrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub(super) use self::words::{CacheName, Call, Input, Outcome, Selected};
use super::trouble::Code;

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];
/// With the name of a registry.
type Named = [(&'static str, String); 2];

/// In milliseconds, as Ratify's dashboards expect.
const VERIFY_BUCKETS: [f64; 26] = [
    0.0, 10.0, 30.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0,
    1100.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2300.0, 2600.0, 4000.0, 4400.0, 4900.0,
    10_000.0,
];
const MUTATE_BUCKETS: [f64; 19] = [
    0.0, 10.0, 30.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0,
    1100.0, 1200.0, 1400.0, 1600.0, 1800.0,
];

const VERIFIER_BUCKETS: [f64; 12] =
    [0.0, 10.0, 50.0, 100.0, 200.0, 300.0, 400.0, 600.0, 800.0, 1100.0, 1500.0, 2000.0];

/// Registries that are counted by their names; strangers may name more.
const MAX_HOSTS: usize = 32;
/// All that are not.
const OTHER_HOSTS: &str = "other";
/// Statuses that are counted by themselves; of others only the kind.
const STATUSES: [u16; 13] = [200, 206, 301, 302, 307, 401, 403, 404, 429, 500, 502, 503, 504];

/// All metrics of one verifier.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    verify: Histogram,
    mutate: Histogram,
    admission: Histogram,
    verifiers: Family<One, Histogram, fn() -> Histogram>,
    system_errors: Family<One, Counter>,
    registry_requests: Family<Named, Counter>,
    hosts: Mutex<BTreeSet<String>>,
    outcomes: Family<One, Counter>,
    /// Those of the family by their place in [`Outcome::ALL`]: counted for each key.
    outcome: Vec<Counter>,
    admissions: Family<One, Counter>,
    caches: Family<Two, Counter>,
    /// Likewise, miss before hit.
    cache: Vec<[Counter; 2]>,
    selections: Family<Two, Counter>,
    subjects: Counter,
    in_flight: Gauge,
    reloads: Family<One, Counter>,
    node_reloads: Family<One, Counter>,
    stale: Family<One, Gauge>,
    generation: Gauge,
}

impl Metrics {
    /// Everything at zero.
    pub(super) fn new() -> Self {
        let mut all = Self {
            registry: Registry::default(),
            verify: Histogram::new(VERIFY_BUCKETS),
            mutate: Histogram::new(MUTATE_BUCKETS),
            admission: Histogram::new(VERIFY_BUCKETS),
            verifiers: Family::new_with_constructor(|| Histogram::new(VERIFIER_BUCKETS)),
            system_errors: Family::default(),
            registry_requests: Family::default(),
            hosts: Mutex::default(),
            outcomes: Family::default(),
            outcome: Vec::new(),
            admissions: Family::default(),
            caches: Family::default(),
            cache: Vec::new(),
            selections: Family::default(),
            subjects: Counter::default(),
            in_flight: Gauge::default(),
            reloads: Family::default(),
            node_reloads: Family::default(),
            stale: Family::default(),
            generation: Gauge::default(),
        };
        all.register();
        for code in Code::ALL {
            drop(all.system_errors.get_or_create(&[("error", code.word())]));
        }
        for outcome in Outcome::ALL {
            let counter = all.outcomes.get_or_create(&[("outcome", outcome.word())]).clone();
            all.outcome.push(counter);
        }
        for success in ["false", "true"] {
            drop(all.verifiers.get_or_create(&[("success", success)]));
        }
        for mode in ["all", "host", "list", "named", "nodes", "pod"] {
            for selected in Selected::ALL {
                let labels = [("mode", mode), ("outcome", selected.word())];
                drop(all.selections.get_or_create(&labels));
            }
        }
        for outcome in ["allowed", "audited", "denied"] {
            drop(all.admissions.get_or_create(&[("outcome", outcome)]));
        }
        for cache in CacheName::ALL {
            let counter = |result| {
                let labels = [("cache", cache.word()), ("result", result)];
                all.caches.get_or_create(&labels).clone()
            };
            all.cache.push([counter("miss"), counter("hit")]);
        }
        for result in ["taken", "refused"] {
            drop(all.reloads.get_or_create(&[("result", result)]));
            drop(all.node_reloads.get_or_create(&[("result", result)]));
        }
        for input in [Input::Policy, Input::Nodes] {
            drop(all.stale.get_or_create(&[("input", input.word())]));
        }
        all
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        let ratify = "as Ratify calls it";
        r.register(
            "ratify_verification_request",
            format!("Milliseconds to answer a request to verify, {ratify}"),
            self.verify.clone(),
        );
        r.register(
            "ratify_mutation_request",
            format!("Milliseconds to answer a request to mutate, {ratify}"),
            self.mutate.clone(),
        );
        r.register(
            "ratify_system_error_count",
            format!("Images without an answer because of trouble, by its kind, {ratify}"),
            self.system_errors.clone(),
        );
        r.register(
            "ratify_verifier_duration",
            format!(
                "Milliseconds to fetch and judge what is attached to one index or image, {ratify}"
            ),
            self.verifiers.clone(),
        );
        r.register(
            "ratify_registry_request_count",
            format!("Requests to registries, by what they answered, {ratify}"),
            self.registry_requests.clone(),
        );
        let own = r.sub_registry_with_prefix("portolan_verifier");
        own.register(
            "admission_request",
            "Milliseconds to answer an AdmissionReview",
            self.admission.clone(),
        );
        own.register("images", "Images asked about, by what came of it", self.outcomes.clone());
        own.register(
            "admissions",
            "AdmissionReviews answered; audited is what would have been denied",
            self.admissions.clone(),
        );
        own.register(
            "cache_requests",
            "Looks into a cache, by whether it was there",
            self.caches.clone(),
        );
        own.register(
            "platform_selection",
            "Images resolved for machines, by who named the machines and what came of it",
            self.selections.clone(),
        );
        own.register(
            "subjects_examined",
            "Indexes and images whose signatures were fetched and judged",
            self.subjects.clone(),
        );
        own.register("in_flight", "Requests that are being answered", self.in_flight.clone());
        own.register(
            "policy_reloads",
            "Changes of the policy, by whether it could be used",
            self.reloads.clone(),
        );
        own.register(
            "node_reloads",
            "Changes of the list of nodes, by whether it could be used",
            self.node_reloads.clone(),
        );
        own.register(
            "stale",
            "1 where what was changed last cannot be used, so that something older is in force",
            self.stale.clone(),
        );
        own.register(
            "policy_generation",
            "How often the policy or the nodes were taken since the start",
            self.generation.clone(),
        );
    }

    pub(super) fn begin(&self) {
        self.in_flight.inc();
    }

    pub(super) fn end(&self, call: Call, took: Duration) {
        self.in_flight.dec();
        let milliseconds = took.as_secs_f64() * 1000.0;
        match call {
            Call::Verify => self.verify.observe(milliseconds),
            Call::Mutate => self.mutate.observe(milliseconds),
            Call::Admission => self.admission.observe(milliseconds),
        }
    }

    pub(super) fn outcome(&self, outcome: Outcome) {
        if let Some(counter) = self.outcome.get(outcome as usize) {
            counter.inc();
        }
    }

    pub(super) fn trouble(&self, code: Code) {
        self.outcome(Outcome::Trouble);
        self.system_errors.get_or_create(&[("error", code.word())]).inc();
    }

    pub(super) fn admission(&self, outcome: &'static str) {
        self.admissions.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(super) fn cache(&self, cache: CacheName, hit: bool) {
        if let Some(counters) = self.cache.get(cache as usize) {
            counters[usize::from(hit)].inc();
        }
    }

    pub(super) fn selection(&self, mode: &'static str, selected: Selected) {
        self.selections.get_or_create(&[("mode", mode), ("outcome", selected.word())]).inc();
    }

    pub(super) fn subject_examined(&self, verified: bool, took: Duration) {
        self.subjects.inc();
        let success = if verified { "true" } else { "false" };
        let milliseconds = took.as_secs_f64() * 1000.0;
        self.verifiers.get_or_create(&[("success", success)]).observe(milliseconds);
    }

    /// A request went to a registry; none where there was no answer.
    pub(super) fn registry_request(&self, host: &str, status: Option<u16>) {
        let host = self.host(host);
        let status = match status {
            None => "none".to_owned(),
            Some(status) if STATUSES.contains(&status) => status.to_string(),
            Some(status) => format!("{}xx", status / 100),
        };
        let labels = [("status_code", status), ("registry_host", host)];
        self.registry_requests.get_or_create(&labels).inc();
    }

    fn host(&self, host: &str) -> String {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() < MAX_HOSTS && !hosts.contains(host) {
            hosts.insert(host.to_owned());
        }
        if hosts.contains(host) { host.to_owned() } else { OTHER_HOSTS.to_owned() }
    }

    pub(super) fn input(&self, input: Input, taken: bool) {
        let result = if taken { "taken" } else { "refused" };
        let reloads = match input {
            Input::Policy => &self.reloads,
            Input::Nodes => &self.node_reloads,
        };
        reloads.get_or_create(&[("result", result)]).inc();
        self.stale.get_or_create(&[("input", input.word())]).set(i64::from(!taken));
    }

    pub(super) fn generation(&self, generation: u64) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
    }

    /// As Prometheus reads it.
    pub(super) fn text(&self) -> String {
        openmetrics(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_and_cache_is_counted_as_itself() {
        let metrics = Metrics::new();
        for outcome in Outcome::ALL {
            metrics.outcome(outcome);
            let sample =
                format!("portolan_verifier_images_total{{outcome=\"{}\"}} 1", outcome.word());
            assert!(metrics.text().contains(&sample), "{sample}");
        }
        for cache in CacheName::ALL {
            metrics.cache(cache, true);
            let word = cache.word();
            let sample = format!("{{cache=\"{word}\",result=\"hit\"}} 1");
            assert!(metrics.text().contains(&sample), "{sample}");
        }
    }

    #[test]
    fn strangers_cannot_make_more_series_than_there_are_places() {
        let metrics = Metrics::new();
        for n in 0..10_000_u16 {
            metrics.registry_request(&format!("r{n}.example"), Some(n));
        }
        let text = metrics.text();
        let series = text.lines().filter(|line| line.starts_with("ratify_registry_request_count"));
        let most = (MAX_HOSTS + 1) * (STATUSES.len() + 70);
        assert!(series.count() <= most);
        assert!(text.contains("registry_host=\"other\""));
        metrics.registry_request("r1.example", None);
        let sample = "ratify_registry_request_count_total{status_code=\"none\",registry_host=\"r1.example\"} 1";
        assert!(metrics.text().contains(sample), "{}", metrics.text());
    }
}
