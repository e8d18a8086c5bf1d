//! From a tree to rules, with everything that is wrong said before a host is looked at.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Rule, Rules, Set, Term, tree};
use crate::expression::{Expression, ExpressionError, Op};
use crate::json::{self, ParseJsonError};

/// The version that is read.
const VERSION: &str = "v1alpha1";
/// The sets, rules and alternatives of one document: each is a line of the report.
const MAX_PARTS: usize = 1_000;
/// The terms of one document.
const MAX_TERMS: usize = 10_000;
/// The patterns of one document. Each may take a quarter of a megabyte and is tried on every name
/// of a feature, of which kernels have ten thousand; documents in use have a handful.
const MAX_PATTERNS: usize = 100;
/// The expressions over names of one document: each goes through all names of its feature.
const MAX_NAMES: usize = 1_000;
/// What is said about one document; the rest is counted.
const MAX_WARNINGS: usize = 100;
/// Characters of a stranger's key in a path. A path stands before everything below it, so a long
/// key would be repeated thousands of times.
const MAX_KEY: usize = 80;

/// Why a document is no set of rules.
#[derive(Debug, thiserror::Error)]
pub enum ReadNfdError {
    /// Larger than any such document.
    #[error("the rules have {size} bytes, more than the {} that are read", json::MAX_BYTES)]
    TooLarge {
        /// How many.
        size: usize,
    },
    /// Not UTF-8.
    #[error("the rules are not text")]
    NotText,
    /// Nested deeper than any such document.
    #[error("the rules nest deeper than {} levels", json::MAX_DEPTH)]
    TooDeep,
    /// Not JSON.
    #[error("the rules are not valid JSON")]
    Json(#[source] ParseJsonError),
    /// Not YAML, or more of it than is read.
    #[error("the rules are not valid YAML")]
    Yaml(#[source] serde_yaml_ng::Error),
    /// Another version.
    #[error("the rules say they are version {found:?}; {VERSION} is known")]
    Version {
        /// As written.
        found: String,
    },
    /// A field is not as it should be.
    #[error("{path}: expected {expected}")]
    Shape {
        /// Where.
        path: String,
        /// What should be there.
        expected: &'static str,
    },
    /// An expression that means nothing. NFD finds this on the host, and gives up there.
    #[error("{path}: an expression means nothing")]
    Expression {
        /// Where.
        path: String,
        /// Why.
        #[source]
        source: ExpressionError,
    },
    /// More than is evaluated.
    #[error("the rules have more than {limit} {what}; ask for fewer")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

/// Reads rules from YAML or JSON.
pub fn read(bytes: &[u8]) -> Result<Rules, ReadNfdError> {
    let tree = tree::parse(bytes)?;
    let mut reader = Reader::default();
    let top = object(&tree, "")?;
    let found = top.get("version").and_then(Value::as_str).unwrap_or_default();
    if found != VERSION {
        return Err(ReadNfdError::Version { found: found.chars().take(40).collect() });
    }
    reader.unknown(top, "", &["version", "compatibilities"]);
    let mut sets = Vec::new();
    for (path, item) in items(top, "", "compatibilities")? {
        sets.push(reader.set(item, &path)?);
    }
    if sets.is_empty() {
        let (path, expected) = ("compatibilities".to_owned(), "at least one set of rules");
        return Err(ReadNfdError::Shape { path, expected });
    }
    Ok(Rules { sets, warnings: reader.warnings() })
}

#[derive(Default)]
struct Reader {
    warnings: Vec<String>,
    /// Those that there was no room for.
    unsaid: usize,
    parts: usize,
    terms: usize,
    names: usize,
    patterns: usize,
}

impl Reader {
    fn set(&mut self, value: &Value, path: &str) -> Result<Set, ReadNfdError> {
        self.count_part()?;
        let fields = object(value, path)?;
        self.unknown(fields, path, &["rules", "weight", "tag", "description"]);
        let mut rules = Vec::new();
        for (path, item) in items(fields, path, "rules")? {
            rules.push(self.rule(item, &path)?);
        }
        let weight = match fields.get("weight") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_i64().ok_or_else(|| shape(path, "weight", "an integer"))?,
        };
        let (tag, description) = (text(fields, path, "tag")?, text(fields, path, "description")?);
        Ok(Set { rules, weight, tag, description })
    }

    fn rule(&mut self, value: &Value, path: &str) -> Result<Rule, ReadNfdError> {
        self.count_part()?;
        let fields = object(value, path)?;
        let known = [
            "name",
            "vars",
            "varsTemplate",
            "labels",
            "labelsTemplate",
            "matchFeatures",
            "matchAny",
        ];
        self.unknown(fields, path, &known);
        let template = |key: &str| fields.get(key).is_some_and(|value| value.as_str() != Some(""));
        let has_template = template("varsTemplate") || template("labelsTemplate");
        if has_template {
            self.warn(format!("{path}: templates are not evaluated"));
        }
        let mut vars = strings(fields, path, "labels")?;
        vars.extend(strings(fields, path, "vars")?);
        let features = self.terms(fields, path)?;
        let any = match fields.get("matchAny") {
            None | Some(Value::Null) => None,
            Some(_) => {
                let mut any = Vec::new();
                for (path, item) in items(fields, path, "matchAny")? {
                    self.count_part()?;
                    let inner = object(item, &path)?;
                    self.unknown(inner, &path, &["matchFeatures"]);
                    any.push(self.terms(inner, &path)?);
                }
                // NFD takes an empty list for none.
                Some(any).filter(|any| !any.is_empty())
            }
        };
        Ok(Rule { name: text(fields, path, "name")?, vars, has_template, features, any })
    }

    fn terms(
        &mut self,
        fields: &Map<String, Value>,
        path: &str,
    ) -> Result<Vec<Term>, ReadNfdError> {
        let mut terms = Vec::new();
        for (path, item) in items(fields, path, "matchFeatures")? {
            count(&mut self.terms, 1, MAX_TERMS, "terms")?;
            terms.push(self.term(item, &path)?);
        }
        Ok(terms)
    }

    fn term(&mut self, value: &Value, path: &str) -> Result<Term, ReadNfdError> {
        let fields = object(value, path)?;
        self.unknown(fields, path, &["feature", "matchExpressions", "matchName"]);
        let feature = text(fields, path, "feature")?.to_lowercase();
        if feature.is_empty() {
            return Err(shape(path, "feature", "the name of a feature"));
        }
        let mut expressions = BTreeMap::new();
        if let Some(value) = fields.get("matchExpressions").filter(|value| !value.is_null()) {
            let below = format!("{path}/matchExpressions");
            for (key, value) in object(value, &below)? {
                let path = step(&below, key);
                expressions.insert(key.clone(), self.expression(value, &path)?);
            }
        }
        let name = match fields.get("matchName").filter(|value| !value.is_null()) {
            Some(value) => {
                count(&mut self.names, 1, MAX_NAMES, "expressions over names")?;
                Some(self.expression(value, &format!("{path}/matchName"))?)
            }
            None => None,
        };
        Ok(Term { feature, expressions, name })
    }

    fn expression(&mut self, value: &Value, path: &str) -> Result<Expression, ReadNfdError> {
        let none = Map::new();
        let fields = if value.is_null() { &none } else { object(value, path)? };
        self.unknown(fields, path, &["op", "value", "type"]);
        let (op, kind) = (text(fields, path, "op")?, text(fields, path, "type")?);
        let values = items(fields, path, "value")?.map(|(path, item)| scalar(item, &path));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        if op == Op::InRegexp.as_str() {
            count(&mut self.patterns, values.len(), MAX_PATTERNS, "patterns")?;
        }
        Expression::new(&op, values, &kind)
            .map_err(|source| ReadNfdError::Expression { path: path.to_owned(), source })
    }

    fn count_part(&mut self) -> Result<(), ReadNfdError> {
        count(&mut self.parts, 1, MAX_PARTS, "sets, rules and choices")
    }

    /// NFD reads over what it does not know, so it is no error here; a misspelt field means that
    /// something is not asked for, so it is said.
    fn unknown(&mut self, fields: &Map<String, Value>, path: &str, known: &[&str]) {
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            self.warn(format!("{}: the field means nothing here", step(path, key)));
        }
    }

    fn warn(&mut self, text: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text);
        } else {
            self.unsaid += 1;
        }
    }

    fn warnings(mut self) -> Vec<String> {
        if self.unsaid > 0 {
            self.warnings.push(format!("and {} more", self.unsaid));
        }
        self.warnings
    }
}

/// Counts some more of something of which there may only be so many.
fn count(
    all: &mut usize,
    more: usize,
    limit: usize,
    what: &'static str,
) -> Result<(), ReadNfdError> {
    *all += more;
    if *all > limit { Err(ReadNfdError::TooMany { what, limit }) } else { Ok(()) }
}

/// One step down a path.
fn step(path: &str, key: &str) -> String {
    let mut path = format!("{path}/");
    path.extend(key.chars().take(MAX_KEY));
    path
}

fn shape(path: &str, key: &str, expected: &'static str) -> ReadNfdError {
    ReadNfdError::Shape { path: step(path, key), expected }
}

fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, ReadNfdError> {
    let path = if path.is_empty() { "the document" } else { path };
    value
        .as_object()
        .ok_or_else(|| ReadNfdError::Shape { path: path.to_owned(), expected: "an object" })
}

/// A list, with the path of each item; empty where there is none.
fn items<'a>(
    fields: &'a Map<String, Value>,
    path: &'a str,
    key: &'a str,
) -> Result<impl Iterator<Item = (String, &'a Value)>, ReadNfdError> {
    let items = match fields.get(key) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(items)) => items.as_slice(),
        Some(_) => return Err(shape(path, key, "a list")),
    };
    Ok(items.iter().enumerate().map(move |(n, item)| (format!("{path}/{key}/{n}"), item)))
}

fn text(fields: &Map<String, Value>, path: &str, key: &str) -> Result<String, ReadNfdError> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(shape(path, key, "a text")),
    }
}

fn strings(
    fields: &Map<String, Value>,
    path: &str,
    key: &str,
) -> Result<BTreeMap<String, String>, ReadNfdError> {
    let Some(value) = fields.get(key).filter(|value| !value.is_null()) else {
        return Ok(BTreeMap::new());
    };
    let below = format!("{path}/{key}");
    let members = object(value, &below)?.iter();
    members.map(|(key, value)| Ok((key.clone(), scalar(value, &step(&below, key))?))).collect()
}

/// A value as the text that hosts' values are compared with. YAML makes numbers and booleans of
/// what authors often mean as text: `value: [4]`, `value: [true]`.
fn scalar(value: &Value, path: &str) -> Result<String, ReadNfdError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(ReadNfdError::Shape { path: path.to_owned(), expected: "a text or a number" }),
    }
}
