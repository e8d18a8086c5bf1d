//! What refers to a manifest: signatures, attestations, compatibility artifacts.

use std::collections::BTreeSet;

use ::http::Method;
use ::http::header::ACCEPT;
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Descriptor, Digest, Document, Target, media_type};

use super::Remote;
use super::error::{ClientError, Failure};
use super::http::{Access, Answer, Call, Endpoint};
use super::pages::{Pages, pass_over_list};
use super::settings::ReferrersIn;
use super::step::Step;
use crate::ErrorClass;
use crate::headers::{self, filter_applied};

/// Entries of one list that are looked up because they do not tell their type; each is a request.
const MAX_LOOKUPS: usize = 1000;

impl Remote {
    /// Everything that refers to `subject`, or only what is of `artifact_type`.
    ///
    /// Asked is the referrers API, all its pages; what the registry did not filter is filtered here.
    /// A registry without that API keeps the list, if anyone wrote it, under the tag of
    /// [`Digest::referrers_tag`]. Entries that do not tell their artifact type, as some writers and
    /// registries leave it out, are looked up.
    ///
    /// Who asks decides by what is not there: nothing attached is nothing needed. So only a 404 says
    /// that there is no API, as the protocol has it; a success that is no list (a gateway's page) is
    /// an error. For a registry that answers otherwise the settings can say so ([`ReferrersIn::Tag`]).
    ///
    /// # How safe writing the list under a tag is
    ///
    /// [`Remote::push_manifest`] and [`Remote::delete_manifest`] read the list, change it and write it
    /// back. Writers in one process take turns. Between processes the protocol has no lock: where the
    /// registry gives an `ETag` and honours `If-Match`, no change is lost. Where it does not, the list
    /// is read again after writing, at once and a moment later, and the change repeated if another
    /// writer undid it; a change can still be lost when the other writer read before and writes after
    /// that moment. Registries with the referrers API have no such gap.
    pub async fn referrers(
        &self,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ClientError> {
        let step = Step::ListReferrers(*subject);
        for mirror in self.list_mirrors() {
            match self.referrers_from(&mirror, subject, artifact_type).await {
                Ok(found) => return Ok(found),
                Err(failure) => pass_over_list(&mirror, &failure),
            }
        }
        let found = self.referrers_from(&self.upstream, subject, artifact_type).await;
        found.map_err(|failure| self.upstream.error(&step, failure))
    }

    /// The digests of all that is on either list: the registry's own, and the one under a tag, which
    /// some writers keep although there is an API, and which registries then do not read. Nothing is
    /// looked up, and reading ends soon after `limit` are found: a set larger than that is not all.
    /// Errors are those of [`Remote::referrers`].
    pub async fn referring(
        &self,
        subject: &Digest,
        limit: usize,
    ) -> Result<BTreeSet<Digest>, ClientError> {
        let step = Step::ListReferrers(*subject);
        for mirror in self.list_mirrors() {
            match self.referring_from(&mirror, subject, limit).await {
                Ok(found) => return Ok(found),
                Err(failure) => pass_over_list(&mirror, &failure),
            }
        }
        let found = self.referring_from(&self.upstream, subject, limit).await;
        found.map_err(|failure| self.upstream.error(&step, failure))
    }

    async fn referring_from(
        &self,
        endpoint: &Endpoint,
        subject: &Digest,
        limit: usize,
    ) -> Result<BTreeSet<Digest>, Failure> {
        let (by_api, by_tag) = tokio::try_join!(
            self.referrers_by_api(endpoint, subject, None, limit),
            self.list_under_tag(endpoint, subject),
        )?;
        let entries = by_api.into_iter().flatten().chain(by_tag);
        Ok(entries.map(|entry| entry.digest).collect())
    }

    async fn referrers_from(
        &self,
        endpoint: &Endpoint,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, Failure> {
        match self.referrers_by_api(endpoint, subject, artifact_type, usize::MAX).await? {
            Some(found) => Ok(found),
            None => self.referrers_by_tag(endpoint, subject, artifact_type).await,
        }
    }

    /// Whether somebody said that the registry has its lists under tags alone.
    pub(super) fn lists_by_tag(&self, endpoint: &Endpoint) -> bool {
        self.shared.settings.host(&endpoint.host).referrers == ReferrersIn::Tag
    }

    /// None where there is no such API. No page is asked for when there are more than `limit` already.
    async fn referrers_by_api(
        &self,
        endpoint: &Endpoint,
        subject: &Digest,
        artifact_type: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Descriptor>>, Failure> {
        if self.lists_by_tag(endpoint) {
            return Ok(None);
        }
        let mut found = Vec::new();
        let mut first = endpoint.url(&format!("referrers/{subject}"));
        if let Some(wanted) = artifact_type {
            first.query_pairs_mut().append_pair("artifactType", wanted);
        }
        let mut pages = Pages::new(first);
        let mut lookups = MAX_LOOKUPS;
        while let Some(url) = pages.next() {
            let call =
                Call::new(Method::GET, url, Access::Pull).header(ACCEPT, media_type::OCI_INDEX);
            let answer = self.shared.exchange(endpoint, &call, MAX_MANIFEST_BYTES).await?;
            match (answer.status, pages.read()) {
                (404, 0) => return Ok(None),
                // Who gave a page has the API. What is left is not asked of the tag, whose list may be
                // an old one.
                (404, read) => return Err(Failure::LostPage { read }),
                _ => {}
            }
            if !is_list(&answer) {
                return Err(Failure::NoReferrers { media_type: declared(&answer) });
            }
            let answer = answer.success()?;
            let entries = entries(&answer)?;
            pages.turn(&answer, endpoint, entries.len())?;
            let filtered = answer
                .all_headers("oci-filters-applied")
                .any(|value| filter_applied(value, "artifactType"));
            match artifact_type {
                Some(wanted) if !filtered => {
                    found
                        .extend(self.of_type(endpoint, entries, Some(wanted), &mut lookups).await?);
                }
                // Of what it says it chose by type, it need not say the type as well.
                Some(wanted) => found.extend(entries.into_iter().map(|mut entry| {
                    entry.artifact_type.get_or_insert_with(|| wanted.to_owned());
                    entry
                })),
                None => found.extend(entries),
            }
            if found.len() > limit {
                break;
            }
        }
        Ok(Some(found))
    }

    async fn referrers_by_tag(
        &self,
        endpoint: &Endpoint,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, Failure> {
        let listed = self.list_under_tag(endpoint, subject).await?;
        self.of_type(endpoint, listed, artifact_type, &mut { MAX_LOOKUPS }).await
    }

    async fn list_under_tag(
        &self,
        endpoint: &Endpoint,
        subject: &Digest,
    ) -> Result<Vec<Descriptor>, Failure> {
        let list = match self.manifest_from(endpoint, &super::fallback::list_target(subject)).await
        {
            Ok(fetched) => fetched.document,
            Err(failure) if failure.class() == ErrorClass::NotFound => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        match list {
            Document::Index(index) => Ok(index.manifests),
            // Someone's own tag that happens to have this name is no list: nothing is on it.
            Document::Manifest(_) => Ok(Vec::new()),
        }
    }

    /// The entries that are of this type. Those that do not say what they are, are looked up.
    async fn of_type(
        &self,
        endpoint: &Endpoint,
        entries: Vec<Descriptor>,
        artifact_type: Option<&str>,
        lookups: &mut usize,
    ) -> Result<Vec<Descriptor>, Failure> {
        let mut found = Vec::new();
        for mut entry in entries {
            if entry.artifact_type.is_none() {
                let left = lookups.checked_sub(1);
                *lookups = left.ok_or(Failure::UntypedList { limit: MAX_LOOKUPS })?;
                self.complete(endpoint, &mut entry).await?;
            }
            if artifact_type.is_none_or(|wanted| entry.artifact_type.as_deref() == Some(wanted)) {
                found.push(entry);
            }
        }
        Ok(found)
    }

    /// Fills in the artifact type and annotations from the manifest itself. One that is gone or
    /// cannot be read stays as it is.
    async fn complete(&self, endpoint: &Endpoint, entry: &mut Descriptor) -> Result<(), Failure> {
        match self.manifest_from(endpoint, &Target::Digest(entry.digest)).await {
            Ok(fetched) => {
                entry.artifact_type = fetched.document.artifact_type().map(str::to_owned);
                if entry.annotations.is_empty() {
                    entry.annotations = fetched.document.annotations().clone();
                }
                Ok(())
            }
            Err(failure)
                if matches!(failure.class(), ErrorClass::NotFound | ErrorClass::BadInput) =>
            {
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Whether the registry itself keeps lists of referrers, for who takes an entry off a list.
    ///
    /// Here a page is no API, unlike to who reads: the worst that follows is a look at the list under
    /// the tag. Taking off never makes a list, and what was deleted belongs on none. An error would
    /// only come too late, when the manifest is gone and cannot be deleted again.
    pub(super) async fn has_referrers_api(&self, subject: &Digest) -> Result<bool, ClientError> {
        if self.lists_by_tag(&self.upstream) {
            return Ok(false);
        }
        let step = Step::ListReferrers(*subject);
        let url = self.upstream.url(&format!("referrers/{subject}"));
        let call = Call::new(Method::GET, url, Access::Pull).header(ACCEPT, media_type::OCI_INDEX);
        let fail = |failure| self.upstream.error(&step, failure);
        let answer =
            self.shared.exchange(&self.upstream, &call, MAX_MANIFEST_BYTES).await.map_err(fail)?;
        if answer.status == 404 || !is_list(&answer) {
            return Ok(false);
        }
        answer.success().map(|_| true).map_err(fail)
    }
}

/// A success that is not of the type of an index comes from something that answers everything with
/// 200: a web page, a proxy.
fn is_list(answer: &Answer) -> bool {
    let kind = answer.header("content-type").map(headers::media_type).unwrap_or_default();
    !answer.is_success() || [media_type::OCI_INDEX, "application/json"].contains(&&*kind)
}

fn entries(answer: &Answer) -> Result<Vec<Descriptor>, Failure> {
    match Document::parse(&answer.body, Some(media_type::OCI_INDEX)).map_err(Failure::Document)? {
        Document::Index(index) => Ok(index.manifests),
        Document::Manifest(_) => Err(Failure::Header {
            name: "Content-Type",
            value: declared(answer),
            problem: "does not fit the manifest that came with it",
        }),
    }
}

/// The type of the answer, shortened.
fn declared(answer: &Answer) -> String {
    answer.header("content-type").unwrap_or_default().chars().take(120).collect()
}
