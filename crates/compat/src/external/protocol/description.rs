//! What a plugin needs before it can answer: `<plugin> describe`.

use portolan_host::facts;
use serde::Deserialize;

use super::{AnswerError, MAX_ITEMS, document, fields, short};
use crate::external::order::PLUGIN_FACTS;
use crate::json::{Spanned, Value};
use crate::plugins::builtin;

/// Boot parameters can hold secrets; the built-in plugin answers for single ones.
const WITHHELD: &str = "kernel.cmdline";

/// What a plugin needs before it can answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Description {
    /// What the plugin calls itself, for logs.
    pub name: String,
    /// The plugin's own version, for logs.
    pub version: String,
    /// Features of the host that it wants to see.
    pub facts: Vec<String>,
    /// Names of plugins whose facts it wants to see.
    pub after: Vec<String>,
    /// Built-in plugins whose answers it wants, with what they are to be asked.
    pub asks: Vec<(String, Option<Spanned>)>,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    facts: Vec<String>,
}

/// Reads a description.
pub fn describe(stdout: &[u8]) -> Result<Description, AnswerError> {
    let (spanned, value) = document(stdout)?;
    let written: Fields = fields(value)?;
    let (name, version) = (short(&written.name), short(&written.version));
    let mut description = Description { name, version, ..Description::default() };
    if written.facts.len() > MAX_ITEMS {
        return Err(AnswerError::TooMany { what: "facts" });
    }
    for name in written.facts {
        let refuse = |why| AnswerError::Fact { name: short(&name), why };
        match (name.strip_prefix(PLUGIN_FACTS), facts::name(&name)) {
            (Some(plugin), _) => description.after.push(plugin.to_owned()),
            (None, Some(known)) if known.name == WITHHELD => {
                return Err(refuse("is given to nobody; ask the built-in kernelCmdline"));
            }
            (None, Some(known)) => description.facts.push(known.name.to_owned()),
            (None, None) => return Err(refuse("is no fact")),
        }
    }
    description.asks = asks(&spanned)?;
    Ok(description)
}

fn asks(document: &Spanned) -> Result<Vec<(String, Option<Spanned>)>, AnswerError> {
    let Some(list) = document.get("asks") else { return Ok(Vec::new()) };
    let wrong = || AnswerError::Fields("`asks` is a list of {\"plugin\", \"data\"}".to_owned());
    let Value::Array(items) = &list.value.value else { return Err(wrong()) };
    if items.len() > MAX_ITEMS {
        return Err(AnswerError::TooMany { what: "questions" });
    }
    let mut asks = Vec::with_capacity(items.len());
    for item in items {
        let plugin = item.get("plugin").ok_or_else(wrong)?;
        let Value::String(plugin) = &plugin.value.value else { return Err(wrong()) };
        if !builtin::is(plugin) {
            return Err(AnswerError::Ask { name: short(plugin) });
        }
        asks.push((plugin.clone(), item.get("data").map(|data| data.value.clone())));
    }
    Ok(asks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_facts_plugins_and_questions() {
        let text = br#"{"apiVersion": "imagecompat/v1", "name": "x", "version": "1.2",
            "facts": ["kernel.version", "PCI.device", "plugin/other"],
            "asks": [{"plugin": "kernelModules", "data": {"vfio": {}}}, {"plugin": "cpu"}],
            "dataSchema": {"type": "object"}}"#;
        let found = describe(text).unwrap();
        assert_eq!(found.facts, ["kernel.version", "pci.device"]);
        assert_eq!(found.after, ["other"]);
        assert_eq!((found.name.as_str(), found.version.as_str()), ("x", "1.2"));
        let asked: Vec<_> =
            found.asks.iter().map(|(name, data)| (name.as_str(), data.is_some())).collect();
        assert_eq!(asked, [("kernelModules", true), ("cpu", false)]);
        assert_eq!(
            describe(br#"{"apiVersion": "imagecompat/v1"}"#).unwrap(),
            Description::default()
        );
    }

    #[test]
    fn what_is_no_description_is_told() {
        let many = format!(
            r#"{{"apiVersion": "imagecompat/v1", "facts": [{}]}}"#,
            vec!["\"cpu.model\""; 65].join(",")
        );
        for (text, expected) in [
            ("", "nothing on stdout"),
            (" \n", "nothing on stdout"),
            ("hello", "no JSON"),
            ("{\"apiVersion\": \"imagecompat/v1\", \"apiVersion\": 1}", "twice"),
            ("{}", "`apiVersion` is missing"),
            (r#"{"apiVersion": "imagecompat/v2"}"#, "speaks \"imagecompat/v2\""),
            (r#"{"apiVersion": "imagecompat/v1", "facts": 1}"#, "fields"),
            (r#"{"apiVersion": "imagecompat/v1", "facts": ["cpu.colour"]}"#, "is no fact"),
            (r#"{"apiVersion": "imagecompat/v1", "facts": ["kernel.cmdline"]}"#, "given to nobody"),
            (r#"{"apiVersion": "imagecompat/v1", "asks": [{}]}"#, "`asks` is a list"),
            (r#"{"apiVersion": "imagecompat/v1", "asks": {}}"#, "`asks` is a list"),
            (r#"{"apiVersion": "imagecompat/v1", "asks": [{"plugin": "x"}]}"#, "not built in"),
            (&many, "more than 64 facts"),
        ] {
            let message = describe(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
