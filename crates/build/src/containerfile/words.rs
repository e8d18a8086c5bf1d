//! Words, quotes and variables.

use std::collections::BTreeMap;

/// So deep may values stand in one another, `${A:-${B:-…}}`. People write two; each costs a frame of the stack and
/// another look at the rest, so that a line of a megabyte would end the program.
const MAX_DEPTH: usize = 32;

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
pub(super) fn expand(
    word: &str,
    escape: char,
    values: &BTreeMap<String, String>,
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
fn variable(
    rest: &str,
    escape: char,
    values: &BTreeMap<String, String>,
    out: &mut String,
) -> Result<usize, String> {
    let name_of = |text: &str| -> usize {
        text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
    };
    let Some(inner) = rest.strip_prefix('{') else {
        let end = name_of(rest);
        match end {
            0 => out.push('$'),
            _ => out.push_str(values.get(&rest[..end]).map_or("", String::as_str)),
        }
        return Ok(end);
    };
    let end = name_of(inner);
    let (name, after) = inner.split_at(end);
    let value = values.get(name);
    let close = closing(after)?.ok_or_else(|| format!("${{{name} is never closed with }}"))?;
    let (operator, other) = (&after[..close], 1 + end + close + 1);
    if name.is_empty() {
        return Err("${} names no variable".to_owned());
    }
    let filled = value.filter(|value| !value.is_empty());
    let chosen = match operator.split_at_checked(2) {
        _ if operator.is_empty() => value.cloned().unwrap_or_default(),
        Some((":-", word)) => match filled {
            Some(value) => value.clone(),
            None => expand(word, escape, values)?,
        },
        Some((":+", word)) => match filled {
            Some(_) => expand(word, escape, values)?,
            None => String::new(),
        },
        _ => match (operator.as_bytes()[0], value) {
            (b'-', None) => expand(&operator[1..], escape, values)?,
            (b'-', Some(value)) => value.clone(),
            (b'+', Some(_)) => expand(&operator[1..], escape, values)?,
            (b'+', None) => String::new(),
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
            assert_eq!(expand(word, '\\', &values).as_deref(), Ok(expected), "{word}");
        }
        for bad in ["'a", "\"a", "${A", "${}", "${A?x}"] {
            assert!(expand(bad, '\\', &values).is_err(), "{bad}");
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
        assert_eq!(expand(&nested(MAX_DEPTH + 1, "}"), '\\', &values).as_deref(), Ok("x"));
        for (depth, end) in [(MAX_DEPTH + 2, "}"), (150_000, "}"), (150_000, "")] {
            let error = expand(&nested(depth, end), '\\', &values).unwrap_err();
            assert!(error.contains("32 deep"), "{depth}: {error}");
        }
        // Side by side there may be any number.
        let many = "${A:-${B:-x}}".repeat(10_000);
        assert_eq!(expand(&many, '\\', &values).map(|text| text.len()), Ok(10_000));
    }
}
