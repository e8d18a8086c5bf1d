//! What a cluster would lose by another definition of a resource it has.
//!
//! `kubectl apply` takes almost any definition, and says nothing: a field that is gone from a schema is dropped from
//! every object that is written next, a value that is gone makes objects that nobody can write any more. So a new
//! definition is held against the one that is there before it is applied. The other direction, what is new, is no concern
//! of objects that are there.

mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

/// How sure it is that something is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// It depends on what objects say.
    MayBreak,
    /// Objects, or clients that use them, do break.
    Breaks,
}

/// One difference that matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where: `v1beta1 .spec.source.type`.
    pub at: String,
    /// What, in words.
    pub what: String,
    /// How bad.
    pub weight: Weight,
}

impl Change {
    fn new(at: &str, what: impl Into<String>, weight: Weight) -> Self {
        Self { at: at.to_owned(), what: what.into(), weight }
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// What would be lost by applying `new` where a cluster has `old`. Empty: it can be applied.
pub fn changes(old: &Value, new: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    // What the API server itself refuses to change, or what makes it another resource.
    for (pointer, what) in [
        ("/spec/group", "the group"),
        ("/spec/names/kind", "the kind"),
        ("/spec/names/plural", "the plural"),
        ("/spec/scope", "the scope"),
    ] {
        let (was, is) = (text(old, pointer), text(new, pointer));
        if was != is {
            let what = format!("{what} is {is:?} instead of {was:?}: another resource");
            found.push(Change::new("", what, Weight::Breaks));
        }
    }
    if !found.is_empty() {
        return found;
    }
    let version =
        |name: &str| list(&new["spec"]["versions"]).iter().find(|one| one["name"] == name);
    for stored in list(&old["status"]["storedVersions"]).iter().filter_map(Value::as_str) {
        if version(stored).is_none() {
            let what = "objects are stored in this version, which is gone: write them all again in the new one, \
                        take it out of status.storedVersions, then apply";
            found.push(Change::new(stored, what, Weight::Breaks));
        }
    }
    for was in list(&old["spec"]["versions"]) {
        let name = was["name"].as_str().unwrap_or_default();
        let is = version(name);
        let served = |one: &Value| one["served"] == true;
        if served(was) && !is.is_some_and(served) {
            let what = "it is not served any more; clients that ask for it are told that there is no such kind";
            found.push(Change::new(name, what, Weight::Breaks));
        }
        if let Some(is) = is {
            let schema = |one: &'_ Value| one["schema"]["openAPIV3Schema"].clone();
            schema::compare(name, &schema(was), &schema(is), &mut found);
            let status = |one: &Value| one["subresources"]["status"].is_object();
            if status(was) != status(is) {
                let what = "the status is, or is no longer, written apart from the rest";
                found.push(Change::new(name, what, Weight::Breaks));
            }
        }
    }
    found
}

/// How the definition that a cluster has stands to ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is none.
    Missing,
    /// It says what ours says.
    Current,
    /// Ours can be applied, and objects lose nothing.
    Older,
    /// Ours would take something away.
    Loses(Vec<Change>),
}

/// Compares what a cluster has with ours: versions, schemas, columns and subresources. What API servers add by themselves
/// does not count.
pub fn standing(there: Option<&Value>, ours: &Value) -> Standing {
    let Some(there) = there else { return Standing::Missing };
    let lost = changes(there, ours);
    if !lost.is_empty() {
        return Standing::Loses(lost);
    }
    let names = |one: &Value| -> BTreeSet<String> {
        let names = list(&one["spec"]["versions"]).iter().filter_map(|one| one["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let same = names(there) == names(ours)
        && list(&ours["spec"]["versions"]).iter().all(|version| {
            let other =
                list(&there["spec"]["versions"]).iter().find(|one| one["name"] == version["name"]);
            other.is_some_and(|other| {
                ["schema", "subresources", "additionalPrinterColumns"]
                    .iter()
                    .all(|key| schema::said(&other[*key]) == schema::said(&version[*key]))
            })
        });
    if same { Standing::Current } else { Standing::Older }
}
