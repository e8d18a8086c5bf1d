//! What the API asks of the agent.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::ApiError;
use crate::api::{
    CacheReport, GcReport, GcRequest, InstanceStatus, InstanceSummary, PrefetchOutcome, Status,
    VerifyReport,
};
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::spec::WorkloadSpec;

/// The agent behind the API. The spec was checked and the image is what it says.
pub trait Host: Send + Sync + 'static {
    /// Makes or changes an instance; true when it is new. The same spec again changes nothing.
    fn put(
        &self,
        id: InstanceId,
        spec: WorkloadSpec,
    ) -> BoxFuture<'_, Result<(InstanceStatus, bool), ApiError>>;

    /// One instance.
    fn get(&self, id: &InstanceId) -> Option<InstanceStatus>;

    /// Up to `limit` instances after `after`, by id.
    fn summaries(&self, after: Option<&InstanceId>, limit: usize) -> Vec<InstanceSummary>;

    /// Stops and forgets an instance with its scratch disk; false when there is none.
    fn delete<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<bool, ApiError>>;

    /// The files its console goes to, the older half first.
    fn console(&self, id: &InstanceId) -> [PathBuf; 2];

    /// Fetches and builds without an instance.
    fn prefetch<'a>(
        &'a self,
        image: &'a ResolvedImage,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PrefetchOutcome>;

    /// What the cache holds.
    fn cache(&self) -> BoxFuture<'_, Result<CacheReport, ApiError>>;

    /// Evicts.
    fn gc(&self, request: GcRequest) -> BoxFuture<'_, Result<GcReport, ApiError>>;

    /// Compares a root disk with its checksum; none when there is no such disk.
    fn verify<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<VerifyReport>, ApiError>>;

    /// How the agent is.
    fn status(&self) -> Status;
}
