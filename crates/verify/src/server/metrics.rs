//! What the verifier counts, in the text form that Prometheus reads.
//!
//! No series is named after an image, a namespace or a key: strangers choose those, and each would
//! be kept for ever. Every series that can exist from the beginning does, at zero.

use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::trouble::Code;

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];

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

/// Which cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheName {
    Tag,
    Image,
    Verdict,
}

impl CacheName {
    fn word(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Image => "image",
            Self::Verdict => "verdict",
        }
    }
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Verify,
    Mutate,
    Admission,
}

/// What came of one image in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Verified,
    Refused,
    NoPolicy,
    Exempt,
    Pinned,
    Trouble,
}

impl Outcome {
    const ALL: [Self; 6] =
        [Self::Verified, Self::Refused, Self::NoPolicy, Self::Exempt, Self::Pinned, Self::Trouble];

    fn word(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Refused => "refused",
            Self::NoPolicy => "no_policy",
            Self::Exempt => "exempt",
            Self::Pinned => "pinned",
            Self::Trouble => "trouble",
        }
    }
}

/// What is read again when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Policy,
    Nodes,
}

impl Input {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Nodes => "nodes",
        }
    }
}

/// All metrics of one verifier.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    verify: Histogram,
    mutate: Histogram,
    admission: Histogram,
    system_errors: Family<One, Counter>,
    outcomes: Family<One, Counter>,
    admissions: Family<One, Counter>,
    caches: Family<Two, Counter>,
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
            system_errors: Family::default(),
            outcomes: Family::default(),
            admissions: Family::default(),
            caches: Family::default(),
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
            drop(all.outcomes.get_or_create(&[("outcome", outcome.word())]));
        }
        for outcome in ["allowed", "audited", "denied"] {
            drop(all.admissions.get_or_create(&[("outcome", outcome)]));
        }
        for cache in [CacheName::Tag, CacheName::Image, CacheName::Verdict] {
            for result in ["hit", "miss"] {
                drop(all.caches.get_or_create(&[("cache", cache.word()), ("result", result)]));
            }
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
        self.outcomes.get_or_create(&[("outcome", outcome.word())]).inc();
    }

    pub(super) fn trouble(&self, code: Code) {
        self.outcome(Outcome::Trouble);
        self.system_errors.get_or_create(&[("error", code.word())]).inc();
    }

    pub(super) fn admission(&self, outcome: &'static str) {
        self.admissions.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(super) fn cache(&self, cache: CacheName, hit: bool) {
        let result = if hit { "hit" } else { "miss" };
        self.caches.get_or_create(&[("cache", cache.word()), ("result", result)]).inc();
    }

    pub(super) fn subject_examined(&self) {
        self.subjects.inc();
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
        let mut text = String::new();
        match text::encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to a text cannot fail; half of one would be taken for the truth.
            Err(_) => String::new(),
        }
    }
}
