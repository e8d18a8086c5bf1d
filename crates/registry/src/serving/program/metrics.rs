//! Metrics, as Prometheus reads them.

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// The form of [`openmetrics`], for the head of an answer.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything that is counted, as `GET /metrics` answers it.
pub fn openmetrics(registry: &Registry) -> String {
    let mut out = String::new();
    text::encode(&mut out, registry).expect("writing to a text does not fail");
    out
}
