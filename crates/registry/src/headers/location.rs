//! `Location` and other URLs a server hands out.

use url::Url;

use super::MAX_HEADER;

/// Why a URL that a server handed out is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// More than we look at.
    #[error("the URL has {0} bytes, more than {MAX_HEADER}")]
    TooLong(usize),
    /// Not a URL, nor one relative to the request.
    #[error("{0:?} is not a URL")]
    Malformed(String),
    /// A scheme other than http and https.
    #[error("the URL's scheme {0:?} is neither http nor https")]
    Scheme(String),
    /// `https://user:password@host`: a server has no business choosing credentials.
    #[error("the URL carries a user name or password")]
    Credentials,
    /// `https:///path`.
    #[error("the URL has no host")]
    NoHost,
}

/// Resolves what a server handed out against the URL that was asked. The fragment is dropped.
pub fn resolve_location(asked: &Url, location: &str) -> Result<Url, LocationError> {
    if location.len() > MAX_HEADER {
        return Err(LocationError::TooLong(location.len()));
    }
    let mut url = asked
        .join(location)
        .map_err(|_| LocationError::Malformed(location.chars().take(120).collect()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(LocationError::Scheme(url.scheme().chars().take(32).collect()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(LocationError::NoHost);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(LocationError::Credentials);
    }
    url.set_fragment(None);
    Ok(url)
}

/// Same scheme, host and port: only there may credentials go along.
pub fn same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let asked = Url::parse("https://r.example:5000/v2/a/blobs/uploads/?x=1").unwrap();
        for (location, expected) in [
            ("/v2/a/blobs/uploads/1?s=2", Ok("https://r.example:5000/v2/a/blobs/uploads/1?s=2")),
            ("1", Ok("https://r.example:5000/v2/a/blobs/uploads/1")),
            ("https://cdn.example/x#frag", Ok("https://cdn.example/x")),
            ("//cdn.example/x", Ok("https://cdn.example/x")),
            ("http://cdn.example/x", Ok("http://cdn.example/x")),
            ("?n=2", Ok("https://r.example:5000/v2/a/blobs/uploads/?n=2")),
            ("file:///etc/passwd", Err(LocationError::Scheme("file".into()))),
            ("https://u:p@cdn.example/", Err(LocationError::Credentials)),
            ("https://u@cdn.example/", Err(LocationError::Credentials)),
            ("https://", Err(LocationError::Malformed("https://".into()))),
            ("http://[::1", Err(LocationError::Malformed("http://[::1".into()))),
        ] {
            let found = resolve_location(&asked, location);
            assert_eq!(
                found.as_ref().map(Url::as_str),
                expected.as_ref().map(|e| *e),
                "{location:?}"
            );
        }
        assert_eq!(resolve_location(&asked, &"a".repeat(9000)), Err(LocationError::TooLong(9000)));
    }

    #[test]
    fn origins() {
        let same = |a: &str, b: &str| same_origin(&Url::parse(a).unwrap(), &Url::parse(b).unwrap());
        assert!(same("https://a/x", "https://a:443/y"));
        assert!(!same("https://a/x", "http://a/x"));
        assert!(!same("https://a/x", "https://a:444/x"));
        assert!(!same("https://a/x", "https://b/x"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(location in ".{0,120}") {
            let asked = Url::parse("https://r.example/v2/").unwrap();
            let _ = resolve_location(&asked, &location);
        }
    }
}
