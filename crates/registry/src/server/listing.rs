//! Content discovery: tags, referrers, repositories, page by page.

use axum::body::Body;
use axum::response::Response;
use http::{StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Descriptor, Digest, Repository, Tag, media_type};
use serde_json::json;

use super::error::{ApiError, Code};
use super::query::Query;
use super::respond::{OCI_FILTERS, Reply};
use super::{App, blocking};

/// A page is never longer, whatever `n` says: ten thousand names are about a megabyte.
const MAX_PAGE: usize = 10_000;
/// A page of referrers is an image index, which no client reads beyond 4 MiB; this leaves room
/// for the frame round the entries.
const MAX_REFERRERS_BYTES: usize = MAX_MANIFEST_BYTES - 64 * 1024;

/// One page of a sorted list.
#[derive(Debug, PartialEq, Eq)]
struct Page<T> {
    items: Vec<T>,
    more: bool,
}

/// How many items `n` asks for: all that a page may have when it is absent.
fn page_size(query: &Query) -> Result<usize, ApiError> {
    let Some(text) = query.get("n") else { return Ok(MAX_PAGE) };
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits {
        return Err(ApiError::new(Code::PaginationInvalid, "n must be a number, zero or more"));
    }
    // Too large for a usize is larger than any page.
    Ok(text.parse::<usize>().map_or(MAX_PAGE, |n| n.min(MAX_PAGE)))
}

/// The items after `last`, in the order of `key`; `last` itself need not exist.
fn page<T, K: Ord>(mut all: Vec<T>, last: Option<&K>, n: usize, key: impl Fn(&T) -> K) -> Page<T> {
    all.sort_by_cached_key(&key);
    let mut items: Vec<T> =
        all.into_iter().filter(|item| last.is_none_or(|last| key(item) > *last)).collect();
    let more = n > 0 && items.len() > n;
    items.truncate(n);
    Page { items, more }
}

/// "Lexical, i.e. case-insensitive alphanumeric order", as the specification puts it; tags that
/// differ only in case are ordered by their bytes, so that every page mark is exact.
fn tag_order(tag: &str) -> (String, String) {
    (tag.to_ascii_lowercase(), tag.to_owned())
}

/// GET `/v2/<name>/tags/list`.
pub(super) async fn tags(app: &App, name: Repository, query: &Query) -> Result<Response, ApiError> {
    let n = page_size(query)?;
    let (store, repository) = (app.store(), name.clone());
    let all = blocking(move || Ok::<_, ApiError>(store.existing(&repository)?.tags()?)).await?;
    let last = query.get("last").filter(|last| !last.is_empty()).map(tag_order);
    let page = page(all, last.as_ref(), n, |tag: &Tag| tag_order(tag.as_str()));
    let names: Vec<&str> = page.items.iter().map(Tag::as_str).collect();
    let next = page.more.then(|| next_mark(names.last(), n)).flatten();
    let path = format!("/v2/{name}/tags/list");
    Ok(json_reply(&json!({ "name": name.as_str(), "tags": names }), &path, next))
}

/// GET `/v2/_catalog`.
pub(super) async fn catalog(app: &App, query: &Query) -> Result<Response, ApiError> {
    let n = page_size(query)?;
    let store = app.store();
    let all = blocking(move || Ok::<_, ApiError>(store.repositories()?)).await?;
    let last = query.get("last").filter(|last| !last.is_empty()).map(str::to_owned);
    let page = page(all, last.as_ref(), n, |name: &Repository| name.as_str().to_owned());
    let names: Vec<&str> = page.items.iter().map(Repository::as_str).collect();
    let next = page.more.then(|| next_mark(names.last(), n)).flatten();
    Ok(json_reply(&json!({ "repositories": names }), "/v2/_catalog", next))
}

fn next_mark(last: Option<&&str>, n: usize) -> Option<String> {
    last.map(|last| format!("n={n}&last={}", utf8_percent_encode(last, NON_ALPHANUMERIC)))
}

fn json_reply(value: &serde_json::Value, path: &str, next: Option<String>) -> Response {
    let mut reply = Reply::new(StatusCode::OK).text(header::CONTENT_TYPE, "application/json");
    if let Some(next) = next {
        reply = reply.text(header::LINK, &format!("<{path}?{next}>; rel=\"next\""));
    }
    reply.body(Body::from(value.to_string()))
}

/// GET `/v2/<name>/referrers/<digest>`: never 404, also when nothing of it exists.
pub(super) async fn referrers(
    app: &App,
    name: Repository,
    subject: Digest,
    query: &Query,
) -> Result<Response, ApiError> {
    let wanted = query.get("artifactType").filter(|t| !t.is_empty()).map(str::to_owned);
    let last: Option<Digest> = match query.get("last") {
        Some(mark) => Some(mark.parse().map_err(|_| {
            ApiError::new(Code::PaginationInvalid, "last must be a digest that a page ended with")
        })?),
        None => None,
    };
    let (store, repository, filter) = (app.store(), name.clone(), wanted.clone());
    let all = blocking(move || match store.find(&repository)? {
        Some(layout) => Ok::<_, ApiError>(layout.referrers(&subject, filter.as_deref())?),
        None => Ok(Vec::new()),
    })
    .await?;
    let (entries, mark) = referrers_page(all, last.as_ref());
    let mut reply = Reply::new(StatusCode::OK).text(header::CONTENT_TYPE, media_type::OCI_INDEX);
    let mut next = mark.map(|mark| format!("last={mark}"));
    if let Some(wanted) = wanted {
        reply = reply.text(OCI_FILTERS, "artifactType");
        let encoded = utf8_percent_encode(&wanted, NON_ALPHANUMERIC).to_string();
        next = next.map(|next| format!("artifactType={encoded}&{next}"));
    }
    if let Some(next) = next {
        let link = format!("</v2/{name}/referrers/{subject}?{next}>; rel=\"next\"");
        reply = reply.text(header::LINK, &link);
    }
    let body = format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","manifests":[{}]}}"#,
        media_type::OCI_INDEX,
        entries.join(",")
    );
    Ok(reply.body(Body::from(body)))
}

/// As many descriptors as a page may hold, written out, and the mark of the last when there are
/// more. Ordered by digest, so that marks stay true while referrers come and go.
fn referrers_page(
    mut all: Vec<Descriptor>,
    last: Option<&Digest>,
) -> (Vec<String>, Option<Digest>) {
    all.sort_by_key(|descriptor| descriptor.digest);
    let mut entries = Vec::new();
    let (mut bytes, mut mark) = (0, None);
    for descriptor in all.iter().filter(|d| last.is_none_or(|last| d.digest > *last)) {
        let entry = serde_json::to_string(descriptor).expect("descriptors serialise");
        let full = bytes + entry.len() + 1 > MAX_REFERRERS_BYTES || entries.len() >= MAX_PAGE;
        // One that is larger than a page by itself still goes out: a client can at least try.
        if full && !entries.is_empty() {
            return (entries, mark);
        }
        bytes += entry.len() + 1;
        mark = Some(descriptor.digest);
        entries.push(entry);
    }
    (entries, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(n: usize, last: Option<&str>) -> (Vec<&'static str>, bool) {
        let all = vec!["b", "A", "c", "a", "B"];
        let last = last.map(tag_order);
        let page = page(all, last.as_ref(), n, |tag: &&str| tag_order(tag));
        (page.items, page.more)
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        assert_eq!(take(10, None), (vec!["A", "a", "B", "b", "c"], false));
        assert_eq!(take(2, None), (vec!["A", "a"], true));
        assert_eq!(take(2, Some("a")), (vec!["B", "b"], true));
        assert_eq!(take(2, Some("b")), (vec!["c"], false));
        assert!(!take(5, None).1);
        assert_eq!(take(0, None), (vec![], false));
        assert_eq!(take(2, Some("aa")), (vec!["B", "b"], true));
    }

    #[test]
    fn n_is_bounded_and_checked() {
        let size = |text| page_size(&Query::parse(Some(text))).map_err(|e| e.code());
        assert_eq!(size("n=3"), Ok(3));
        assert_eq!(size("n=0"), Ok(0));
        assert_eq!(size(""), Ok(MAX_PAGE));
        assert_eq!(size("n=99999999999999999999999"), Ok(MAX_PAGE));
        for bad in ["n=-1", "n=x", "n=", "n=+1"] {
            assert_eq!(size(bad), Err(Code::PaginationInvalid), "{bad}");
        }
    }

    #[test]
    fn large_lists_of_referrers_are_paged() {
        let all: Vec<Descriptor> = (0..6_u8)
            .map(|n| {
                let mut d = Descriptor::of(media_type::OCI_MANIFEST, &[n]);
                d.annotations.insert("k".into(), "v".repeat(1024 * 1024));
                d
            })
            .collect();
        let (first, mark) = referrers_page(all.clone(), None);
        let mark = mark.unwrap();
        let (second, end) = referrers_page(all, Some(&mark));
        assert_eq!((first.len() + second.len(), end), (6, None));
        assert!(first.iter().map(String::len).sum::<usize>() < MAX_MANIFEST_BYTES);
        assert!(first.iter().all(|entry| !second.contains(entry)));
    }
}
