//! What is counted of Releases that are fetched before anybody asks for them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::PrefetchResult;
use super::{Metrics, One, signed};
use crate::api::PrefetchState;

#[derive(Debug, Default)]
pub(super) struct Prefetch {
    results: Family<One, Counter>,
    releases: Family<One, Gauge>,
    current: Gauge,
}

impl Prefetch {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "prefetches",
            "Images of Releases that were asked for before anybody needed them, by result",
            self.results.clone(),
        );
        r.register(
            "prefetch_releases",
            "Releases with the label for prefetching, by how it stands with them on this host",
            self.releases.clone(),
        );
        r.register(
            "prefetch_releases_current",
            "1 while the Releases of the cluster are followed, else 0",
            self.current.clone(),
        );
        for result in PrefetchResult::ALL {
            drop(self.results.get_or_create(&[("result", result.as_str())]));
        }
        for state in PrefetchState::ALL {
            drop(self.releases.get_or_create(&[("state", state.as_str())]));
        }
    }
}

impl Metrics {
    /// The image of a Release was fetched, or was not.
    pub fn prefetched(&self, result: PrefetchResult) {
        self.prefetch.results.get_or_create(&[("result", result.as_str())]).inc();
    }

    /// So many Releases are in this state now; call it for every state, with 0 too.
    pub fn prefetch_releases(&self, state: PrefetchState, count: u64) {
        self.prefetch.releases.get_or_create(&[("state", state.as_str())]).set(signed(count));
    }

    /// Whether the Releases of the cluster are known as they are.
    pub fn releases_current(&self, current: bool) {
        self.prefetch.current.set(current.into());
    }
}
