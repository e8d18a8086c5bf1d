//! What Kubernetes takes for a name.

fn alphanumeric_ends(text: &str) -> bool {
    let ends = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.bytes().next()) && ends(text.bytes().next_back())
}

/// Empty, or at most 63 of letters, digits, `-`, `_` and `.` with a letter or digit at both ends.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && alphanumeric_ends(text)
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Lower-case words of letters, digits and `-` joined by dots, at most 253 in all.
pub(crate) fn is_subdomain(text: &str) -> bool {
    let word = |word: &str| {
        alphanumeric_ends(word)
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(word)
}

/// `name` or `prefix/name`.
pub(crate) fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        let long = "a".repeat(64);
        for (text, label, qualified, subdomain) in [
            ("", true, false, false),
            ("a", true, true, true),
            ("a.b-c", true, true, true),
            ("A_b", true, true, false),
            ("-a", false, false, false),
            ("a-", false, false, false),
            ("kubernetes.io/os", false, true, false),
            ("Kubernetes.io/os", false, false, false),
            ("a/b/c", false, false, false),
            (long.as_str(), false, false, true),
        ] {
            let found = (is_label_value(text), is_qualified_name(text), is_subdomain(text));
            assert_eq!(found, (label, qualified, subdomain), "{text:?}");
        }
    }
}
