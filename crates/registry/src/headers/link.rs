//! `Link` (RFC 8288): where the next page of a list is.

use super::{MAX_HEADER, is_token, quoted};

/// A page has one `next`, perhaps `prev`, `first` and `last`.
const MAX_LINKS: usize = 32;

/// One link of a `Link` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// What stands between `<` and `>`, not resolved.
    pub target: String,
    /// The relation types, in lower case.
    pub relations: Vec<String>,
}

/// Reads the links of one header value. Reading stops at the first thing that is no link: what
/// was read before it stays good.
pub fn parse_links(value: &str) -> Vec<Link> {
    let mut links = Vec::new();
    if value.len() > MAX_HEADER {
        return links;
    }
    let mut rest = value.trim_start_matches([' ', '\t', ',']);
    while links.len() < MAX_LINKS {
        let Some((target, after)) = rest.strip_prefix('<').and_then(|r| r.split_once('>')) else {
            break;
        };
        let Some((relations, after)) = relations(after) else { break };
        links.push(Link { target: target.trim().to_owned(), relations });
        rest = after.trim_start_matches([' ', '\t', ',']);
    }
    links
}

/// The target of the first link with `rel="next"`.
pub fn next_link(value: &str) -> Option<String> {
    parse_links(value)
        .into_iter()
        .find(|link| link.relations.iter().any(|relation| relation == "next"))
        .map(|link| link.target)
}

/// Reads `; name=value` pairs up to the end of the link; only the first `rel` counts.
fn relations(mut rest: &str) -> Option<(Vec<String>, &str)> {
    let mut found: Option<Vec<String>> = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let Some(after) = rest.strip_prefix(';') else {
            let ends = rest.is_empty() || rest.starts_with(',');
            return ends.then(|| (found.unwrap_or_default(), rest));
        };
        let after = after.trim_start_matches([' ', '\t']);
        let (name, after) = split_token(after);
        let after = after.trim_start_matches([' ', '\t']);
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => value(after.trim_start_matches([' ', '\t']))?,
            None => (String::new(), after),
        };
        if name.eq_ignore_ascii_case("rel") && found.is_none() {
            found = Some(value.split_ascii_whitespace().map(str::to_ascii_lowercase).collect());
        }
        rest = after;
    }
}

fn value(text: &str) -> Option<(String, &str)> {
    if text.starts_with('"') {
        return quoted(text);
    }
    let end = text.find([';', ',', ' ', '\t']).unwrap_or(text.len());
    Some((text[..end].to_owned(), &text[end..]))
}

fn split_token(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().position(|b| !is_token(b)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (value, expected) in [
            (r#"</v2/a/tags/list?n=2&last=b>; rel="next""#, Some("/v2/a/tags/list?n=2&last=b")),
            ("</x>; rel=next", Some("/x")),
            (r#"</p>; rel="prev", </n>; rel="next""#, Some("/n")),
            (r#"</x>; title="a;b,c"; REL="Next last""#, Some("/x")),
            (r#"</x>; rel="prev"; rel="next""#, None),
            ("</x>", None),
            ("</x>; rel", None),
            ("/x; rel=next", None),
            (r#"</x>; rel="next"#, None),
            ("</x", None),
            ("", None),
            (r#"<a,b>; rel="next""#, Some("a,b")),
            (r#"</x>; rel="next" junk"#, None),
        ] {
            assert_eq!(next_link(value).as_deref(), expected, "{value:?}");
        }
        assert!(next_link(&format!("<{}>; rel=next", "a".repeat(MAX_HEADER))).is_none());
        assert_eq!(parse_links(&"<a>,".repeat(100)).len(), MAX_LINKS);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(value in ".{0,200}") {
            let _ = parse_links(&value);
        }
    }
}
