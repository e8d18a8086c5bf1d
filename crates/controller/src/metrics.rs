//! What the controller counts, under the names that Shipwright's dashboards know. No series is named
//! after a Build or a namespace: strangers choose those, and each would be kept for ever.

use portolan_registry::serving::program::openmetrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// In seconds, as upstream has them.
const COMPLETION: [f64; 10] = [50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 400.0, 450.0, 500.0];
const ESTABLISH: [f64; 10] = [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0];
/// Upstream's, with what lies below a second: most of ours does.
const RAMPUP: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 60.0];
/// A look is a few dozen small requests.
const LOOK: [f64; 10] = [0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0];

/// All metrics of one controller.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) builds_registered: Counter,
    pub(crate) runs_completed: Counter,
    pub(crate) establish: Histogram,
    pub(crate) completion: Histogram,
    pub(crate) rampup: Histogram,
    pub(crate) failures: Counter,
    pub(crate) leader: Gauge,
    pub(crate) shims: ShimMetrics,
    pub(crate) releases: ReleaseMetrics,
}

/// What is counted of Releases, over all of them.
#[derive(Debug)]
pub(crate) struct ReleaseMetrics {
    looks: Family<[(&'static str, &'static str); 1], Counter>,
    duration: Histogram,
}

impl Default for ReleaseMetrics {
    fn default() -> Self {
        Self { looks: Family::default(), duration: Histogram::new(LOOK) }
    }
}

impl ReleaseMetrics {
    /// A look that came to this, and how long it took.
    pub(crate) fn looked(&self, outcome: &'static str, took: std::time::Duration) {
        self.looks.get_or_create(&[("outcome", outcome)]).inc();
        self.duration.observe(took.as_secs_f64());
    }

    fn register(&self, registry: &mut Registry) {
        let looks = "Looks at Releases, by what came of them";
        registry.register("portolan_release_looks", looks, self.looks.clone());
        let duration = "How long a look at a Release took";
        registry.register(
            "portolan_release_look_duration_seconds",
            duration,
            self.duration.clone(),
        );
    }
}

/// What is counted of shims, over all of them.
#[derive(Debug, Default)]
pub(crate) struct ShimMetrics {
    nodes: Family<[(&'static str, &'static str); 1], Gauge>,
    looked: Counter,
    weighed: Counter,
    pub(crate) jobs: Counter,
}

impl ShimMetrics {
    /// Nodes that are ready, pending, failed, unsupported; how often a node was looked at so far, and a Shim on
    /// one decided on, weighed or counted.
    pub(crate) fn set(&self, counts: [usize; 4], looked: u64, weighed: u64) {
        for (state, count) in ["ready", "pending", "failed", "unsupported"].into_iter().zip(counts)
        {
            let gauge = self.nodes.get_or_create(&[("state", state)]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (counter, now) in [(&self.looked, looked), (&self.weighed, weighed)] {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
    }

    fn register(&self, registry: &mut Registry) {
        let nodes = "Selected nodes by state, each once for every Shim";
        registry.register("portolan_shim_nodes", nodes, self.nodes.clone());
        let looked = "How often a node was looked at";
        registry.register("portolan_shim_node_looks", looked, self.looked.clone());
        let weighed = "How often a Shim on a node was decided on, weighed or counted";
        registry.register("portolan_shim_weighed", weighed, self.weighed.clone());
        registry.register("portolan_shim_jobs", "Jobs that were begun", self.jobs.clone());
    }
}

impl Metrics {
    /// Everything at zero.
    pub(crate) fn new() -> Self {
        let mut all = Self {
            registry: Registry::default(),
            builds_registered: Counter::default(),
            runs_completed: Counter::default(),
            establish: Histogram::new(ESTABLISH),
            completion: Histogram::new(COMPLETION),
            rampup: Histogram::new(RAMPUP),
            failures: Counter::default(),
            leader: Gauge::default(),
            shims: ShimMetrics::default(),
            releases: ReleaseMetrics::default(),
        };
        let registry = &mut all.registry;
        all.shims.register(registry);
        all.releases.register(registry);
        registry.register(
            "build_builds_registered",
            "Builds that can be used",
            all.builds_registered.clone(),
        );
        registry.register(
            "build_buildruns_completed",
            "BuildRuns that ended",
            all.runs_completed.clone(),
        );
        registry.register(
            "build_buildrun_establish_duration_seconds",
            "From a BuildRun's making to its start",
            all.establish.clone(),
        );
        registry.register(
            "build_buildrun_completion_duration_seconds",
            "From a BuildRun's making to its end",
            all.completion.clone(),
        );
        registry.register(
            "build_buildrun_rampup_duration_seconds",
            "From a BuildRun's making to its executor",
            all.rampup.clone(),
        );
        registry.register(
            "portolan_controller_reconcile_failures",
            "Objects that had to be tried again",
            all.failures.clone(),
        );
        registry.register(
            "portolan_controller_leader",
            "1 while this copy acts",
            all.leader.clone(),
        );
        all
    }

    /// As Prometheus reads it.
    pub(crate) fn text(&self) -> String {
        openmetrics(&self.registry)
    }
}

#[cfg(test)]
#[path = "../../../xtask/tests/reference/page.rs"]
mod page;
#[cfg(test)]
#[path = "../../../xtask/tests/reference/metrics.rs"]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_reference_has_the_metrics_of_the_controller() {
        let metrics = Metrics::new();
        metrics.shims.set([0; 4], 0, 0);
        reference::check("portolan-controller", &metrics.text(), &[]);
    }

    #[test]
    fn metrics_have_the_names_that_dashboards_know() {
        let metrics = Metrics::new();
        metrics.runs_completed.inc();
        metrics.rampup.observe(0.2);
        metrics.releases.looked("found", std::time::Duration::from_millis(250));
        // What grows is told as a counter: the planner's own count, not added to itself.
        metrics.shims.set([1, 0, 0, 0], 3, 5);
        metrics.shims.set([1, 0, 0, 0], 4, 5);
        let text = metrics.text();
        for line in [
            "build_builds_registered_total 0",
            "build_buildruns_completed_total 1",
            "build_buildrun_rampup_duration_seconds_bucket{le=\"0.25\"} 1",
            "build_buildrun_completion_duration_seconds_count 0",
            "build_buildrun_establish_duration_seconds_count 0",
            "portolan_controller_leader 0",
            "portolan_shim_node_looks_total 4",
            "portolan_shim_weighed_total 5",
            "portolan_release_looks_total{outcome=\"found\"} 1",
            "portolan_release_look_duration_seconds_bucket{le=\"0.3\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
