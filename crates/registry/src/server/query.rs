//! Query parameters, decoded once.

use percent_encoding::percent_decode;

/// No request of the API needs more; the rest is not looked at.
const MAX_PARAMETERS: usize = 64;

/// The parameters of a query, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what follows `?`. Parameters that are not UTF-8 count as absent.
    pub(super) fn parse(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decode = |part: &str| -> Option<String> {
            let spaced = part.replace('+', " ");
            percent_decode(spaced.as_bytes()).decode_utf8().ok().map(Into::into)
        };
        Self(
            pairs
                .take(MAX_PARAMETERS)
                .filter_map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((decode(key)?, decode_value(key, value, decode)?))
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A media type may hold a literal `+`, which careless clients do not encode; a space never
/// stands in one.
fn decode_value(key: &str, value: &str, decode: impl Fn(&str) -> Option<String>) -> Option<String> {
    if key == "artifactType" { decode(&value.replace('+', "%2B")) } else { decode(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_repeated_ones_kept() {
        let query = Query::parse(Some("tag=a&tag=b%2Bc&n=5&last&digest=sha256%3Aff&x=%ff"));
        assert_eq!(query.all("tag").collect::<Vec<_>>(), ["a", "b+c"]);
        assert_eq!(query.get("n"), Some("5"));
        assert_eq!(query.get("last"), Some(""));
        assert_eq!(query.get("digest"), Some("sha256:ff"));
        assert_eq!(query.get("x"), None);
        assert_eq!(Query::parse(None), Query::default());
    }

    #[test]
    fn a_media_type_keeps_its_plus_either_way() {
        for text in ["artifactType=application/spdx+json", "artifactType=application%2Fspdx%2Bjson"]
        {
            assert_eq!(Query::parse(Some(text)).get("artifactType"), Some("application/spdx+json"));
        }
    }
}
