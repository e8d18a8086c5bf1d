//! Words, quotes and variables.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::MAX_BYTES;

/// So deep may values stand in one another, `${A:-${B:-…}}`. People write two; each costs a frame of the stack and
/// another look at the rest, so that a line of a megabyte would end the program.
const MAX_DEPTH: usize = 32;
/// So many bytes may one word become, as many as a Containerfile has: a few lines of `ENV A=$A$A$A` would take all
/// memory.
const MAX_VALUE: usize = MAX_BYTES;
/// So many bytes may come of all words of one stage.
const MAX_ALL: usize = 16 * MAX_VALUE;

/// What came of the words of a stage so far.
#[derive(Debug, Default)]
pub(super) struct Spent(usize);

impl Spent {
    /// Counts so many bytes more.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.saturating_add(bytes);
        match self.0 > MAX_ALL {
            true => Err(format!(
                "with its variables the stage has more than {MAX_ALL} bytes up to here; use values that are less long"
            )),
            false => Ok(()),
        }
    }
}

/// Looks variables up in a map.
pub(super) fn of<'a>(
    values: &'a BTreeMap<String, String>,
) -> impl Fn(&str) -> Option<&'a str> + 'a {
    |name| values.get(name).map(String::as_str)
}

/// Splits a text into words with their offsets; quotes stay, and hold words together.
pub(super) fn split(text: &str, escape: char) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let (mut start, mut quote, mut escaped) = (None, None, false);
    for (at, c) in text.char_indices() {
        let space = quote.is_none() && !escaped && c.is_whitespace();
        match (space, start) {
            (true, Some(begin)) => {
                words.push((begin, &text[begin..at]));
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
        match quote {
            _ if escaped => escaped = false,
            Some('\'') if c != '\'' => {}
            _ if c == escape => escaped = true,
            None if c == '"' || c == '\'' => quote = Some(c),
            Some(open) if c == open => quote = None,
            _ => {}
        }
    }
    words.extend(start.map(|begin| (begin, &text[begin..])));
    words
}

/// Takes quotes away and puts values in place of variables, as a shell would do with one word.
/// What is not set is empty.
pub(super) fn expand<'a>(
    word: &str,
    escape: char,
    values: &dyn Fn(&str) -> Option<&'a str>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = word.char_indices().peekable();
    let mut double = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if !double => loop {
                match chars.next() {
                    Some((_, '\'')) => break,
                    Some((_, c)) => out.push(c),
                    None => return Err("a quote ' is never closed".to_owned()),
                }
            },
            '"' => double = !double,
            c if c == escape => match chars.next() {
                // In double quotes only what would mean something loses its escape.
                Some((_, next)) if !double || "\"$".contains(next) || next == escape => {
                    out.push(next);
                }
                Some((_, next)) => out.extend([c, next]),
                None => out.push(c),
            },
            '$' => {
                let rest = &word[at + 1..];
                let taken = variable(rest, escape, values, &mut out)?;
                if out.len() > MAX_VALUE {
                    return Err(format!(
                        "with its variables a value has more than {MAX_VALUE} bytes; use values that are less long"
                    ));
                }
                while chars.peek().is_some_and(|(next, _)| *next < at + 1 + taken) {
                    chars.next();
                }
            }
            c => out.push(c),
        }
    }
    if double {
        return Err("a quote \" is never closed".to_owned());
    }
    Ok(out)
}

/// Puts the value of what follows a `$` into `out`, and says how many bytes that was.
fn variable<'a>(
    rest: &str,
    escape: char,
    values: &dyn Fn(&str) -> Option<&'a str>,
    out: &mut String,
) -> Result<usize, String> {
    let name_of = |text: &str| -> usize {
        text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
    };
    let Some(inner) = rest.strip_prefix('{') else {
        let end = name_of(rest);
        match end {
            0 => out.push('$'),
            _ => out.push_str(values(&rest[..end]).unwrap_or_default()),
        }
        return Ok(end);
    };
    let end = name_of(inner);
    let (name, after) = inner.split_at(end);
    let value = values(name);
    let close = closing(after)?.ok_or_else(|| format!("${{{name} is never closed with }}"))?;
    let (operator, other) = (&after[..close], 1 + end + close + 1);
    if name.is_empty() {
        return Err("${} names no variable".to_owned());
    }
    let filled = value.filter(|value| !value.is_empty());
    let chosen = match operator.split_at_checked(2) {
        _ if operator.is_empty() => Cow::Borrowed(value.unwrap_or_default()),
        Some((":-", word)) => match filled {
            Some(value) => Cow::Borrowed(value),
            None => expand(word, escape, values)?.into(),
        },
        Some((":+", word)) => match filled {
            Some(_) => expand(word, escape, values)?.into(),
            None => Cow::Borrowed(""),
        },
        _ => match (operator.as_bytes()[0], value) {
            (b'-', None) => expand(&operator[1..], escape, values)?.into(),
            (b'-', Some(value)) => Cow::Borrowed(value),
            (b'+', Some(_)) => expand(&operator[1..], escape, values)?.into(),
            (b'+', None) => Cow::Borrowed(""),
            _ => {
                return Err(format!(
                    "${{{name}{operator}}} is not understood; write ${{{name}}}, ${{{name}:-other}} or ${{{name}:+other}}"
                ));
            }
        },
    };
    out.push_str(&chosen);
    Ok(other)
}

/// Where the brace closes, inner ones skipped. What stands in a value is within its braces, so this is what keeps
/// [`expand`] from calling itself too often.
fn closing(text: &str) -> Result<Option<usize>, String> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' if depth == MAX_DEPTH => {
                return Err(format!(
                    "braces stand in one another more than {MAX_DEPTH} deep; give the inner ones a name with ARG"
                ));
            }
            '{' => depth += 1,
            '}' if depth == 0 => return Ok(Some(at)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let values = BTreeMap::from([
            ("A".to_owned(), "one".to_owned()),
            ("EMPTY".to_owned(), String::new()),
        ]);
        for (word, expected) in [
            ("plain", "plain"),
            ("$A/$B", "one/"),
            ("${A}x", "onex"),
            ("\"a $A\"", "a one"),
            ("'$A'", "$A"),
            ("\\$A", "$A"),
            ("${B:-two}", "two"),
            ("${EMPTY:-two}", "two"),
            ("${EMPTY-two}", ""),
            ("${B:-${A}}", "one"),
            ("${A:+set}${B:+set}", "set"),
            ("$", "$"),
            ("\"a\\nb\"", "a\\nb"),
        ] {
            assert_eq!(expand(word, '\\', &of(&values)).as_deref(), Ok(expected), "{word}");
        }
        for bad in ["'a", "\"a", "${A", "${}", "${A?x}"] {
            assert!(expand(bad, '\\', &of(&values)).is_err(), "{bad}");
        }
        let split: Vec<&str> =
            split("a  \"b c\" 'd e'f g\\ h", '\\').into_iter().map(|(_, word)| word).collect();
        assert_eq!(split, ["a", "\"b c\"", "'d e'f", "g\\ h"]);
    }
    /// Of a megabyte, which is what a Containerfile may have.
    #[test]
    fn values_in_values_have_a_bound() {
        let nested =
            |depth: usize, end: &str| format!("{}x{}", "${A:-".repeat(depth), end.repeat(depth));
        let values = BTreeMap::new();
        assert_eq!(expand(&nested(MAX_DEPTH + 1, "}"), '\\', &of(&values)).as_deref(), Ok("x"));
        for (depth, end) in [(MAX_DEPTH + 2, "}"), (150_000, "}"), (150_000, "")] {
            let error = expand(&nested(depth, end), '\\', &of(&values)).unwrap_err();
            assert!(error.contains("32 deep"), "{depth}: {error}");
        }
        // Side by side there may be any number.
        let many = "${A:-${B:-x}}".repeat(10_000);
        assert_eq!(expand(&many, '\\', &of(&values)).map(|text| text.len()), Ok(10_000));
    }

    #[test]
    fn what_comes_of_a_word_has_a_bound() {
        let values = BTreeMap::from([("A".to_owned(), "x".repeat(1024))]);
        let length = |word: &str| expand(word, '\\', &of(&values)).map(|text| text.len());
        assert_eq!(length(&"$A".repeat(1024)), Ok(MAX_VALUE));
        for word in ["$A", "${A}", "${B:-$A}", "${A:+$A}", "${B-${A}}"] {
            let error = length(&word.repeat(1025)).unwrap_err();
            assert!(error.contains("1048576 bytes"), "{word}: {error}");
        }
        let mut spent = Spent::default();
        assert!((0..16).all(|_| spent.add(MAX_VALUE).is_ok()));
        assert!(spent.add(1).is_err() && spent.add(usize::MAX).is_err());
    }
}
