//! The boot parameters.

use std::collections::BTreeMap;

use super::{Feature, Instance};

/// The parameters in their order, each with its value if it has one. Space inside double quotes
/// does not separate, quotes are taken off, and what follows a bare `--` is for the first
/// program and no parameter.
pub fn parse(line: &str) -> Vec<(String, Option<String>)> {
    words(line).into_iter().take_while(|word| word != "--").map(|word| parameter(&word)).collect()
}

/// The words as the kernel separates them, quotes still in place.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in line.chars() {
        match c {
            c if c.is_ascii_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            '\0' => break,
            c => {
                quoted ^= c == '"';
                word.push(c);
            }
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// `name`, `name=value`, `name="value"` or `"name=value"`: the first `=` separates, and quotes
/// are only taken off around the whole or around the value, as the kernel does it.
fn parameter(word: &str) -> (String, Option<String>) {
    let (word, whole) = match word.strip_prefix('"') {
        Some(rest) => (rest, true),
        None => (word, false),
    };
    let word = if whole { word.strip_suffix('"').unwrap_or(word) } else { word };
    match word.split_once('=') {
        None => (word.to_owned(), None),
        Some((name, value)) => {
            let value = match value.strip_prefix('"') {
                Some(rest) => rest.strip_suffix('"').unwrap_or(rest),
                None => value,
            };
            (name.to_owned(), Some(value.to_owned()))
        }
    }
}

/// Every occurrence as an instance, and the last value of each as an attribute. A parameter
/// without a value is an attribute that is empty.
pub(crate) fn feature(line: &str, source: &str) -> Feature {
    let parameters = parse(line);
    let mut attributes = BTreeMap::new();
    let mut instances = Vec::with_capacity(parameters.len());
    for (name, value) in parameters {
        let mut instance = Instance::from([("name".to_owned(), name.clone())]);
        if let Some(value) = &value {
            instance.insert("value".to_owned(), value.clone());
        }
        instances.push(instance);
        attributes.insert(name, value.unwrap_or_default());
    }
    Feature {
        attributes: Some(attributes),
        instances: Some(instances),
        source: source.to_owned(),
        ..Feature::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Vec<(String, Option<String>)> {
        parse(line)
    }

    fn pair(name: &str, value: Option<&str>) -> (String, Option<String>) {
        (name.to_owned(), value.map(str::to_owned))
    }

    #[test]
    fn quotes_hold_words_together_and_two_dashes_end_it() {
        let line = "quiet root=/dev/vda1 dyndbg=\"file a +p; file b +p\" \"mode=x y\" a=b=c  -- -v root=/x";
        assert_eq!(
            parsed(line),
            [
                pair("quiet", None),
                pair("root", Some("/dev/vda1")),
                pair("dyndbg", Some("file a +p; file b +p")),
                pair("mode", Some("x y")),
                pair("a", Some("b=c")),
            ]
        );
        // Inside quotes, and as part of a word, they are text.
        assert_eq!(parsed("a=\" -- \" --b"), [pair("a", Some(" -- ")), pair("--b", None)]);
        assert_eq!(parsed("a=\"never closed"), [pair("a", Some("never closed"))]);
        assert_eq!(parsed(" \n\t "), []);
        assert_eq!(parsed("a=\0b"), [pair("a", Some(""))]);
        assert_eq!(parsed("\""), [pair("", None)]);
    }

    #[test]
    fn every_occurrence_is_kept() {
        let feature = feature("console=tty0 console=ttyS0,115200n8 quiet", "/proc/cmdline");
        let instances = feature.instances.unwrap();
        assert_eq!(instances.len(), 3);
        assert_eq!(instances[0]["value"], "tty0");
        assert!(!instances[2].contains_key("value"));
        let attributes = feature.attributes.unwrap();
        assert_eq!(attributes["console"], "ttyS0,115200n8");
        assert_eq!(attributes["quiet"], "");
    }
}
