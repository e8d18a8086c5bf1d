//! What Kubernetes takes for the name of an object, of a label, and for its value.

fn alphanumeric_ends(text: &str) -> bool {
    let ends = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.bytes().next()) && ends(text.bytes().next_back())
}

/// A label's value: empty, or at most 63 of letters, digits, `-`, `_` and `.` with a letter or digit at both ends.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && alphanumeric_ends(text)
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Lower-case words of letters, digits and `-` joined by dots, at most 253 in all: the name of an object.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_word)
}

/// One such word of at most 63: a label of DNS.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_word(text)
}

fn is_word(text: &str) -> bool {
    alphanumeric_ends(text)
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A label's key: `name` or `prefix/name`.
pub fn is_qualified_name(text: &str) -> bool {
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
        for (text, label, qualified, subdomain, word) in [
            ("", true, false, false, false),
            ("a", true, true, true, true),
            ("a-1", true, true, true, true),
            ("a.b-c", true, true, true, false),
            ("A_b", true, true, false, false),
            ("-a", false, false, false, false),
            ("a-", false, false, false, false),
            ("a..b", true, true, false, false),
            ("kubernetes.io/os", false, true, false, false),
            ("Kubernetes.io/os", false, false, false, false),
            ("a/b/c", false, false, false, false),
            (long.as_str(), false, false, true, false),
        ] {
            let found = (is_label_value(text), is_qualified_name(text));
            assert_eq!(found, (label, qualified), "{text:?}");
            assert_eq!((is_subdomain(text), is_dns_label(text)), (subdomain, word), "{text:?}");
        }
    }
}
