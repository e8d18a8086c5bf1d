//! Manifests and indexes: resolve, read, write, delete.

use std::sync::LazyLock;

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderValue, Method};
use bytes::Bytes;
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Descriptor, Digest, Document, Tag, Target, media_type};

use super::error::{ClientError, Failure};
use super::http::{Access, Answer, Call, Endpoint, Payload};
use super::step::Step;
use super::{Fetched, Pushed, Remote};
use crate::ErrorClass;
use crate::headers;

impl Remote {
    /// What a tag or digest stands for now, without reading it where the registry answers HEAD
    /// with digest, size and type, and by reading it where not.
    ///
    /// Resolve once and go on by the digest of the answer: a tag may move between two calls.
    pub async fn resolve(&self, target: &Target) -> Result<Descriptor, ClientError> {
        let step = Step::ReadManifest(show(target));
        for mirror in self.manifest_mirrors(target) {
            match self.resolve_from(&mirror, target).await {
                Ok(found) => return Ok(found),
                Err(failure) => pass_over(&mirror, &step, failure)?,
            }
        }
        let found = self.resolve_from(&self.upstream, target).await;
        found.map_err(|failure| self.upstream.error(&step, failure))
    }

    /// Reads a manifest or index: at most 4 MiB, of the digest asked for or, for a tag, of the digest
    /// that the registry announces. The answer is consistent in itself even when the tag moves meanwhile.
    pub async fn manifest(&self, target: &Target) -> Result<Fetched, ClientError> {
        let step = Step::ReadManifest(show(target));
        for mirror in self.manifest_mirrors(target) {
            match self.manifest_from(&mirror, target).await {
                Ok(found) => return Ok(found),
                Err(failure) => pass_over(&mirror, &step, failure)?,
            }
        }
        let found = self.manifest_from(&self.upstream, target).await;
        found.map_err(|failure| self.upstream.error(&step, failure))
    }

    async fn resolve_from(
        &self,
        endpoint: &Endpoint,
        target: &Target,
    ) -> Result<Descriptor, Failure> {
        let call = manifest_call(Method::HEAD, endpoint, target);
        let answer = self.shared.exchange(endpoint, &call, MAX_MANIFEST_BYTES).await?;
        match described(&answer, target)? {
            Some(descriptor) => Ok(descriptor),
            None => Ok(self.manifest_from(endpoint, target).await?.descriptor),
        }
    }

    pub(super) async fn manifest_from(
        &self,
        endpoint: &Endpoint,
        target: &Target,
    ) -> Result<Fetched, Failure> {
        let call = manifest_call(Method::GET, endpoint, target);
        let answer = self.shared.exchange(endpoint, &call, MAX_MANIFEST_BYTES).await?.success()?;
        fetched(&answer, target)
    }

    /// Writes a manifest or index under a tag or its digest.
    ///
    /// With a subject, and a registry that does not say it has listed it (`OCI-Subject`), the list of
    /// referrers kept under a tag is updated; see [`Remote::referrers`] for how safe that is.
    pub async fn push_manifest(
        &self,
        target: &Target,
        media_type: &str,
        bytes: &[u8],
    ) -> Result<Pushed, ClientError> {
        let step = Step::WriteManifest(show(target));
        let fail = |failure| self.upstream.error(&step, failure);
        let document =
            Document::parse(bytes, Some(media_type)).map_err(|e| fail(Failure::Document(e)))?;
        let mut descriptor = Descriptor::of(media_type, bytes);
        if let Target::Digest(expected) = target {
            descriptor.digest = Digest::of(expected.algorithm(), bytes);
            if descriptor.digest != *expected {
                return Err(fail(Failure::digest(*expected, descriptor.digest)));
            }
        }
        let answer = self.put_manifest(target, media_type, bytes, None).await.map_err(fail)?;
        let answer = answer.success().map_err(fail)?;
        if let Some(announced) = announced(&answer) {
            let actual = Digest::of(announced.algorithm(), bytes);
            if actual != announced {
                return Err(fail(Failure::digest(actual, announced)));
            }
        }
        if let Some(subject) = document.subject() {
            let listed =
                answer.header("oci-subject").and_then(|text| text.trim().parse::<Digest>().ok());
            if listed != Some(subject.digest) || self.lists_by_tag(&self.upstream) {
                let mut entry = descriptor.clone();
                entry.artifact_type = document.artifact_type().map(str::to_owned);
                entry.annotations = document.annotations().clone();
                self.add_to_list(&subject.digest, &entry).await?;
            }
        }
        Ok(Pushed { descriptor })
    }

    /// One PUT; `condition` is a header that makes the registry refuse when the tag has moved.
    pub(super) async fn put_manifest(
        &self,
        target: &Target,
        media_type: &str,
        bytes: &[u8],
        condition: Option<(::http::HeaderName, &str)>,
    ) -> Result<Answer, Failure> {
        let mut call = Call::new(Method::PUT, manifest_url(&self.upstream, target), Access::Push)
            .header(CONTENT_TYPE, media_type)
            .payload(Payload::Bytes(Bytes::copy_from_slice(bytes)));
        if let Some((name, value)) = condition {
            call = call.header(name, value);
        }
        self.shared.exchange(&self.upstream, &call, MAX_MANIFEST_BYTES).await
    }

    /// Deletes a manifest and every tag that points to it. If it has a subject and the registry keeps
    /// no list of referrers of its own, it is also taken off the list kept under a tag.
    pub async fn delete_manifest(&self, digest: &Digest) -> Result<(), ClientError> {
        let target = Target::Digest(*digest);
        let step = Step::DeleteManifest(show(&target));
        let fail = |failure| self.upstream.error(&step, failure);
        let subject = match self.manifest_from(&self.upstream, &target).await {
            Ok(fetched) => fetched.document.subject().map(|subject| subject.digest),
            // What cannot be read as a manifest may still be deleted; it is on no list.
            Err(failure) if failure.class() == ErrorClass::BadInput => None,
            Err(failure) => return Err(fail(failure)),
        };
        self.delete(&target).await.map_err(fail)?;
        match subject {
            Some(subject) if !self.has_referrers_api(&subject).await? => {
                self.remove_from_list(&subject, digest).await
            }
            _ => Ok(()),
        }
    }

    /// Deletes a tag; the manifest stays. Registries may not allow it (400 or 405).
    pub async fn delete_tag(&self, tag: &Tag) -> Result<(), ClientError> {
        let target = Target::Tag(tag.clone());
        let step = Step::DeleteManifest(show(&target));
        self.delete(&target).await.map_err(|failure| self.upstream.error(&step, failure))
    }

    async fn delete(&self, target: &Target) -> Result<(), Failure> {
        let call = Call::new(Method::DELETE, manifest_url(&self.upstream, target), Access::Delete);
        self.shared.exchange(&self.upstream, &call, MAX_MANIFEST_BYTES).await?.success().map(drop)
    }
}

/// Goes on after a mirror that failed. Bytes that break a rule are an error at once, also from a
/// mirror: passing over them in silence would hide a mirror that lies.
fn pass_over(mirror: &Endpoint, step: &Step, failure: Failure) -> Result<(), ClientError> {
    if failure.class() == ErrorClass::BadInput {
        return Err(mirror.error(step, failure));
    }
    tracing::debug!(mirror = %mirror.host.as_str(), %failure, "asking the next source");
    Ok(())
}

pub(super) fn show(target: &Target) -> String {
    match target {
        Target::Tag(tag) => tag.as_str().to_owned(),
        Target::Digest(digest) => digest.to_string(),
    }
}

fn manifest_url(endpoint: &Endpoint, target: &Target) -> url::Url {
    endpoint.url(&format!("manifests/{}", show(target)))
}

fn manifest_call(method: Method, endpoint: &Endpoint, target: &Target) -> Call<'static> {
    static ACCEPTED: LazyLock<HeaderValue> = LazyLock::new(|| {
        let all = media_type::ACCEPTED.join(", ");
        HeaderValue::from_str(&all).expect("names of types are visible letters")
    });
    let mut call = Call::new(method, manifest_url(endpoint, target), Access::Pull);
    call.headers.insert(ACCEPT, ACCEPTED.clone());
    call
}

fn announced(answer: &Answer) -> Option<Digest> {
    answer.header("docker-content-digest").and_then(|text| text.trim().parse().ok())
}

/// The descriptor that a HEAD answer tells, or none when it does not tell all of it.
fn described(answer: &Answer, target: &Target) -> Result<Option<Descriptor>, Failure> {
    // Registries and proxies that do not do HEAD say so in several ways; GET will tell.
    if matches!(answer.status, 400 | 405 | 406 | 501) {
        return Ok(None);
    }
    if !answer.is_success() {
        return Err(answer.failure());
    }
    let media_type = answer.header("content-type").map(headers::media_type).unwrap_or_default();
    let size = answer.header("content-length").and_then(|text| text.trim().parse().ok());
    let known = media_type::is_index(&media_type) || media_type::is_manifest(&media_type);
    let (Some(digest), Some(size), true) = (announced(answer), size, known) else {
        return Ok(None);
    };
    if size == 0 {
        return Ok(None);
    }
    match target {
        // The canonical digest may be of another algorithm than the one asked for; reading settles it.
        Target::Digest(asked) if asked.algorithm() != digest.algorithm() => Ok(None),
        Target::Digest(asked) if *asked != digest => Err(Failure::digest(*asked, digest)),
        _ => Ok(Some(Descriptor::new(&media_type, digest, size))),
    }
}

/// Checks what a GET answer brought.
fn fetched(answer: &Answer, target: &Target) -> Result<Fetched, Failure> {
    let bytes = &answer.body;
    let check = |expected: Digest| {
        let actual = Digest::of(expected.algorithm(), bytes);
        if actual == expected { Ok(expected) } else { Err(Failure::digest(expected, actual)) }
    };
    let digest = match (target, announced(answer)) {
        // Hashed once where both are the same.
        (Target::Digest(asked), Some(announced)) if *asked == announced => check(*asked)?,
        (Target::Digest(asked), announced) => {
            announced.map(check).transpose()?;
            check(*asked)?
        }
        (Target::Tag(_), Some(announced)) => check(announced)?,
        (Target::Tag(_), None) => Digest::sha256(bytes),
    };
    let declared = answer.header("content-type").map(headers::media_type);
    let document = Document::parse(bytes, declared.as_deref()).map_err(Failure::Document)?;
    let descriptor = Descriptor::new(document.media_type(), digest, bytes.len() as u64);
    Ok(Fetched { descriptor, bytes: bytes.clone(), document })
}
