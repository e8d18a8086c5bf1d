//! Patterns as RE2 reads them: `\\w`, `\\d` and `\\s` are of ASCII there, and of all scripts in the
//! library that we match with. To turn Unicode off in it would make `.` one byte of a letter.

/// The pattern with classes and boundaries of ASCII.
pub(super) fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut depth = 0_usize;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped) => escape(escaped, depth > 0, &mut out),
                None => out.push(c),
            },
            '[' => {
                out.push(c);
                depth += 1;
                // A bracket that comes first is one of the characters.
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                out.extend(chars.next_if_eq(&']'));
            }
            ']' => {
                out.push(c);
                depth = depth.saturating_sub(1);
            }
            _ => out.push(c),
        }
    }
    out
}

fn escape(c: char, in_class: bool, out: &mut String) {
    let members = match c.to_ascii_lowercase() {
        'w' => r"0-9A-Za-z_",
        'd' => "0-9",
        's' => r"\t\n\f\r\x20",
        'b' if !in_class => {
            let boundary = if c == 'b' { r"(?-u:\b)" } else { r"(?-u:\B)" };
            return out.push_str(boundary);
        }
        _ => return out.extend(['\\', c]),
    };
    match (c.is_ascii_uppercase(), in_class) {
        (true, _) => out.extend(["[^", members, "]"]),
        (false, true) => out.push_str(members),
        (false, false) => out.extend(["[", members, "]"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these is what Go says.
    #[test]
    fn classes_are_of_ascii_and_letters_are_whole() {
        for (pattern, text, matches) in [
            (r"^\w+$", "kvm_1", true),
            (r"^\w+$", "é", false),
            (r"^\W$", "é", true),
            (r"^\d$", "٣", false),
            (r"^\D$", "٣", true),
            (r"^\s$", "\u{a0}", false),
            (r"^\s$", "\u{b}", false),
            (r"^\s$", " ", true),
            (r"^\S$", "\u{a0}", true),
            (r"^[\w-]+$", "a-1", true),
            (r"^[\w-]+$", "é", false),
            (r"^[^\w]$", "é", true),
            (r"^[\W\d]+$", "é1", true),
            (r"^[]\d]+$", "]1", true),
            (r"^[^]\d]$", "]", false),
            (r"^[[:alpha:]\d]+$", "a1", true),
            (r"^.$", "é", true),
            (r"^\\w$", r"\w", true),
            (r"^\\\w$", r"\a", true),
            (r"\bkvm\b", "a kvm é", true),
            (r"^é\bk", "ék", true),
            (r"a\Bb", "ab", true),
            (r"^\p{L}$", "é", true),
            (r"(?i)^\w$", "K", true),
        ] {
            let found = regex::Regex::new(&ascii_classes(pattern)).expect(pattern).is_match(text);
            assert_eq!(found, matches, "{pattern} on {text:?}");
        }
        for wrong in [r"\", "[", r"[\b]", r"\q"] {
            assert!(regex::Regex::new(&ascii_classes(wrong)).is_err(), "{wrong}");
        }
    }
}
