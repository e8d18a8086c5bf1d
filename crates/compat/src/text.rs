//! Strangers' texts in our reports: documents and hosts must not play with a terminal.

/// More of one value helps nobody.
const MAX_SHOWN: usize = 160;

/// The text on one line: what would move the cursor, turn the text around or be invisible is
/// escaped, and a long one is cut.
pub fn shown(text: &str) -> String {
    shown_up_to(text, MAX_SHOWN)
}

/// [`shown`], with another bound on the characters.
pub(crate) fn shown_up_to(text: &str, limit: usize) -> String {
    // Nearly all texts are plain, and short enough.
    if text.len() <= limit && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len().min(2 * limit));
    let mut left = limit;
    for c in text.chars() {
        if left == 0 {
            out.push('…');
            break;
        }
        left -= 1;
        match c {
            ' '..='~' => out.push(c),
            // `escape_debug` knows which characters can be seen.
            _ => out.extend(c.escape_debug()),
        }
    }
    out
}

/// The beginning of a stranger's text, for a message that quotes it with `{:?}`.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

/// More of a list helps nobody.
const MAX_LISTED: usize = 20;

/// The first of many texts with `between` them, and how many more there are.
pub(crate) fn listed(
    texts: impl ExactSizeIterator<Item = impl AsRef<str>>,
    between: &str,
) -> String {
    let more = texts.len().saturating_sub(MAX_LISTED);
    let mut out = String::new();
    for (n, text) in texts.take(MAX_LISTED).enumerate() {
        out.push_str(if n == 0 { "" } else { between });
        out.push_str(text.as_ref());
    }
    if more > 0 {
        out.push_str(&format!("{between}… ({more} more)"));
    }
    out
}

/// The text for XML.
pub(crate) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in shown(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            c => out.push(c),
        }
    }
    out
}

/// The text between the quotes of a string in dot.
pub(crate) fn dot(text: &str) -> String {
    shown(text).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_plays_with_a_terminal_or_a_picture() {
        assert_eq!(shown("vfio-pci"), "vfio-pci");
        assert_eq!(
            shown("a\u{1b}[31m\u{9b}m\u{202e}é\r\n"),
            "a\\u{1b}[31m\\u{9b}m\\u{202e}é\\r\\n"
        );
        assert_eq!(shown(&"x".repeat(500)), "x".repeat(160) + "…");
        assert_eq!(xml("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&apos;");
        assert_eq!(dot("a\"b\\"), "a\\\"b\\\\");
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        assert_eq!(listed(["a", "b"].iter(), " or "), "a or b");
        assert_eq!(listed(Vec::<String>::new().iter(), ", "), "");
        let many: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let text = listed(many.iter(), ", ");
        assert!(text.starts_with("0, 1, 2") && text.ends_with("19, … (99980 more)"), "{text}");
    }
}
