//! The labelled Releases of a cluster, as its API server lists them and tells of changes.

use std::time::Duration;

use http::{Method, StatusCode};
use portolan_api::release::{GROUP, PREFETCH};
use portolan_core::HostPlatform;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::judge::{self, Entry, Key};
use crate::api_server::{ApiServer, NoServer};
use crate::endpoint::{Endpoint, EndpointError, Lines, refused, shown};

/// Releases of one page; where they are so large that a page is too long, of a small one: an object has at most 1.5 MiB.
const PAGES: [usize; 2] = [50, 4];
/// So many are read. An agent fetches far fewer.
pub(super) const MAX_RELEASES: usize = 4096;
/// A list of many pages may be too old before its end; then it is begun again, so often.
const TRIES: usize = 3;
/// What a watch may take beyond the time it was asked to last.
const GRACE: Duration = Duration::from_secs(15);

/// What a watch tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A Release is there, or changed.
    Is(Key, Box<Entry>),
    /// It is gone, or has lost its label.
    Gone(Key),
    /// Nothing happened until this version.
    Nothing,
}

/// Where Releases are asked for.
#[derive(Debug)]
pub(super) struct Follower {
    url: Url,
    endpoint: Endpoint,
    host: HostPlatform,
}

/// All of them, and the version from which to watch.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) releases: Vec<(Key, Entry)>,
    pub(super) version: String,
    /// There are more than are read.
    pub(super) more: bool,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl Follower {
    /// Of one namespace, or of all.
    pub(super) fn new(
        server: &ApiServer,
        namespace: Option<&str>,
        host: HostPlatform,
    ) -> Result<Self, NoServer> {
        let within = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        let mut url = server.url(&format!("/apis/{GROUP}/v1alpha1/{within}releases"))?;
        url.query_pairs_mut().append_pair("labelSelector", &format!("{PREFETCH}=true"));
        Ok(Self { url, endpoint: server.endpoint(), host })
    }

    fn url(&self, pairs: &[(&str, &str)]) -> Url {
        let mut url = self.url.clone();
        url.query_pairs_mut().extend_pairs(pairs);
        url
    }

    /// Every labelled Release.
    pub(super) async fn list(&mut self) -> Result<Listed, EndpointError> {
        let mut size = PAGES[0];
        let mut tries = 0;
        loop {
            match self.pages(size).await {
                Err(EndpointError::TooLarge { .. }) if size != PAGES[1] => size = PAGES[1],
                Err(error) if error.status() == Some(StatusCode::GONE) && tries < TRIES => {
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn pages(&mut self, size: usize) -> Result<Listed, EndpointError> {
        let limit = size.to_string();
        let mut listed = Listed { releases: Vec::new(), version: String::new(), more: false };
        let mut next: Option<String> = None;
        // What has no name counts as well: pages of that alone would have no end.
        let mut seen = 0;
        loop {
            let mut pairs = vec![("limit", limit.as_str())];
            pairs.extend(next.as_deref().map(|next| ("continue", next)));
            let url = self.url(&pairs);
            let bytes = self.endpoint.call(Method::GET, &url, None).await?;
            let page: Page = serde_json::from_slice(&bytes)
                .map_err(|source| EndpointError::Malformed { url: shown(&url), source })?;
            // A page without anything and with a next one has no end.
            let empty = page.items.is_empty();
            seen += page.items.len();
            listed.version = page.metadata.resource_version;
            let read = page.items.into_iter().filter_map(|one| judge::read(one, &self.host));
            listed.releases.extend(read);
            next = page.metadata.next.filter(|next| !next.is_empty() && !empty);
            if seen >= MAX_RELEASES {
                listed.more = next.is_some() || listed.releases.len() > MAX_RELEASES;
                listed.releases.truncate(MAX_RELEASES);
                return Ok(listed);
            }
            if next.is_none() {
                return Ok(listed);
            }
        }
    }

    /// What happens after `version`, for about so long.
    pub(super) async fn watch(
        &mut self,
        version: &str,
        lasts: Duration,
    ) -> Result<Watch<'_>, EndpointError> {
        let seconds = lasts.as_secs().max(1).to_string();
        let url = self.url(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", &seconds),
        ]);
        let lines = self.endpoint.lines(&url, lasts + GRACE).await?;
        Ok(Watch { lines, url, host: &self.host })
    }
}

/// A watch that is open.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    lines: Lines,
    url: Url,
    host: &'a HostPlatform,
}

impl Watch<'_> {
    /// What happens next, and the version that is reached by it; none at the end of the watch. What a server says instead is
    /// a refusal with its own status: [`StatusCode::GONE`] where what happened since is not known any more.
    pub(super) async fn next(&mut self) -> Result<Option<(Event, Option<String>)>, EndpointError> {
        let Some(line) = self.lines.next().await? else { return Ok(None) };
        told(&line, self.host, &self.url).map(Some)
    }
}

/// One line of a watch.
fn told(
    line: &[u8],
    host: &HostPlatform,
    url: &Url,
) -> Result<(Event, Option<String>), EndpointError> {
    #[derive(Deserialize)]
    struct Told {
        #[serde(rename = "type")]
        kind: String,
        object: Value,
    }
    let Told { kind, object } = serde_json::from_slice(line)
        .map_err(|source| EndpointError::Malformed { url: shown(url), source })?;
    let version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let event = match kind.as_str() {
        "ADDED" | "MODIFIED" => match judge::read(object, host) {
            Some((key, entry)) => Event::Is(key, Box::new(entry)),
            None => Event::Nothing,
        },
        "DELETED" => match judge::read(object, host) {
            Some((key, _)) => Event::Gone(key),
            None => Event::Nothing,
        },
        "BOOKMARK" => Event::Nothing,
        // An error has the form of a refused call.
        _ => {
            let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let status = code.and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Err(refused(url, status, object.to_string().into_bytes()));
        }
    };
    Ok((event, version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::judge::tests::{host, release};
    use super::*;

    #[test]
    fn a_line_is_a_release_its_end_a_version_or_a_refusal() {
        let (on, url) = (host("linux/amd64"), "http://127.0.0.1/".parse().unwrap());
        let hear = |value: Value| told(value.to_string().as_bytes(), &on, &url);
        let tell = |value: Value| hear(value).unwrap();
        let (event, version) = tell(json!({ "type": "ADDED", "object": release("app") }));
        assert!(
            matches!(&event, Event::Is(key, entry) if key.name == "app" && entry.verdict.is_ok())
        );
        assert_eq!(version.as_deref(), Some("7"));
        let (event, _) = tell(json!({ "type": "DELETED", "object": release("app") }));
        assert!(matches!(event, Event::Gone(key) if key.name == "app"));
        let bookmark = json!({ "kind": "Release", "metadata": { "resourceVersion": "9" } });
        let told_of = tell(json!({ "type": "BOOKMARK", "object": bookmark }));
        assert_eq!(told_of, (Event::Nothing, Some("9".to_owned())));
        // Only what is gone is a reason to list again at once.
        for (code, status) in [
            (json!(410), StatusCode::GONE),
            (json!(504), StatusCode::GATEWAY_TIMEOUT),
            (json!(429), StatusCode::TOO_MANY_REQUESTS),
            (json!(null), StatusCode::INTERNAL_SERVER_ERROR),
            (json!(70000), StatusCode::INTERNAL_SERVER_ERROR),
        ] {
            let object = json!({ "kind": "Status", "code": code, "message": "too old" });
            let error = hear(json!({ "type": "ERROR", "object": object })).unwrap_err();
            assert_eq!(error.status(), Some(status));
            assert!(error.to_string().contains("too old"), "{error}");
        }
        for broken in ["", "{", "[]", r#"{"type": "ADDED"}"#, r#"{"type": 1, "object": {}}"#] {
            assert!(told(broken.as_bytes(), &on, &url).is_err(), "{broken}");
        }
    }
}
