//! Lists that come in pages: tags, referrers.

use ::http::Method;
use ::http::header::ACCEPT;
use portolan_core::Tag;
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use serde::Deserialize;
use url::Url;

use super::Remote;
use super::error::{ClientError, Failure};
use super::http::{Access, Answer, Call, Endpoint, authority, refuse_downgrade};
use super::step::Step;
use crate::headers::{next_link, resolve_location, same_origin};

/// A list with more pages than this does not end.
const MAX_PAGES: usize = 10_000;
/// Nor does one with more entries.
const MAX_ENTRIES: usize = 1_000_000;
/// Nor one with more bytes, which entries can have without being many: each has annotations.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Where one is in a list.
pub(super) struct Pages {
    next: Option<Url>,
    pages: usize,
    entries: usize,
    bytes: usize,
}

impl Pages {
    pub(super) fn new(first: Url) -> Self {
        Self { next: Some(first), pages: 0, entries: 0, bytes: 0 }
    }

    /// The next page to ask for.
    pub(super) fn next(&mut self) -> Option<Url> {
        self.next.take()
    }

    /// How many pages were read.
    pub(super) fn read(&self) -> usize {
        self.pages
    }

    /// Notes a page with `entries` entries and where the list goes on. Only within the same origin: the
    /// next page is asked for with the same credentials and believed as much.
    pub(super) fn turn(
        &mut self,
        answer: &Answer,
        endpoint: &Endpoint,
        entries: usize,
    ) -> Result<(), Failure> {
        self.pages += 1;
        self.entries += entries;
        self.bytes += answer.body.len();
        let Some(link) = answer.all_headers("link").find_map(next_link) else { return Ok(()) };
        let next = resolve_location(&answer.url, &link).map_err(Failure::Location)?;
        refuse_downgrade(&endpoint.base, &next)?;
        if !same_origin(&next, &endpoint.base) {
            return Err(Failure::ForeignPage { to: authority(&next) });
        }
        let stuck = next == answer.url;
        let much = self.entries > MAX_ENTRIES || self.bytes > MAX_BYTES;
        if stuck || much || self.pages >= MAX_PAGES {
            return Err(Failure::EndlessList { pages: self.pages, entries: self.entries });
        }
        self.next = Some(next);
        Ok(())
    }
}

#[derive(Deserialize)]
struct TagList {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

impl Remote {
    /// All tags, all pages, in the registry's order.
    pub async fn tags(&self) -> Result<Vec<Tag>, ClientError> {
        for mirror in self.list_mirrors() {
            match self.tags_from(&mirror).await {
                Ok(found) => return Ok(found),
                Err(failure) => pass_over_list(&mirror, &failure),
            }
        }
        let found = self.tags_from(&self.upstream).await;
        found.map_err(|failure| self.upstream.error(&Step::ListTags, failure))
    }

    async fn tags_from(&self, endpoint: &Endpoint) -> Result<Vec<Tag>, Failure> {
        let mut tags = Vec::new();
        let mut pages = Pages::new(endpoint.url("tags/list"));
        while let Some(url) = pages.next() {
            let call = Call::new(Method::GET, url, Access::Pull).header(ACCEPT, "application/json");
            let answer = self.shared.exchange(endpoint, &call, MAX_MANIFEST_BYTES).await?;
            if !answer.is_success() {
                return Err(answer.failure());
            }
            let list: TagList = serde_json::from_slice(&answer.body).map_err(Failure::Json)?;
            let names = list.tags.unwrap_or_default();
            pages.turn(&answer, endpoint, names.len())?;
            for name in names {
                tags.push(name.parse().map_err(Failure::Tag)?);
            }
        }
        Ok(tags)
    }
}

/// Notes that a mirror's list could not be had; the next source is asked.
pub(super) fn pass_over_list(mirror: &Endpoint, failure: &Failure) {
    tracing::debug!(mirror = %mirror.host.as_str(), %failure, "asking the next source");
}
