//! What a provider of external data answers.

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::Reference;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::decision::Answer;
use crate::report::V1;

/// Answers that are there already.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    items: BTreeMap<String, Result<Value, String>>,
    system_error: String,
    is_all: bool,
}

/// As Gatekeeper reads it from a provider.
#[derive(Deserialize)]
struct ProviderResponse {
    response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Response {
    items: Vec<Item>,
    system_error: String,
}

#[derive(Deserialize)]
struct Item {
    key: String,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    error: String,
}

impl Answers {
    /// None yet; what is asked for is to be found out.
    pub fn none_yet() -> Self {
        Self::default()
    }

    /// What a provider answered once, a `ProviderResponse` in JSON. There is nothing beyond it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let ProviderResponse { response } = serde_json::from_slice(bytes)?;
        let item = |Item { key, value, error }: Item| match error.is_empty() {
            true => (key, Ok(value)),
            false => (key, Err(error)),
        };
        Ok(Self {
            items: response.items.into_iter().map(item).collect(),
            system_error: response.system_error,
            is_all: true,
        })
    }

    /// Adds what came of looking at an image, as the verifier tells it: with what templates for Ratify
    /// 1 read, and the yes or no that those for Ratify 2 look for.
    pub fn looked(
        &mut self,
        key: &str,
        reference: &Reference,
        answer: &Answer,
    ) -> Result<(), serde_json::Error> {
        let value = serde_json::to_value(V1::of(answer, reference))?;
        self.items.insert(key.to_owned(), Ok(value));
        Ok(())
    }

    /// Adds why a key is not answered; asking again would not help.
    pub fn refused(&mut self, key: &str, why: impl Into<String>) {
        self.items.insert(key.to_owned(), Err(why.into()));
    }

    /// Of these keys, those that are still to be found out.
    pub(super) fn unknown(&self, keys: &[String]) -> BTreeSet<String> {
        let unknown = |key: &&String| !self.is_all && !self.items.contains_key(*key);
        keys.iter().filter(unknown).cloned().collect()
    }

    /// What `external_data` gives a template.
    pub(super) fn to_rego(&self, keys: &[String]) -> Value {
        let keys: BTreeSet<&String> = keys.iter().collect();
        let told = || keys.iter().filter_map(|&key| Some((key, self.items.get(key)?)));
        // A provider that breaks down says nothing of any key.
        let broken = !self.system_error.is_empty();
        let responses = told().filter_map(|(key, item)| Some(json!([key, item.as_ref().ok()?])));
        let errors = told().filter_map(|(key, item)| Some(json!([key, item.as_ref().err()?])));
        json!({
            "responses": responses.filter(|_| !broken).collect::<Vec<_>>(),
            "errors": errors.filter(|_| !broken).collect::<Vec<_>>(),
            "status_code": if broken { 500 } else { 200 },
            "system_error": self.system_error,
        })
    }
}
