//! A policy in Rego, for those whose question no `policy.yaml` asks.
//!
//! Rego sees what was verified and decides; it never sees a key or a signature's bytes, and has
//! nobody to ask. Whatever is not a plain yes is a no: a decision that is undefined or of another
//! shape, an error, too much time.

pub(crate) mod guard;
mod input;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use regorus::LimitError;
use regorus::utils::limits::ExecutionTimerConfig;

pub use guard::Unsafe;
pub use input::{Attestation, Input, Signature, SubjectFacts, UnsignedDocument};

/// A policy is a page or ten.
pub const MAX_REGO: u64 = 256 * 1024;
/// The one question.
const QUERY: &str = "data.portolan.decision";
const PACKAGE: &str = "data.portolan";
const RULE: &str = "decision";
/// Who asks waits for seconds, and for other images too.
const LIMIT: Duration = Duration::from_secs(1);
/// Steps between looks at the clock.
const STEPS: NonZeroU32 = NonZeroU32::new(64).expect("it is not 0");
/// Messages that are told, and letters of each.
const MAX_MESSAGES: usize = 16;
const MAX_LETTERS: usize = 400;

/// Why a text is no policy.
#[derive(Debug, thiserror::Error)]
pub enum RegoError {
    /// Not text.
    #[error("it is not UTF-8 text")]
    NotText,
    /// Not Rego, or not its newer version.
    #[error("it is not Rego v1: {0}")]
    Compile(String),
    /// What the engine must not be given.
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
    /// Of another package.
    #[error("its package is {0}; write `package portolan`")]
    Package(String),
    /// Nothing is asked of it.
    #[error("it has no rule `decision`; write `decision := {{\"allow\": …, \"messages\": […]}}`")]
    NoDecision,
    /// It breaks down where nothing at all is known.
    #[error("it breaks down for an image without anything attached: {0}")]
    Breaks(String),
}

/// What a policy decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// Yes, and what it says besides.
    Allow(Vec<String>),
    /// No, and why.
    Deny(Vec<String>),
    /// No, because it did not decide.
    Broken(String),
    /// No, because it had no time to: elsewhere, or later, it may.
    Late(String),
}

/// A policy that is ready to decide.
#[derive(Debug, Clone)]
pub struct RegoPolicy {
    /// Prepared once; each decision is made by a copy.
    engine: regorus::Engine,
}

impl RegoPolicy {
    /// Reads a policy; `name` is what the engine's errors call it.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, RegoError> {
        let text = str::from_utf8(bytes).map_err(|_| RegoError::NotText)?;
        guard::check(&[text])?;
        guard::check_bounded(text)?;
        let mut engine = regorus::Engine::new();
        engine.set_rego_v0(false);
        // What breaks down must not look like what is not there.
        engine.set_strict_builtin_errors(true);
        engine.set_execution_timer_config(ExecutionTimerConfig {
            limit: LIMIT,
            check_interval: STEPS,
        });
        let compile = |error: anyhow::Error| RegoError::Compile(short(&format!("{error:#}")));
        let package = contained(|| engine.add_policy(name.to_owned(), text.to_owned()));
        let package = package.map_err(compile)?;
        if package != PACKAGE {
            return Err(RegoError::Package(package));
        }
        if !engine.has_declared_rule_rooted_at(name, RULE).map_err(compile)? {
            return Err(RegoError::NoDecision);
        }
        // The first evaluation prepares the engine, and finds functions that there are not.
        engine.set_input(to_rego(&Input::default()));
        let first = contained(|| engine.eval_rule(QUERY.to_owned()));
        first.map_err(|error| RegoError::Breaks(short(&format!("{error:#}"))))?;
        Ok(Self { engine })
    }

    /// Decides. It is arithmetic for up to a second, so not for a thread that others wait for.
    pub fn decide(&self, input: &Input) -> Ruling {
        let mut engine = self.engine.clone();
        engine.set_input(to_rego(input));
        match contained(|| engine.eval_rule(QUERY.to_owned())) {
            Ok(decision) => read(&decision),
            Err(error) => {
                let what = format!("the policy broke down: {}", short(&format!("{error:#}")));
                match error.downcast_ref() {
                    Some(LimitError::TimeLimitExceeded { .. }) => Ruling::Late(what),
                    _ => Ruling::Broken(what),
                }
            }
        }
    }
}

/// What the engine makes of something; where it panics, that is an error as any other. It must not be
/// used again then.
pub(crate) fn contained<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let caught = catch_unwind(AssertUnwindSafe(run));
    caught.unwrap_or_else(|_| Err(anyhow::anyhow!("the engine panicked")))
}

fn to_rego(input: &Input) -> regorus::Value {
    // Only texts, numbers and JSON are in it, so it can be written; if not, everything is undefined
    // and the answer no.
    serde_json::to_value(input).map_or(regorus::Value::Undefined, regorus::Value::from)
}

/// `{"allow": true}` and nothing like it is a yes.
fn read(decision: &regorus::Value) -> Ruling {
    let broken = |what: &str| Ruling::Broken(format!("the policy's decision {what}"));
    if *decision == regorus::Value::Undefined {
        return broken("is undefined; give it a default");
    }
    let Ok(members) = decision.as_object() else {
        return broken("is no object with `allow` and `messages`");
    };
    let member = |name: &str| members.get(&regorus::Value::from(name));
    let messages = match member("messages") {
        None => Vec::new(),
        Some(regorus::Value::Array(list)) => list.iter().collect(),
        Some(regorus::Value::Set(set)) => set.iter().collect(),
        Some(_) => return broken("has `messages` that are no list of texts"),
    };
    let text = |one: &regorus::Value| one.as_string().ok().map(|text| short(text));
    let Some(messages) = messages.into_iter().take(MAX_MESSAGES).map(text).collect() else {
        return broken("has `messages` that are no list of texts");
    };
    match member("allow") {
        Some(regorus::Value::Bool(true)) => Ruling::Allow(messages),
        Some(regorus::Value::Bool(false)) => Ruling::Deny(messages),
        _ => broken("has no `allow` that is true or false"),
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_LETTERS).collect()
}
