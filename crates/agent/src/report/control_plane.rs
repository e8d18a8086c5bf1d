//! `POST` to a control plane's URL.

use http::Method;
use url::Url;

use super::Target;
use crate::api::StatusReport;
use crate::config::ReportConfig;
use crate::endpoint::{Endpoint, EndpointError, shown};
use crate::metrics::ReportTarget;

/// A control plane.
#[derive(Debug)]
pub struct ControlPlane {
    url: Url,
    endpoint: Endpoint,
}

impl ControlPlane {
    /// The one that is configured; none when there is none.
    pub fn new(config: &ReportConfig) -> Option<Self> {
        let url = config.url.as_deref()?.parse().ok()?;
        let endpoint = Endpoint::new(config.token_file.clone(), config.ca_file.clone());
        Some(Self { url, endpoint })
    }
}

impl Target for ControlPlane {
    const KIND: ReportTarget = ReportTarget::ControlPlane;

    async fn send(&mut self, report: &StatusReport) -> Result<(), EndpointError> {
        let bytes = serde_json::to_vec(report)
            .map_err(|source| EndpointError::Malformed { url: shown(&self.url), source })?;
        let body = Some(("application/json", bytes));
        self.endpoint.call(Method::POST, &self.url, body).await.map(drop)
    }
}
