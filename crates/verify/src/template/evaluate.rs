//! What a template makes of an object and of a provider's answers.
//!
//! Nothing is asked while Rego runs: a key that has no answer yet ends the evaluation and is named,
//! whoever calls finds the answer and evaluates again. So the time that a template may take is its
//! own, not that of a registry.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regorus::utils::limits::ExecutionTimerConfig;
use serde_json::{Value, json};

use super::answers::Answers;
use super::read::Template;
use crate::rego::contained;
use crate::rego::guard::{self, Unsafe};

/// A webhook that takes as long is given up by the API server.
const LIMIT: Duration = Duration::from_secs(10);
/// Steps between looks at the clock.
const STEPS: NonZeroU32 = NonZeroU32::new(64).expect("it is not 0");
/// More than any object asks for; each costs requests.
const MAX_KEYS: usize = 4096;

/// Why a template says nothing.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// It is not Rego.
    #[error("{part} of the template is not Rego: {why}")]
    Compile {
        /// Which.
        part: String,
        /// In the words of the engine.
        why: String,
    },
    /// It could not be evaluated to an end.
    #[error("the template is not evaluated: {0}")]
    Unsafe(#[from] Unsafe),
    /// It breaks down, or takes too long.
    #[error("the template broke down: {0}")]
    Run(String),
    /// What it says is no list of violations.
    #[error("the template's violation is not a set: {0}")]
    NoSet(String),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What is wrong with the object; nothing admits it.
    Violations(Vec<String>),
    /// Keys that have to be answered first.
    Asks(BTreeSet<String>),
}

/// A template, ready to be tried.
#[derive(Debug, Clone)]
pub struct Evaluator {
    engine: regorus::Engine,
    package: String,
}

impl Evaluator {
    /// Compiles a template.
    pub fn new(template: &Template) -> Result<Self, EvaluateError> {
        let libs = template.libs.iter().map(String::as_str);
        let modules: Vec<_> = libs.chain([template.rego.as_str()]).collect();
        guard::check(&modules)?;
        modules.iter().try_for_each(|text| guard::check_bounded(text))?;
        let mut engine = regorus::Engine::new();
        engine.set_rego_v0(template.is_v0);
        // As in Gatekeeper: a function that breaks down has no value.
        engine.set_strict_builtin_errors(false);
        engine.set_execution_timer_config(ExecutionTimerConfig {
            limit: LIMIT,
            check_interval: STEPS,
        });
        let mut add = |part: String, rego: &str| {
            let added = contained(|| engine.add_policy(part.clone(), rego.to_owned()));
            added.map_err(|error| EvaluateError::Compile { part, why: format!("{error:#}") })
        };
        for (n, lib) in template.libs.iter().enumerate() {
            add(format!("libs[{n}]"), lib)?;
        }
        let package = add("rego".to_owned(), &template.rego)?;
        Ok(Self { engine, package })
    }

    /// What the template says of `object`, with a constraint's `parameters`.
    pub fn run(
        &self,
        object: &Value,
        parameters: &Value,
        answers: &Answers,
    ) -> Result<Outcome, EvaluateError> {
        self.review(input(object, parameters), answers)
    }

    /// What it says of a whole `input`, as Gatekeeper would give it.
    pub(crate) fn review(&self, input: Value, answers: &Answers) -> Result<Outcome, EvaluateError> {
        let mut engine = self.engine.clone();
        let asked = Arc::new(Mutex::new(BTreeSet::new()));
        let broke = |error: anyhow::Error| EvaluateError::Run(format!("{error:#}"));
        let (answers, asks) = (Arc::new(answers.clone()), Arc::clone(&asked));
        let external_data = move |arguments: Vec<regorus::Value>| {
            let keys = keys(&arguments)?;
            let unknown = answers.unknown(&keys);
            if !unknown.is_empty() {
                asks.lock().unwrap_or_else(PoisonError::into_inner).extend(unknown);
                return Ok(regorus::Value::Undefined);
            }
            Ok(regorus::Value::from(answers.to_rego(&keys)))
        };
        engine
            .add_extension("external_data".to_owned(), 1, Box::new(external_data))
            .map_err(broke)?;
        engine.set_input(regorus::Value::from(input));
        let result = contained(|| engine.eval_rule(format!("{}.violation", self.package)));
        let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        if !asked.is_empty() {
            return Ok(Outcome::Asks(asked));
        }
        violations(&result.map_err(broke)?).map(Outcome::Violations)
    }
}

/// As Gatekeeper gives it to a template.
fn input(object: &Value, parameters: &Value) -> Value {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let parameters = if parameters.is_null() { json!({}) } else { parameters.clone() };
    json!({
        "parameters": parameters,
        "review": {
            "kind": {"group": group, "version": version, "kind": text("/kind")},
            "name": text("/metadata/name"),
            "namespace": text("/metadata/namespace"),
            "operation": "CREATE",
            "object": object,
        },
    })
}

/// The keys of a call: `{"provider": NAME, "keys": [...]}`.
fn keys(arguments: &[regorus::Value]) -> anyhow::Result<Vec<String>> {
    let argument = arguments.first().map(serde_json::to_value).transpose()?.unwrap_or_default();
    anyhow::ensure!(argument["provider"].is_string(), "external_data needs a provider");
    let keys: Vec<String> = serde_json::from_value(argument["keys"].clone())
        .map_err(|error| anyhow::anyhow!("keys of external_data: {error}"))?;
    anyhow::ensure!(keys.len() <= MAX_KEYS, "{} keys, at most {MAX_KEYS} are asked", keys.len());
    Ok(keys)
}

fn violations(found: &regorus::Value) -> Result<Vec<String>, EvaluateError> {
    if *found == regorus::Value::Undefined {
        return Ok(Vec::new());
    }
    let wrong = || EvaluateError::NoSet(found.to_string().chars().take(200).collect());
    let message = |one: &regorus::Value| match &one["msg"] {
        regorus::Value::String(text) => text.to_string(),
        _ => one.to_string(),
    };
    Ok(found.as_set().map_err(|_| wrong())?.iter().map(message).collect())
}
