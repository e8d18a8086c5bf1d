//! Strangers' texts on a terminal: errors and reports quote them, and none may move the cursor or turn the text around.

/// Whether a character would.
pub fn plays(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}

/// The text as a terminal may show it, line breaks kept.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if plays(c) && !matches!(c, '\n' | '\t') {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_plays_with_the_terminal() {
        let hostile = "a\u{1b}]0;x\u{7}\r\u{9b}31m\u{202e}b\n\tc é";
        let shown = printable(hostile);
        assert_eq!(shown, "a\\u{1b}]0;x\\u{7}\\u{d}\\u{9b}31m\\u{202e}b\n\tc é");
    }
}
