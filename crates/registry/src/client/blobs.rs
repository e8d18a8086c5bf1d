//! Blobs without their bytes: is it there, mount it, delete it.

use ::http::Method;
use portolan_core::{Descriptor, Digest, Repository};

use super::Remote;
use super::error::{ClientError, Failure};
use super::http::{Access, Call};
use super::step::Step;
use crate::headers::resolve_location;

/// The answers here have no body worth reading.
const MAX_BODY: usize = 64 * 1024;

/// Whether what a registry has in a size may be this blob. One that was damaged there has another, and is sent anew;
/// registries that do not tell a size are taken to say 0.
pub(crate) fn may_be(blob: &Descriptor, size: u64) -> bool {
    size == 0 || size == blob.size
}

impl Remote {
    /// Whether the registry itself (not a mirror) has a blob, and its size if it says.
    /// `Some(0)` also stands for a registry that does not say.
    pub async fn blob_exists(&self, digest: &Digest) -> Result<Option<u64>, ClientError> {
        self.find_blob(digest, Access::Pull).await
    }

    pub(super) async fn find_blob(
        &self,
        digest: &Digest,
        access: Access,
    ) -> Result<Option<u64>, ClientError> {
        let step = Step::FindBlob(*digest);
        self.find_blob_failing(digest, access)
            .await
            .map_err(|failure| self.upstream.error(&step, failure))
    }

    pub(super) async fn find_blob_failing(
        &self,
        digest: &Digest,
        access: Access,
    ) -> Result<Option<u64>, Failure> {
        let call = Call::new(Method::HEAD, self.upstream.url(&format!("blobs/{digest}")), access);
        let answer = self.shared.exchange(&self.upstream, &call, MAX_BODY).await?;
        if answer.status == 404 {
            return Ok(None);
        }
        let answer = answer.success()?;
        Ok(Some(answer.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)))
    }

    /// Has the registry take a blob over from another of its repositories. False when it does not:
    /// it cannot, may not, or has no such blob there; the blob is then to be uploaded.
    pub async fn mount_blob(
        &self,
        digest: &Digest,
        from: &Repository,
    ) -> Result<bool, ClientError> {
        let step = Step::MountBlob(*digest);
        let mut url = self.upstream.url("blobs/uploads/");
        url.query_pairs_mut()
            .append_pair("mount", &digest.to_string())
            .append_pair("from", from.as_str());
        let call = Call::new(Method::POST, url, Access::Mount(from.clone()));
        let fail = |failure| self.upstream.error(&step, failure);
        let answer = self.shared.exchange(&self.upstream, &call, MAX_BODY).await.map_err(fail)?;
        match answer.status {
            201 => Ok(true),
            202 => {
                // An upload was begun instead. It is not used here, so say so; who does not
                // understand will tidy up by itself.
                let location =
                    answer.header("location").map(|text| resolve_location(&answer.url, text));
                if let Some(Ok(location)) = location
                    && crate::headers::same_origin(&location, &self.upstream.base)
                {
                    let cancel = Call::new(Method::DELETE, location, Access::Push);
                    let limits = &self.shared.settings.host(&self.upstream.host).limits;
                    let _ =
                        self.shared.exchange_once(&self.upstream, &cancel, MAX_BODY, limits).await;
                }
                Ok(false)
            }
            400..=499 => Ok(false),
            _ => answer.success().map(|_| false).map_err(fail),
        }
    }

    /// Deletes a blob from the registry.
    pub async fn delete_blob(&self, digest: &Digest) -> Result<(), ClientError> {
        let step = Step::DeleteBlob(*digest);
        let call = Call::new(
            Method::DELETE,
            self.upstream.url(&format!("blobs/{digest}")),
            Access::Delete,
        );
        let answer = self.shared.exchange(&self.upstream, &call, MAX_BODY).await;
        answer
            .and_then(super::http::Answer::success)
            .map(drop)
            .map_err(|failure| self.upstream.error(&step, failure))
    }
}
