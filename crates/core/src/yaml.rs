//! How deep a stranger's YAML nests, known before anybody reads it.
//!
//! The reader of YAML takes time in proportion to the square of the brackets that are open at once: a
//! minute for a megabyte of them. Indentation costs it nothing, and it bounds that itself.

/// So many brackets may be open at once, in what is read: as deep as JSON may be. Far more than any
/// resource, policy or list has, and less than the reader's own bound, which comes too late.
pub const MAX_FLOW_DEPTH: usize = 100;

/// Whether so many brackets are open at once that the text must not be read.
pub fn is_too_deep(text: &[u8]) -> bool {
    flow_depth(text) > MAX_FLOW_DEPTH
}

/// How many brackets are open at most: an upper bound, in time proportional to the text.
///
/// Whether a bracket opens anything depends on what is around it, and only the reader knows that: it may
/// stand in a script. So each one may begin something here, and is followed until it is closed, or until
/// what comes could not be read. Inside of brackets it is plain what a quote or a comment hides; to count a
/// bracket there would let a text close on paper what the reader still holds open. Of all that is followed
/// to the same state only the deepest counts, for they go on alike.
fn flow_depth(text: &[u8]) -> usize {
    // The reader ends where the text does.
    let valid = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let mut most = 0;
    let mut followed = [0_usize; STATES];
    let mut chars = valid.chars().peekable();
    while let Some(one) = chars.next() {
        let mut after = [0; STATES];
        let next = chars.peek().copied().unwrap_or('\n');
        for (state, depth) in ALL.into_iter().zip(followed).filter(|(_, depth)| *depth > 0) {
            let depth = match one {
                '[' | '{' if state.is_open_to_brackets() => depth + 1,
                ']' | '}' if state.is_open_to_brackets() => depth - 1,
                _ => depth,
            };
            if let Some(to) = state.step(one, next) {
                after[to as usize] = after[to as usize].max(depth);
            }
        }
        if matches!(one, '[' | '{') {
            let begun = &mut after[State::Expect as usize];
            *begun = (*begun).max(1);
        }
        most = after.into_iter().fold(most, usize::max);
        followed = after;
    }
    most
}

/// Where the reader may be, inside of brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value may begin.
    Expect,
    /// A value has ended.
    After,
    /// In text without quotes.
    Plain,
    /// After a space in that, where a comment may begin.
    PlainGap,
    Single,
    /// Before the second of two quotes that stand for one.
    SingleEscape,
    Double,
    DoubleEscape,
    /// A comment before a value.
    CommentExpect,
    /// A comment after one.
    CommentAfter,
    /// The name of an anchor or alias.
    Name,
    Tag,
    /// A tag between `<` and `>`, which may hold brackets of its own.
    Verbatim,
}

const ALL: [State; 13] = [
    State::Expect,
    State::After,
    State::Plain,
    State::PlainGap,
    State::Single,
    State::SingleEscape,
    State::Double,
    State::DoubleEscape,
    State::CommentExpect,
    State::CommentAfter,
    State::Name,
    State::Tag,
    State::Verbatim,
];
const STATES: usize = ALL.len();

impl State {
    /// Whether a bracket is one here.
    fn is_open_to_brackets(self) -> bool {
        matches!(self, Self::Expect | Self::After | Self::Plain | Self::PlainGap | Self::Name)
    }

    /// Where `one` leads before `next`; nowhere if the reader gives up.
    fn step(self, one: char, next: char) -> Option<Self> {
        Some(match (self, one) {
            (Self::Expect, _) => return Self::value(one, next),
            (Self::After, _) => return Self::end(one),
            (Self::Plain | Self::PlainGap, ':') if is_blank(next) => Self::Expect,
            (Self::Plain | Self::PlainGap, ',' | '[' | ']' | '{' | '}') | (Self::PlainGap, '#') => {
                return Self::end(one);
            }
            (Self::Plain | Self::PlainGap, _) if is_blank(one) => Self::PlainGap,
            (Self::Plain | Self::PlainGap, _) => Self::Plain,
            (Self::Single, '\'') if next == '\'' => Self::SingleEscape,
            (Self::Single, '\'') | (Self::Double, '"') => Self::After,
            (Self::Single | Self::SingleEscape, _) => Self::Single,
            (Self::Double, '\\') => Self::DoubleEscape,
            (Self::Double | Self::DoubleEscape, _) => Self::Double,
            (Self::CommentExpect, _) if is_break(one) => Self::Expect,
            (Self::CommentAfter, _) if is_break(one) => Self::After,
            (Self::Name, _) if !(one.is_ascii_alphanumeric() || matches!(one, '_' | '-')) => {
                return Self::value(one, next);
            }
            (Self::Tag, _) if one == ',' || is_blank(one) => Self::Expect,
            (Self::Verbatim, '>') => Self::Tag,
            (Self::CommentExpect | Self::CommentAfter, _)
            | (Self::Name | Self::Tag | Self::Verbatim, _) => self,
        })
    }

    fn value(one: char, next: char) -> Option<Self> {
        Some(match one {
            ']' | '}' => Self::After,
            '[' | '{' | ',' | ':' | '?' => Self::Expect,
            '-' if is_blank(next) => Self::Expect,
            '#' => Self::CommentExpect,
            '\'' => Self::Single,
            '"' => Self::Double,
            '&' | '*' => Self::Name,
            '!' if next == '<' => Self::Verbatim,
            '!' => Self::Tag,
            '|' | '>' | '%' | '@' | '`' => return None,
            _ if is_blank(one) => Self::Expect,
            _ => Self::Plain,
        })
    }

    fn end(one: char) -> Option<Self> {
        match one {
            ']' | '}' => Some(Self::After),
            ',' | ':' => Some(Self::Expect),
            '#' => Some(Self::CommentAfter),
            _ => is_blank(one).then_some(Self::After),
        }
    }
}

/// As YAML 1.1 has it.
fn is_break(one: char) -> bool {
    matches!(one, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_blank(one: char) -> bool {
    matches!(one, ' ' | '\t') || is_break(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_that_are_open_at_once_are_counted_whatever_hides_others() {
        for (text, depth) in [
            ("", 0),
            ("a: [b, {c: d}]\ne: {}\n", 2),
            ("{\"a\": [1, {\"b\": \"]\"}, []]}", 3),
            // None of these closes anything.
            ("[\"]\", [\"]\", [']', ['it''s]', [", 5),
            ("[\"\\\"]\", [\"\\\\\", [", 3),
            ("[ # ]\n[ a # ]\n, [", 3),
            ("[ # ]\u{85}[ # ]\u{2028}[", 3),
            ("[!<]> [!a,[!,[&a [", 5),
            ("[[a#], [a\"], [b']]", 2),
            // What is hidden opens nothing either, and neither does what could not be read.
            ("[\"[[\", '[', a # [\n]", 2),
            ("script: |\n  echo \"\\033[31mred\" \"\\033[32mgreen\" \"\\033[0m\"\n", 1),
            ("script: |\n  x[a[b[c\n", 1),
        ] {
            assert_eq!(flow_depth(text.as_bytes()), depth, "{text}");
        }
        // What comes before the end of the text is read.
        assert_eq!(flow_depth(b"[[\xff]"), 2);
    }

    #[test]
    fn a_deep_text_is_found_soon_and_one_in_use_is_read() {
        for text in
            ["{\"a\":", "[", "{\"]\":", "- [\n", "[ # ]\n", "{'}': [", "{a: ", "[!<]> ", "[!a,"]
        {
            assert!(is_too_deep(text.repeat(60_000).as_bytes()), "{text}");
        }
        let deep = |depth| format!("{}1{}", "{\"a\":[".repeat(depth / 2), "]}".repeat(depth / 2));
        assert!(!is_too_deep(deep(MAX_FLOW_DEPTH).as_bytes()));
        assert!(is_too_deep(deep(MAX_FLOW_DEPTH + 2).as_bytes()));
        let long = "{\"a\": [\"[\", {\"b{\": \"it's\"}], 'c[': {}}\n---\n".repeat(2_000);
        assert!(!is_too_deep(long.as_bytes()));
        let script = "      printf '\\033[1m[%s] \"%s\\n' \"${x%[*}\" # [\n".repeat(2_000);
        assert!(!is_too_deep(format!("script: |\n{script}").as_bytes()));
    }
}
