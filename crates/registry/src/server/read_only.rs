//! A registry that only gives out what somebody else keeps, and only by digest.
//!
//! The name of the repository is read and not looked at: the digest says all. A client that asks
//! for a tag is told that there is none, which makes containerd and our own client go on to the
//! registry itself.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, header};
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Digest, Document, Target};

use super::body::Buffers;
use super::error::{ApiError, Code};
use super::route::{self, Route};
use super::{answer_error, base, blobs, blocking, log, manifests};

/// What a read-only registry gives out. All of it was verified when it was stored.
pub trait Content: Send + Sync + 'static {
    /// The bytes of a manifest.
    fn manifest(&self, digest: &Digest) -> io::Result<Option<Vec<u8>>>;

    /// A blob, open, and its size.
    fn blob(&self, digest: &Digest) -> io::Result<Option<(File, u64)>>;
}

#[derive(Clone)]
struct Reader {
    content: Arc<dyn Content>,
    buffers: Arc<Buffers>,
}

/// The distribution API over `content`: `/v2/`, manifests and blobs by digest, HEAD, GET, ranges.
pub fn by_digest(content: Arc<dyn Content>) -> Router {
    Router::new().fallback(handle).with_state(Reader { content, buffers: Arc::default() })
}

async fn handle(State(reader): State<Reader>, request: Request) -> Response {
    let started = Instant::now();
    let (parts, _) = request.into_parts();
    let outcome = read(reader, &parts.method, parts.uri.path(), &parts.headers).await;
    let mut response = outcome.unwrap_or_else(|error| answer_error(&parts.method, error));
    let version = HeaderValue::from_static("registry/2.0");
    response.headers_mut().insert(super::API_VERSION, version);
    log(&parts, &response, None, started);
    response
}

async fn read(
    reader: Reader,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let route = route::parse(path)?;
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::new(Code::MethodNotAllowed, "this registry is only read")
            .with_header(header::ALLOW, HeaderValue::from_static("GET, HEAD")));
    }
    let Reader { content, buffers } = reader;
    match route {
        Route::Base => Ok(base()),
        Route::Manifest(_, Target::Digest(digest)) => {
            let (media_type, bytes) = blocking(move || manifest(&*content, &digest)).await?;
            Ok(manifests::answer(method, headers, &digest, &media_type, bytes))
        }
        Route::Blob(_, digest) => {
            let opened = blocking(move || {
                let opened = content.blob(&digest).map_err(|e| ApiError::io("open a blob", &e))?;
                opened.ok_or_else(|| {
                    ApiError::new(Code::BlobUnknown, format!("blob {digest} is not here"))
                })
            });
            blobs::answer(method, headers, &digest, opened.await?, buffers)
        }
        Route::Manifest(_, Target::Tag(_)) => {
            Err(ApiError::new(Code::ManifestUnknown, "there are no tags here, only digests"))
        }
        _ => Err(ApiError::new(Code::UnknownPath, "only manifests and blobs are given out here")),
    }
}

/// A manifest is small enough to be hashed each time it is asked for.
fn manifest(content: &dyn Content, digest: &Digest) -> Result<(String, Vec<u8>), ApiError> {
    let unknown = || ApiError::new(Code::ManifestUnknown, format!("manifest {digest} is not here"));
    let bytes = content.manifest(digest).map_err(|e| ApiError::io("read a manifest", &e))?;
    let bytes = bytes.filter(|b| b.len() <= MAX_MANIFEST_BYTES).ok_or_else(unknown)?;
    if Digest::of(digest.algorithm(), &bytes) != *digest {
        tracing::error!(%digest, "a stored manifest is not what its name says");
        return Err(unknown());
    }
    let document = Document::parse(&bytes, None).map_err(|_| unknown())?;
    Ok((document.media_type().to_owned(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::StatusCode;
    use http_body_util::BodyExt as _;
    use hyper_util::service::TowerToHyperService;
    use portolan_core::Descriptor;
    use portolan_core::manifest::Manifest;
    use std::io::Write as _;

    struct One {
        digest: Digest,
        manifest: Vec<u8>,
        blob: &'static [u8],
    }

    impl Content for One {
        fn manifest(&self, digest: &Digest) -> io::Result<Option<Vec<u8>>> {
            Ok((*digest == self.digest).then(|| self.manifest.clone()))
        }

        fn blob(&self, digest: &Digest) -> io::Result<Option<(File, u64)>> {
            if *digest != Digest::sha256(self.blob) {
                return Ok(None);
            }
            let mut file = tempfile::tempfile()?;
            file.write_all(self.blob)?;
            Ok(Some((file, self.blob.len() as u64)))
        }
    }

    fn one() -> One {
        let blob: &[u8] = b"0123456789";
        let config = Descriptor::of("application/vnd.oci.image.config.v1+json", blob);
        let manifest = Manifest::new(config, Vec::new()).to_vec();
        One { digest: Digest::sha256(&manifest), manifest, blob }
    }

    async fn ask(one: One, method: &str, path: &str, range: Option<&str>) -> (StatusCode, Vec<u8>) {
        use hyper::service::Service as _;
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let service = TowerToHyperService::new(by_digest(Arc::new(one)));
        let response = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn manifests_and_blobs_are_given_out_by_digest_under_any_name() {
        let (digest, bytes) = (one().digest, one().manifest);
        let blob = Digest::sha256(one().blob);
        assert_eq!(ask(one(), "GET", "/v2/", None).await.0, 200);
        for name in ["a", "some/where/else"] {
            let path = format!("/v2/{name}/manifests/{digest}");
            assert_eq!(ask(one(), "GET", &path, None).await, (StatusCode::OK, bytes.clone()));
            assert_eq!(ask(one(), "HEAD", &path, None).await, (StatusCode::OK, Vec::new()));
            let path = format!("/v2/{name}/blobs/{blob}");
            assert_eq!(ask(one(), "GET", &path, None).await.1, b"0123456789");
            let part = ask(one(), "GET", &path, Some("bytes=2-4")).await;
            assert_eq!(part, (StatusCode::PARTIAL_CONTENT, b"234".to_vec()));
        }
    }

    #[tokio::test]
    async fn nothing_else_is_answered_and_nothing_is_written() {
        let digest = one().digest;
        for (method, path, status) in [
            ("GET", "/v2/a/manifests/latest".to_owned(), 404),
            ("GET", "/v2/a/tags/list".to_owned(), 404),
            ("GET", "/v2/_catalog".to_owned(), 404),
            ("GET", format!("/v2/a/referrers/{digest}"), 404),
            ("GET", format!("/v2/a/blobs/{}", Digest::sha256(b"other")), 404),
            ("PUT", format!("/v2/a/manifests/{digest}"), 405),
            ("DELETE", format!("/v2/a/manifests/{digest}"), 405),
            ("POST", "/v2/a/blobs/uploads/".to_owned(), 405),
            ("GET", "/v2/../x/blobs/sha256:12".to_owned(), 400),
        ] {
            assert_eq!(ask(one(), method, &path, None).await.0, status, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn a_manifest_that_was_changed_on_disk_is_not_given_out() {
        let mut changed = one();
        changed.manifest.push(b' ');
        let path = format!("/v2/a/manifests/{}", changed.digest);
        assert_eq!(ask(changed, "GET", &path, None).await.0, 404);
    }
}
