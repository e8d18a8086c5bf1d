//! The truthful half of the fault server: the distribution protocol over content in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Digest, Index, media_type};

use super::Fault;
use super::wire::{Answer, Request};
use crate::support::image::{Image, to_json};

/// A manifest's media type and bytes.
type Stored = (String, Arc<Vec<u8>>);

/// One repository's content.
#[derive(Debug, Default, Clone)]
pub struct Repository {
    pub tags: BTreeMap<String, Digest>,
    /// By the digest they are asked under: a lying server may hold other bytes there.
    pub manifests: BTreeMap<Digest, Stored>,
    pub blobs: BTreeMap<Digest, Arc<Vec<u8>>>,
    uploads: BTreeMap<u64, Vec<u8>>,
}

/// The registry: repositories by name, and which optional parts of the protocol it has.
#[derive(Debug)]
pub struct Registry {
    pub repositories: BTreeMap<String, Repository>,
    pub referrers_api: bool,
    pub mounts: bool,
    next_upload: u64,
}

impl Default for Registry {
    fn default() -> Self {
        Self { repositories: BTreeMap::new(), referrers_api: true, mounts: true, next_upload: 0 }
    }
}

impl Repository {
    /// Takes in everything the image has, and tags its top.
    pub fn hold(&mut self, image: &Image, tag: &str) {
        for (digest, (media_type, bytes)) in &image.manifests {
            self.manifests.insert(*digest, (media_type.clone(), Arc::new(bytes.clone())));
        }
        for (digest, bytes) in &image.blobs {
            self.blobs.insert(*digest, Arc::new(bytes.clone()));
        }
        self.tags.insert(tag.to_owned(), image.top.digest);
    }

    fn find(&self, reference: &str) -> Option<(Digest, &Stored)> {
        let digest = match self.tags.get(reference) {
            Some(digest) => *digest,
            None => reference.parse().ok()?,
        };
        Some((digest, self.manifests.get(&digest)?))
    }

    fn referrers(&self, subject: &Digest) -> Vec<Descriptor> {
        let entry = |(digest, (media_type, bytes)): (&Digest, &Stored)| {
            let document = Document::parse(bytes, Some(media_type)).ok()?;
            (document.subject()?.digest == *subject).then(|| Descriptor {
                artifact_type: document.artifact_type().map(str::to_owned),
                annotations: document.annotations().clone(),
                ..Descriptor::new(media_type, *digest, bytes.len() as u64)
            })
        };
        self.manifests.iter().filter_map(entry).collect()
    }
}

impl Registry {
    /// The true answer to a request. The fault is looked at only where it changes what the
    /// protocol does (ranges), not how bytes are written.
    pub fn answer(&mut self, request: &Request, fault: &Fault) -> Answer {
        let Some(rest) = request.path.strip_prefix("/v2/") else {
            return Answer::error(404, "NOT_FOUND", "no such path");
        };
        if rest.is_empty() {
            return Answer::new(200, "{}");
        }
        for (part, handler) in [
            (
                "/manifests/",
                Self::manifests as fn(&mut Self, &str, &str, &Request, &Fault) -> Answer,
            ),
            ("/blobs/uploads/", Self::uploads),
            ("/blobs/", Self::blobs),
            ("/referrers/", Self::referrers),
            ("/tags/", Self::tags),
        ] {
            if let Some((name, last)) = rest.split_once(part) {
                return handler(self, name, last, request, fault);
            }
        }
        Answer::error(404, "NOT_FOUND", "no such path")
    }

    fn manifests(&mut self, name: &str, reference: &str, request: &Request, _: &Fault) -> Answer {
        let repository = self.repositories.entry(name.to_owned()).or_default();
        let subject_header = self.referrers_api;
        match request.method.as_str() {
            "GET" | "HEAD" => match repository.find(reference) {
                Some((digest, (media_type, bytes))) => Answer {
                    body: Arc::clone(bytes),
                    ..Answer::new(200, "")
                        .header("content-type", media_type)
                        .header("docker-content-digest", digest)
                },
                None => Answer::error(404, "MANIFEST_UNKNOWN", "manifest unknown"),
            },
            "PUT" => {
                let digest = Digest::sha256(&request.body);
                let media_type = request.header("content-type").unwrap_or_default().to_owned();
                let document = Document::parse(&request.body, Some(&media_type));
                let Ok(document) = document else {
                    return Answer::error(400, "MANIFEST_INVALID", "not a manifest");
                };
                // As real registries do: what a manifest names must be there first.
                let missing = document.blobs().find(|b| !repository.blobs.contains_key(&b.digest));
                let absent = document
                    .children()
                    .iter()
                    .find(|c| !repository.manifests.contains_key(&c.digest));
                if let Some(missing) = missing.or(absent) {
                    let digest = missing.digest.to_string();
                    return Answer::error(400, "MANIFEST_BLOB_UNKNOWN", &digest);
                }
                let body = Arc::new(request.body.clone());
                repository.manifests.insert(digest, (media_type, body));
                if reference.parse::<Digest>().is_err() {
                    repository.tags.insert(reference.to_owned(), digest);
                }
                let answer = Answer::new(201, "")
                    .header("location", format!("/v2/{name}/manifests/{digest}"))
                    .header("docker-content-digest", digest);
                match document.subject() {
                    Some(subject) if subject_header => answer.header("oci-subject", subject.digest),
                    _ => answer,
                }
            }
            "DELETE" => match repository.find(reference).map(|(digest, _)| digest) {
                Some(digest) => {
                    repository.tags.retain(|tag, to| tag != reference && *to != digest);
                    repository.manifests.remove(&digest);
                    Answer::new(202, "")
                }
                None => Answer::error(404, "MANIFEST_UNKNOWN", "manifest unknown"),
            },
            _ => Answer::error(405, "UNSUPPORTED", "method"),
        }
    }

    fn blobs(&mut self, name: &str, digest: &str, request: &Request, fault: &Fault) -> Answer {
        let repository = self.repositories.entry(name.to_owned()).or_default();
        let found = digest.parse().ok().and_then(|d| repository.blobs.get(&d));
        let Some(bytes) = found else {
            return Answer::error(404, "BLOB_UNKNOWN", "blob unknown");
        };
        let answer = Answer::new(200, "")
            .header("content-type", "application/octet-stream")
            .header("docker-content-digest", digest);
        let range = request.header("range").and_then(|r| r.strip_prefix("bytes="));
        let from = range.and_then(|r| r.split_once('-')?.0.parse::<usize>().ok());
        match (from, fault) {
            (None, _) | (_, Fault::IgnoreRange) => Answer { body: Arc::clone(bytes), ..answer },
            (Some(from), _) if from >= bytes.len() => Answer::error(416, "RANGE", "range"),
            (Some(from), fault) => {
                let from = from + usize::from(matches!(fault, Fault::WrongContentRange));
                let (total, last) = (bytes.len(), bytes.len() - 1);
                let range = format!("bytes {from}-{last}/{total}");
                let part = Arc::new(bytes[from..].to_vec());
                Answer { status: 206, body: part, ..answer }.header("content-range", range)
            }
        }
    }

    fn uploads(&mut self, name: &str, id: &str, request: &Request, _: &Fault) -> Answer {
        if request.method == "POST" {
            return self.start_upload(name, request);
        }
        let repository = self.repositories.entry(name.to_owned()).or_default();
        let Some((id, mut upload)) =
            id.parse::<u64>().ok().and_then(|id| Some((id, repository.uploads.remove(&id)?)))
        else {
            return Answer::error(404, "BLOB_UPLOAD_UNKNOWN", "upload unknown");
        };
        upload.extend_from_slice(&request.body);
        let location = format!("/v2/{name}/blobs/uploads/{id}");
        let range = format!("0-{}", upload.len().saturating_sub(1));
        match request.method.as_str() {
            "PUT" => {
                let digest = request.query("digest").and_then(|d| d.parse::<Digest>().ok());
                match digest.filter(|d| Digest::of(d.algorithm(), &upload) == *d) {
                    Some(digest) => {
                        repository.blobs.insert(digest, Arc::new(upload));
                        Answer::new(201, "")
                            .header("location", format!("/v2/{name}/blobs/{digest}"))
                    }
                    None => Answer::error(400, "DIGEST_INVALID", "digest differs"),
                }
            }
            method => {
                repository.uploads.insert(id, upload);
                let status = if method == "PATCH" { 202 } else { 204 };
                Answer::new(status, "").header("location", location).header("range", range)
            }
        }
    }

    fn start_upload(&mut self, name: &str, request: &Request) -> Answer {
        let digest = request.query("mount").and_then(|d| d.parse::<Digest>().ok());
        let blob = digest.zip(request.query("from")).and_then(|(digest, from)| {
            Some((digest, Arc::clone(self.repositories.get(&from)?.blobs.get(&digest)?)))
        });
        let repository = self.repositories.entry(name.to_owned()).or_default();
        if let Some((digest, blob)) = blob.filter(|_| self.mounts) {
            repository.blobs.insert(digest, blob);
            return Answer::new(201, "").header("location", format!("/v2/{name}/blobs/{digest}"));
        }
        self.next_upload += 1;
        repository.uploads.insert(self.next_upload, Vec::new());
        Answer::new(202, "")
            .header("location", format!("/v2/{name}/blobs/uploads/{}", self.next_upload))
            .header("range", "0-0")
    }

    fn referrers(&mut self, name: &str, subject: &str, request: &Request, _: &Fault) -> Answer {
        let repository = self.repositories.entry(name.to_owned()).or_default();
        let Some(subject) = subject.parse().ok().filter(|_| self.referrers_api) else {
            return Answer::error(404, "NOT_FOUND", "no such path");
        };
        let wanted = request.query("artifactType");
        let mut manifests = repository.referrers(&subject);
        manifests.retain(|m| wanted.is_none() || m.artifact_type == wanted);
        let index = Index {
            schema_version: 2,
            media_type: Some(media_type::OCI_INDEX.to_owned()),
            artifact_type: None,
            manifests,
            subject: None,
            annotations: BTreeMap::new(),
        };
        let answer =
            Answer::new(200, to_json(&index)).header("content-type", media_type::OCI_INDEX);
        if wanted.is_some() { answer.header("oci-filters-applied", "artifactType") } else { answer }
    }

    fn tags(&mut self, name: &str, _: &str, _: &Request, _: &Fault) -> Answer {
        match self.repositories.get(name) {
            Some(repository) => {
                let tags: Vec<_> = repository.tags.keys().collect();
                let body = serde_json::json!({"name": name, "tags": tags}).to_string();
                Answer::new(200, body).header("content-type", "application/json")
            }
            None => Answer::error(404, "NAME_UNKNOWN", "no such repository"),
        }
    }
}
