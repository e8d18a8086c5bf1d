//! What the engine must not be given: templates may be a stranger's, and it reads brackets inside
//! brackets ever more slowly and runs functions that call themselves until the stack is full. OPA
//! takes neither, so no Rego that works there is lost.

use std::collections::{BTreeMap, BTreeSet};

/// Brackets inside brackets. The shipped template has 5; hundreds the engine did not read in a minute.
const MAX_DEPTH: usize = 12;

/// Words that begin a line of no rule.
const KEYWORDS: [&str; 4] = ["package", "import", "default", "else"];

/// A function or rule: its module and its name.
type Name = (usize, String);

/// Functions that make much out of little, in one step that no clock interrupts: a number that a
/// stranger wrote into a statement would take all memory there is.
const UNBOUNDED: [&str; 3] = ["numbers.range", "numbers.range_step", "bits.lsh"];

/// Digits of a width in a format: what is asked for is made, and nobody asks for a text of 4 GB.
const MAX_DIGITS: usize = 3;

/// Why Rego is not evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// Too deep.
    #[error("it has brackets inside brackets, more than {MAX_DEPTH} deep")]
    Deep,
    /// It would never end.
    #[error("{0} calls itself, which Rego does not have")]
    Recursive(String),
    /// It might take all memory.
    #[error("it has {0}, which has no bound and is not taken")]
    Unbounded(&'static str),
    /// The same, or the engine would panic.
    #[error("it has {0:?}: sprintf takes at most {MAX_DIGITS} digits for a width, of 0 to 9")]
    Width(String),
}

/// Whether a module is without functions that have no bound, called or named, and without formats
/// that have none. A format that is put together while it is evaluated is not seen here.
pub(crate) fn check_bounded(text: &str) -> Result<(), Unsafe> {
    let words = words(text)?;
    let named = |name: &&&str| words.iter().any(|word| word.text == ***name);
    if let Some(name) = UNBOUNDED.iter().find(|name| named(name)) {
        return Err(Unsafe::Unbounded(name));
    }
    match strings(text).iter().find_map(|string| wide(string)) {
        Some(width) => Err(Unsafe::Width(width.to_owned())),
        None => Ok(()),
    }
}

/// The first width in a format that the engine must not be given. It takes every numeric letter for
/// a digit, and `%%` for no format.
fn wide(format: &str) -> Option<&str> {
    let mut rest = format;
    while let Some(start) = rest.find('%') {
        let verb = &rest[start + 1..];
        let digits = verb.strip_prefix('.').unwrap_or(verb);
        let length = digits.find(|c: char| !c.is_numeric()).unwrap_or(digits.len());
        let (digits, after) = digits.split_at(length);
        if digits.len() > MAX_DIGITS || !digits.is_ascii() {
            return Some(&rest[start..rest.len() - after.len()]);
        }
        rest = after.strip_prefix('%').unwrap_or(after);
    }
    None
}

/// The strings of a module, as they are meant.
fn strings(text: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find(['"', '`', '#']) {
        rest = &rest[start..];
        let (string, after) = match rest.as_bytes()[0] {
            b'#' => ("", &rest[rest.find('\n').unwrap_or(rest.len())..]),
            quote => rest.split_at(quoted(rest, char::from(quote))),
        };
        found.extend(unquoted(string));
        rest = after;
    }
    found
}

/// What is between the quotes; none where it is no string.
fn unquoted(written: &str) -> Option<String> {
    match written.strip_prefix('`') {
        Some(raw) => Some(raw.trim_end_matches('`').to_owned()),
        None => serde_json::from_str(written).ok(),
    }
}

/// Whether these modules can be given to the engine.
pub(crate) fn check(modules: &[&str]) -> Result<(), Unsafe> {
    let mut packages = Vec::new();
    let mut calls: BTreeMap<Name, BTreeSet<String>> = BTreeMap::new();
    for (n, text) in modules.iter().enumerate() {
        let words = words(text)?;
        let package = words.iter().skip_while(|word| word.text != "package").nth(1);
        let last = package.and_then(|word| word.text.rsplit('.').next());
        packages.push(last.unwrap_or_default().to_owned());
        let aliases = aliases(&words);
        let mut current = None;
        for word in &words {
            if word.begins && !KEYWORDS.contains(&word.text.as_str()) {
                let name = word.text.split('.').next().unwrap_or_default();
                current = Some((n, name.to_owned()));
            } else if let Some(name) = current.as_ref().filter(|_| word.is_call) {
                calls.entry(name.clone()).or_default().insert(unaliased(&word.text, &aliases));
            }
        }
    }
    match calls.keys().find(|name| reaches_itself(name, &calls, &packages)) {
        Some((_, name)) => Err(Unsafe::Recursive(name.clone())),
        None => Ok(()),
    }
}

/// What modules are called where they are imported under another name.
fn aliases(words: &[Word]) -> BTreeMap<&str, &str> {
    let imports = words.windows(4).filter(|w| w[0].text == "import" && w[2].text == "as");
    imports.map(|w| (w[3].text.as_str(), w[1].text.as_str())).collect()
}

fn unaliased(called: &str, aliases: &BTreeMap<&str, &str>) -> String {
    let (first, rest) = called.split_at(called.find('.').unwrap_or(called.len()));
    match aliases.get(first) {
        Some(meant) => format!("{meant}{rest}"),
        None => called.to_owned(),
    }
}

fn reaches_itself(
    start: &Name,
    calls: &BTreeMap<Name, BTreeSet<String>>,
    packages: &[String],
) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![start.clone()];
    while let Some(name) = open.pop() {
        for called in calls.get(&name).into_iter().flatten() {
            for next in meant(called, name.0, packages) {
                if next == *start {
                    return true;
                }
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    false
}

/// What a call in a module may mean. By another name than its package's a module may be imported
/// too, so then it may be any but this one.
fn meant(called: &str, module: usize, packages: &[String]) -> Vec<Name> {
    let Some((path, name)) = called.rsplit_once('.') else {
        return vec![(module, called.to_owned())];
    };
    let package = path.rsplit('.').next().unwrap_or_default();
    let named = |n: &usize| packages[*n] == package;
    let known = (0..packages.len()).any(|n| named(&n));
    let may = |n: &usize| if known { named(n) } else { *n != module };
    (0..packages.len()).filter(may).map(|n| (n, name.to_owned())).collect()
}

struct Word {
    text: String,
    /// It stands where a rule begins.
    begins: bool,
    is_call: bool,
}

/// The words of a module outside of strings and comments.
fn words(text: &str) -> Result<Vec<Word>, Unsafe> {
    let (mut found, mut depth, mut fresh, mut last) = (Vec::new(), 0_usize, true, '}');
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '`' => quoted(rest, c),
            _ if c.is_alphabetic() || c == '_' => {
                let (name, end) = reference(rest);
                let after = &rest[end..];
                // After `=` a line goes on with what is before it.
                let begins =
                    fresh && depth == 0 && (last.is_alphanumeric() || "}])_\"`".contains(last));
                let is_call = after.trim_start().starts_with('(');
                found.push(Word { text: name, begins, is_call });
                end
            }
            _ => c.len_utf8(),
        };
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(Unsafe::Deep);
        }
        let (here, after) = rest.split_at(length);
        match c {
            '\n' => fresh = true,
            '#' => {}
            _ if c.is_whitespace() => {}
            _ => {
                fresh = false;
                last = here.chars().next_back().unwrap_or(c);
            }
        }
        rest = after;
    }
    Ok(found)
}

/// The reference that `text` begins with, and its length. `a["b"].c` is `a.b.c`: what is called so is
/// the same function.
fn reference(text: &str) -> (String, usize) {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let (mut name, mut end) = (String::new(), 0);
    loop {
        let plain = &text[end..];
        let length = plain.find(|c| !word(c)).unwrap_or(plain.len());
        name.push_str(&plain[..length]);
        end += length;
        let Some((member, length)) = member(&text[end..]) else { return (name, end) };
        name.push('.');
        name.push_str(&member);
        end += length;
    }
}

/// The name in `["name"]` that `text` begins with, and the length of all of it.
fn member(text: &str) -> Option<(String, usize)> {
    let skip = |text: &str| text.len() - text.trim_start().len();
    let mut at = text.strip_prefix('[').map(|_| 1)?;
    at += skip(&text[at..]);
    let quote = text[at..].chars().next().filter(|c| "\"`".contains(*c))?;
    let written = &text[at..at + quoted(&text[at..], quote)];
    at += written.len();
    at += skip(&text[at..]);
    text[at..].strip_prefix(']')?;
    Some((unquoted(written)?, at + 1))
}

/// The length of a string with its quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (n, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            _ if c == quote => return n + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_itself_is_found_whichever_way_it_does() {
        let recursive = |modules: &[&str]| matches!(check(modules), Err(Unsafe::Recursive(_)));
        assert!(recursive(&["package a\nf(x) = y { y := f(x + 1) }"]));
        assert!(recursive(&["package a\nf(x) = y { y := g (x) }\ng(x) = f(x) { true }"]));
        assert!(recursive(&["package a\nf(x) = y {\n  y := 1\n}\nelse = f(2) { true }"]));
        assert!(recursive(&["package a\nf(x) =\n  f(x) { true }"]));
        assert!(recursive(&["package a\nf(x) = y { y := data.a.f(x) }"]));
        assert!(recursive(&[
            "package lib.b\nimport data.a\ng(x) = a.f(x) { true }",
            "package a\nimport data.lib.b as c\nf(x) = c.g(x) { true }",
        ]));
        // Under another name, and with its name in brackets.
        for call in
            ["data.a[\"f\"](x)", "data[ \"a\" ].f(x)", "data.a[`f`](x)", "data.a[\"\\u0066\"](x)"]
        {
            assert!(recursive(&[&format!("package a\nf(x) = y {{ y := {call} }}")]), "{call}");
        }
        assert!(recursive(&["package a\nimport data.a as b\nf(x) = y { y := b.f(x) }"]));
        assert!(recursive(&["package a\nimport data.a.f as g\nf(x) = y { y := g(x) }"]));
        assert!(!recursive(&["package a\nf(x) = y { y := input.b[\"f\"]; z := input[x] }"]));
        assert!(!recursive(&["package a\nf(x) = y { y := g(x) }\ng(x) = 1 { true }\nv { f(1) }"]));
        assert!(!recursive(&["package a\nf(x) = \"f(x)\" { true } # f(x)\ng = `f(` { f(1) }"]));
        assert!(!recursive(&[
            "package lib.b\nf(x) = 1 { true }",
            "package a\nf(x) = b.f(x) { true }"
        ]));
    }

    #[test]
    fn functions_without_a_bound_are_found_however_they_are_written() {
        for call in ["numbers.range(1, 2)", "numbers[\"range\"](1, 2)", "bits[`lsh`](1, 2)"] {
            let text = format!("package a\nx = y {{ y := {call} }}");
            assert!(matches!(check_bounded(&text), Err(Unsafe::Unbounded(_))), "{call}");
        }
        assert_eq!(check_bounded("package a\nx = y { y := input.numbers[\"range\"] }"), Ok(()));
    }

    #[test]
    fn formats_without_a_bound_are_found_however_they_are_written() {
        for format in [
            r#""%½d""#,
            r#""a%1½d""#,
            r#""%4000d""#,
            r#""%.4000f""#,
            r#""%%%4000d""#,
            r#""%d%4000d""#,
            r#""\u00254000d""#,
            r##""# \" %4000d""##,
            "`%4000d`",
        ] {
            let text = format!("package a # \"\nx = y {{ y := sprintf({format}, [1]) }}");
            assert!(matches!(check_bounded(&text), Err(Unsafe::Width(_))), "{format}");
        }
        for format in [r#""%d %5d %05d %.2f""#, r#""100%""#, r#""%%4000""#, r#""½ 4000""#, "`%v`"]
        {
            let text = format!("package a\nx = y {{ y := sprintf({format}, [1]) }} # \"%4000d\"");
            assert_eq!(check_bounded(&text), Ok(()), "{format}");
        }
    }

    #[test]
    fn brackets_inside_brackets_have_a_bound() {
        let nested = |n: usize| format!("package a\nx = {}{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(check(&[&nested(MAX_DEPTH)]), Ok(()));
        assert_eq!(check(&[&nested(MAX_DEPTH + 1)]), Err(Unsafe::Deep));
        assert_eq!(check(&["package a\nx = \"[[[[[[[[[[[[[[[[[[[[[[[[\""]), Ok(()));
        for text in ["", "\"", "`", "\"\\", "é(", "#", "package", "package a.", "}}}f("] {
            assert_eq!(check(&[text]), Ok(()), "{text}");
        }
    }
}
