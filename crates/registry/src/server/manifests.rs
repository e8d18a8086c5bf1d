//! `/v2/<name>/manifests/<reference>`.
//!
//! Where the specification leaves the choice, this registry
//! - answers with what was pushed, whatever `Accept` says: a manifest has one form, and its
//!   digest names exactly that;
//! - takes OCI and Docker schema 2 manifests and indexes and nothing else, since it could not
//!   know what other documents refer to;
//! - refuses an image whose config or layers are not here (`MANIFEST_BLOB_UNKNOWN`), except
//!   layers that must not be distributed or name other places to fetch them;
//! - takes an index whose manifests are not here: a mirror may hold a part of an image and must
//!   keep its digest.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode, header};
use portolan_core::causes::chain;
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Descriptor, Digest, Document, Repository, Tag, Target};
use serde_json::json;

use super::error::{ApiError, Code};
use super::query::Query;
use super::respond::{
    OCI_SUBJECT, OCI_TAG, Reply, header_text, matches_etag, not_modified, number_header,
};
use super::{App, blocking, body};
use crate::layout::{Layout, LayoutError};

/// Drafts of the next specification ask for ten tags in one push at least.
const MAX_TAGS: usize = 32;

/// GET and HEAD.
pub(super) async fn read(
    app: &App,
    method: &Method,
    name: Repository,
    target: Target,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let store = app.store();
    let (descriptor, bytes) = blocking(move || {
        let layout = store.existing(&name)?;
        let descriptor = layout.known_manifest(&target)?.ok_or_else(|| unknown(&target))?;
        // HEAD promises what GET would give, so it reads and checks the content too.
        let bytes = layout.manifest_bytes(&descriptor)?;
        Ok::<_, ApiError>((descriptor, bytes))
    })
    .await?;
    Ok(answer(method, headers, &descriptor.digest, &descriptor.media_type, bytes))
}

/// The answer to GET and HEAD of a manifest that is there.
pub(super) fn answer(
    method: &Method,
    headers: &HeaderMap,
    digest: &Digest,
    media_type: &str,
    bytes: impl Into<Body> + AsRef<[u8]>,
) -> Response {
    let etag = format!("\"{digest}\"");
    let reply = Reply::new(StatusCode::OK).digest(digest).text(header::ETAG, &etag);
    if not_modified(headers, &etag) {
        return reply.status(StatusCode::NOT_MODIFIED).empty();
    }
    let reply = reply
        .text(header::CONTENT_TYPE, media_type)
        .number(header::CONTENT_LENGTH, bytes.as_ref().len() as u64);
    if method == Method::GET { reply.body(bytes.into()) } else { reply.empty() }
}

fn unknown(target: &Target) -> ApiError {
    ApiError::new(Code::ManifestUnknown, format!("manifest {target} is not in this repository"))
}

/// DELETE of a tag or of a manifest with all its tags.
pub(super) async fn delete(
    app: &App,
    name: Repository,
    target: Target,
) -> Result<Response, ApiError> {
    let store = app.store();
    blocking(move || {
        let layout = store.existing(&name)?;
        let deleted = match &target {
            Target::Tag(tag) => layout.delete_tag(tag)?,
            Target::Digest(digest) => layout.delete_manifest(digest)?,
        };
        if deleted { Ok(()) } else { Err(unknown(&target)) }
    })
    .await?;
    Ok(Reply::new(StatusCode::ACCEPTED).empty())
}

/// A push, understood.
struct Push {
    digest: Digest,
    document: Document,
    bytes: bytes::Bytes,
    tags: Vec<Tag>,
}

/// PUT.
pub(super) async fn write(
    app: &App,
    name: Repository,
    target: Target,
    query: &Query,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Response, ApiError> {
    let too_large = || {
        let text = format!("manifests of more than {MAX_MANIFEST_BYTES} bytes are not taken");
        ApiError::new(Code::ManifestTooLarge, text)
    };
    let announced = number_header(headers, &header::CONTENT_LENGTH).unwrap_or(0);
    if announced > MAX_MANIFEST_BYTES as u64 {
        return Err(too_large());
    }
    let bytes = body::read_bounded(body, MAX_MANIFEST_BYTES, app.limits().idle_timeout)
        .await?
        .ok_or_else(too_large)?;
    let by_digest = matches!(target, Target::Digest(_));
    let push = understand(&target, query, header_text(headers, &header::CONTENT_TYPE), bytes)?;
    let condition = Condition::of(headers, &target);
    let (store, repository) = (app.store(), name.clone());
    let push = blocking(move || {
        store_push(&store.create(&repository)?, &push, &condition)?;
        Ok::<_, ApiError>(push)
    })
    .await?;
    let mut reply = Reply::new(StatusCode::CREATED)
        .text(header::LOCATION, &format!("/v2/{name}/manifests/{}", push.digest))
        .digest(&push.digest)
        .text(header::ETAG, &format!("\"{}\"", push.digest));
    if let Some(subject) = push.document.subject() {
        reply = reply.text(OCI_SUBJECT, &subject.digest.to_string());
    }
    if by_digest {
        reply = push.tags.iter().fold(reply, |reply, tag| reply.text(OCI_TAG, tag.as_str()));
    }
    Ok(reply.empty())
}

/// What is pushed, under which digest and tags. Pure.
fn understand(
    target: &Target,
    query: &Query,
    content_type: Option<&str>,
    bytes: bytes::Bytes,
) -> Result<Push, ApiError> {
    let tags: Result<Vec<Tag>, _> = query.all("tag").map(str::parse).collect();
    let mut tags = tags.map_err(|e| ApiError::new(Code::TagInvalid, format!("{e}")))?;
    let digest = match target {
        Target::Tag(tag) => {
            tags.push(tag.clone());
            Digest::sha256(&bytes)
        }
        Target::Digest(expected) => {
            let actual = Digest::of(expected.algorithm(), &bytes);
            if actual != *expected {
                let text = format!("the manifest has digest {actual}, not {expected}");
                return Err(ApiError::new(Code::DigestInvalid, text));
            }
            actual
        }
    };
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > MAX_TAGS {
        let text = format!("at most {MAX_TAGS} tags are taken in one push");
        return Err(ApiError::new(Code::TagInvalid, text));
    }
    let document = Document::parse(&bytes, content_type)
        .map_err(|error| ApiError::new(Code::ManifestInvalid, chain(&error)))?;
    Ok(Push { digest, document, bytes, tags })
}

/// What a conditional push demands of the tag it replaces (RFC 9110, 13.1).
///
/// With it two writers of one tag cannot lose each other's change: the second is refused.
struct Condition {
    tag: Option<Tag>,
    if_match: Vec<http::HeaderValue>,
    if_none_match: Vec<http::HeaderValue>,
}

impl Condition {
    fn of(headers: &HeaderMap, target: &Target) -> Self {
        let all = |name| headers.get_all(name).iter().cloned().collect();
        let tag = match target {
            Target::Tag(tag) => Some(tag.clone()),
            Target::Digest(_) => None,
        };
        Self { tag, if_match: all(header::IF_MATCH), if_none_match: all(header::IF_NONE_MATCH) }
    }

    fn check(&self, layout: &Layout) -> Result<(), ApiError> {
        let Some(tag) = &self.tag else { return Ok(()) };
        if self.if_match.is_empty() && self.if_none_match.is_empty() {
            return Ok(());
        }
        let current = layout.known_manifest(&Target::Tag(tag.clone()))?;
        let etag = current.map(|descriptor| format!("\"{}\"", descriptor.digest));
        let named = |list: &[http::HeaderValue]| {
            etag.as_ref().is_some_and(|etag| list.iter().any(|value| matches_etag(value, etag)))
        };
        let fits = (self.if_match.is_empty() || named(&self.if_match))
            && (self.if_none_match.is_empty() || !named(&self.if_none_match));
        if fits {
            return Ok(());
        }
        let text = format!("tag {tag} is not what the condition of this push demands");
        Err(ApiError::new(Code::PreconditionFailed, text))
    }
}

fn store_push(layout: &Layout, push: &Push, condition: &Condition) -> Result<(), ApiError> {
    let allowed = || {
        condition.check(layout)?;
        check_blobs(layout, &push.document)
    };
    // Before anything is written, so that a refusal leaves nothing behind; and again under the
    // lock, where the answer is final.
    allowed()?;
    let media_type = push.document.media_type();
    layout.put_manifest_if(push.digest, media_type, &push.bytes, &push.tags, allowed)?;
    Ok(())
}

fn check_blobs(layout: &Layout, document: &Document) -> Result<(), ApiError> {
    for blob in document.blobs() {
        match layout.blob_size(&blob.digest)? {
            Some(size) if size == blob.size => match layout.touch_blob(&blob.digest) {
                Err(LayoutError::BlobNotFound { .. }) => return Err(blob_unknown(blob)),
                touched => touched?,
            },
            Some(size) => {
                let text = format!("blob {} has {size} bytes, not {}", blob.digest, blob.size);
                return Err(ApiError::new(Code::ManifestInvalid, text));
            }
            None if may_be_elsewhere(blob) => {}
            None => return Err(blob_unknown(blob)),
        }
    }
    Ok(())
}

fn blob_unknown(blob: &Descriptor) -> ApiError {
    let text = format!("blob {} is not in this repository; push it first", blob.digest);
    ApiError::new(Code::ManifestBlobUnknown, text).with_detail(json!({ "digest": blob.digest }))
}

/// Layers that a licence forbids to distribute, or that say where else they are.
fn may_be_elsewhere(blob: &Descriptor) -> bool {
    !blob.urls.is_empty()
        || blob.media_type.starts_with("application/vnd.oci.image.layer.nondistributable.")
        || blob.media_type.starts_with("application/vnd.docker.image.rootfs.foreign.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> bytes::Bytes {
        let empty = Descriptor::of(portolan_core::media_type::OCI_EMPTY, b"{}");
        let text = json!({"schemaVersion": 2, "config": empty, "layers": []}).to_string();
        text.into_bytes().into()
    }

    fn refused(target: &str, query: &str, bytes: bytes::Bytes) -> Code {
        let query = Query::parse(Some(query));
        match understand(&target.parse().unwrap(), &query, None, bytes) {
            Err(error) => error.code(),
            Ok(_) => panic!("{target} was taken"),
        }
    }

    #[test]
    fn tags_come_from_the_path_and_the_query() {
        let query = Query::parse(Some("tag=b&tag=a&tag=b"));
        let push = understand(&"c".parse().unwrap(), &query, None, manifest()).unwrap();
        let tags: Vec<&str> = push.tags.iter().map(Tag::as_str).collect();
        assert_eq!(tags, ["a", "b", "c"]);
        assert_eq!(push.digest, Digest::sha256(&manifest()));
    }

    #[test]
    fn a_digest_of_either_kind_must_match() {
        let sha512 = Digest::of(portolan_core::Algorithm::Sha512, &manifest());
        let target = Target::Digest(sha512);
        let push = understand(&target, &Query::default(), None, manifest()).unwrap();
        assert_eq!(push.digest, sha512);
        let other = Digest::sha256(b"other").to_string();
        assert_eq!(refused(&other, "", manifest()), Code::DigestInvalid);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(refused("t", "tag=.bad", manifest()), Code::TagInvalid);
        assert_eq!(refused("t", "", "not json".into()), Code::ManifestInvalid);
        let many: String = (0..=MAX_TAGS).map(|n| format!("tag=t{n}&")).collect();
        assert_eq!(refused("t", &many, manifest()), Code::TagInvalid);
    }

    #[test]
    fn foreign_layers_may_be_elsewhere() {
        let mut layer = Descriptor::of("application/vnd.oci.image.layer.v1.tar", b"x");
        assert!(!may_be_elsewhere(&layer));
        layer.urls.push("https://example.com/x".into());
        assert!(may_be_elsewhere(&layer));
        let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
        assert!(may_be_elsewhere(&Descriptor::of(foreign, b"x")));
    }
}
