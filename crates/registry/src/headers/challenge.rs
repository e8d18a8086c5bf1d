//! `WWW-Authenticate`: how a registry says what it wants to see.

use super::{MAX_HEADER, is_token, quoted};

/// Real registries send one or two; more is noise.
const MAX_CHALLENGES: usize = 16;
/// Bearer has five at most (realm, service, scope, error, error_description).
const MAX_PARAMETERS: usize = 32;

/// One challenge of a `WWW-Authenticate` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The scheme in lower case: `basic`, `bearer`.
    pub scheme: String,
    /// The parameters in order, names in lower case.
    pub parameters: Vec<(String, String)>,
    /// What follows a scheme that has no parameters (`Negotiate abc==`).
    pub token: Option<String>,
}

impl Challenge {
    /// The first parameter of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Why a `WWW-Authenticate` header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseChallengeError {
    /// More than we look at.
    #[error("the header has {0} bytes, more than {MAX_HEADER}")]
    TooLong(usize),
    /// More challenges or parameters than anyone needs.
    #[error("the header has more than {MAX_CHALLENGES} challenges or {MAX_PARAMETERS} parameters")]
    TooMany,
    /// A scheme was expected.
    #[error("byte {0} should begin a scheme such as Basic or Bearer")]
    Scheme(usize),
    /// A parameter has no value, or its quote is never closed.
    #[error("the parameter {0:?} has no readable value")]
    Value(String),
}

/// Reads all challenges of one header value.
///
/// Two liberties beyond RFC 9110, because registries take them: an unquoted value may hold any
/// character but comma and white space (`scope=repository:a:pull`), and empty list elements are skipped.
pub fn parse_challenges(value: &str) -> Result<Vec<Challenge>, ParseChallengeError> {
    if value.len() > MAX_HEADER {
        return Err(ParseChallengeError::TooLong(value.len()));
    }
    let mut challenges = Vec::new();
    let mut rest = skip_list(value);
    while !rest.is_empty() {
        let (scheme, after) = token(rest);
        if scheme.is_empty() {
            return Err(ParseChallengeError::Scheme(value.len() - rest.len()));
        }
        if challenges.len() == MAX_CHALLENGES {
            return Err(ParseChallengeError::TooMany);
        }
        let (challenge, after) = parameters(scheme, after)?;
        // Something that is neither a parameter nor the start of a list element, e.g. `Basic "x"`.
        if !after.is_empty() && !after.starts_with(',') {
            return Err(ParseChallengeError::Scheme(value.len() - after.len()));
        }
        challenges.push(challenge);
        rest = skip_list(after);
    }
    Ok(challenges)
}

/// Reads what follows a scheme, up to the comma before the next one.
fn parameters<'a>(
    scheme: &str,
    text: &'a str,
) -> Result<(Challenge, &'a str), ParseChallengeError> {
    let mut challenge =
        Challenge { scheme: scheme.to_ascii_lowercase(), parameters: Vec::new(), token: None };
    let mut rest = skip_space(text);
    while let Some((name, after)) = parameter_name(rest) {
        if challenge.parameters.len() == MAX_PARAMETERS {
            return Err(ParseChallengeError::TooMany);
        }
        let (value, after) = parameter_value(name, after)?;
        challenge.parameters.push((name.to_ascii_lowercase(), value));
        let after = skip_space(after);
        if !after.starts_with(',') {
            return Ok((challenge, after));
        }
        let next = skip_list(after);
        // The comma may also have ended this challenge: then a scheme follows, not `name =`.
        if parameter_name(next).is_none() {
            return Ok((challenge, after));
        }
        rest = next;
    }
    if text.starts_with([' ', '\t']) {
        let end = rest.find([',', ' ', '\t']).unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        if !token.is_empty() && token.bytes().all(|b| is_token(b) || b == b'/' || b == b'=') {
            challenge.token = Some(token.to_owned());
            rest = skip_space(after);
        }
    }
    Ok((challenge, rest))
}

/// `name` of `name = value` and what follows the equals sign; none when no parameter begins here.
fn parameter_name(text: &str) -> Option<(&str, &str)> {
    let (name, after) = token(text);
    let value = skip_space(after).strip_prefix('=')?;
    // `abc==` is a token68, not a parameter.
    let is_token68 = value.is_empty() || value.starts_with('=') || value.starts_with(',');
    let is_parameter = !is_token68 || skip_space(after) != after;
    (is_parameter && !name.is_empty()).then_some((name, value))
}

fn parameter_value<'a>(
    name: &str,
    text: &'a str,
) -> Result<(String, &'a str), ParseChallengeError> {
    let text = skip_space(text);
    let bad = || ParseChallengeError::Value(name.chars().take(64).collect());
    if text.starts_with('"') {
        return quoted(text).ok_or_else(bad);
    }
    let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
    if end == 0 { Err(bad()) } else { Ok((text[..end].to_owned(), &text[end..])) }
}

fn token(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().position(|b| !is_token(b)).unwrap_or(text.len()))
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

fn skip_list(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', ','])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints challenges compactly so that a table row is one line.
    fn shown(value: &str) -> String {
        let one = |c: &Challenge| {
            let mut out = c.scheme.clone();
            for (name, value) in &c.parameters {
                out.push_str(&format!(" {name}={value}"));
            }
            if let Some(token) = &c.token {
                out.push_str(&format!(" #{token}"));
            }
            out
        };
        match parse_challenges(value) {
            Ok(all) => all.iter().map(one).collect::<Vec<_>>().join(" | "),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn table() {
        for (value, expected) in [
            ("", ""),
            (" , ,", ""),
            ("Basic", "basic"),
            (r#"Basic realm="a b""#, "basic realm=a b"),
            (
                r#"Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push""#,
                "bearer realm=https://auth.example/token service=r.example scope=repository:a/b:pull,push",
            ),
            (r#"bearer Realm = "x" , Service = y"#, "bearer realm=x service=y"),
            (
                "Bearer scope=repository:a:pull,realm=http://x/t",
                "bearer scope=repository:a:pull realm=http://x/t",
            ),
            (r#"Negotiate, Basic realm="x""#, "negotiate | basic realm=x"),
            (
                r#"Bearer realm="x", Basic realm="y",charset="UTF-8""#,
                "bearer realm=x | basic realm=y charset=UTF-8",
            ),
            ("Negotiate abc+/==, Basic realm=x", "negotiate #abc+/== | basic realm=x"),
            ("Negotiate a=", "negotiate #a="),
            (r#"Bearer realm="quote \" inside""#, "bearer realm=quote \" inside"),
            (r#"Bearer realm="",service="s""#, "bearer realm= service=s"),
            (
                r#"Bearer error="insufficient_scope",,realm="x""#,
                "bearer error=insufficient_scope realm=x",
            ),
            (r#"Bearer realm="open"#, "error: the parameter \"realm\" has no readable value"),
            (r#"="x""#, "error: byte 0 should begin a scheme such as Basic or Bearer"),
            (r#"Basic "x""#, "error: byte 6 should begin a scheme such as Basic or Bearer"),
            ("Bearer realm =", "error: the parameter \"realm\" has no readable value"),
        ] {
            assert_eq!(shown(value), expected, "{value:?}");
        }
    }

    #[test]
    fn bounds() {
        assert_eq!(parse_challenges(&"a".repeat(9000)), Err(ParseChallengeError::TooLong(9000)));
        assert_eq!(parse_challenges(&"a,".repeat(17)), Err(ParseChallengeError::TooMany));
        let many = format!("Bearer {}", "a=b,".repeat(33));
        assert_eq!(parse_challenges(&many), Err(ParseChallengeError::TooMany));
    }

    #[test]
    fn get_finds_by_lower_case_name() {
        let all = parse_challenges(r#"Bearer REALM="x""#).unwrap();
        assert_eq!(all[0].get("realm"), Some("x"));
        assert_eq!(all[0].get("scope"), None);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(value in ".{0,200}") {
            let _ = parse_challenges(&value);
        }

        #[test]
        fn what_is_quoted_comes_back(value in "[ -~]{0,60}") {
            let escaped = value.replace('\\', r"\\").replace('"', "\\\"");
            let all = parse_challenges(&format!("Bearer realm=\"{escaped}\", service=\"s\"")).unwrap();
            proptest::prop_assert_eq!(all[0].get("realm"), Some(value.as_str()));
            proptest::prop_assert_eq!(all[0].get("service"), Some("s"));
        }
    }
}
