//! Where a redirect may lead.

use http::Method;
use url::Url;

use super::authority;
use crate::client::error::Failure;
use crate::headers::resolve_location;

/// A registry sends to its storage, the storage perhaps to another region.
pub(super) const MAX_REDIRECTS: usize = 8;

/// Where to go next, or none when the answer is not to be followed.
///
/// Reading methods follow every kind of redirect; writing methods only those that promise to keep
/// method and body (307, 308). From https to http is an error.
pub(super) fn next_hop(
    method: &Method,
    status: u16,
    from: &Url,
    location: Option<&str>,
) -> Result<Option<Url>, Failure> {
    let reading = matches!(*method, Method::GET | Method::HEAD);
    let follow = match status {
        307 | 308 => true,
        301..=303 => reading,
        _ => false,
    };
    let Some(location) = location.filter(|_| follow) else { return Ok(None) };
    let to = resolve_location(from, location).map_err(Failure::Location)?;
    refuse_downgrade(from, &to)?;
    Ok(Some(to))
}

/// An error when `to` is plain http and `from` was not.
pub(in crate::client) fn refuse_downgrade(from: &Url, to: &Url) -> Result<(), Failure> {
    if from.scheme() == "https" && to.scheme() != "https" {
        return Err(Failure::InsecureRedirect { from: authority(from), to: authority(to) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let https = Url::parse("https://r.example/v2/a/blobs/x").unwrap();
        let http = Url::parse("http://localhost:5000/v2/a/blobs/x").unwrap();
        let hop = |method: Method, status, from: &Url, to| match next_hop(
            &method,
            status,
            from,
            Some(to),
        ) {
            Ok(Some(url)) => url.to_string(),
            Ok(None) => "stay".to_owned(),
            Err(Failure::InsecureRedirect { .. }) => "insecure".to_owned(),
            Err(Failure::Location(_)) => "bad".to_owned(),
            Err(error) => panic!("{error}"),
        };
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(
                hop(Method::GET, status, &https, "https://cdn.example/b"),
                "https://cdn.example/b"
            );
            assert_eq!(hop(Method::HEAD, status, &https, "/other"), "https://r.example/other");
            assert_eq!(hop(Method::GET, status, &https, "http://cdn.example/b"), "insecure");
            assert_eq!(
                hop(Method::GET, status, &http, "http://cdn.example/b"),
                "http://cdn.example/b"
            );
            let kept = matches!(status, 307 | 308);
            let expected = if kept { "https://r.example/other" } else { "stay" };
            assert_eq!(hop(Method::PUT, status, &https, "/other"), expected, "{status}");
        }
        assert_eq!(hop(Method::GET, 200, &https, "/other"), "stay");
        assert_eq!(hop(Method::GET, 304, &https, "/other"), "stay");
        assert_eq!(hop(Method::GET, 307, &https, "https://u:p@cdn.example/"), "bad");
        assert!(next_hop(&Method::GET, 307, &https, None).unwrap().is_none());
    }
}
