//! Asking external plugins: first what they need, then what they find.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use portolan_host::facts::{Facts, Wanted};
use serde_json::Value;

use super::find::Provided;
use super::malfunction::Malfunction;
use super::order::{self, Plan};
use super::policy::Grant;
use super::protocol::{self, Description, Host, Question, Returned};
use super::run::Runner;
use super::{BUDGET, Found, Instance};
use crate::document::Plugin;
use crate::evaluate::{Answer, Reason};
use crate::json::Spanned;
use crate::plugins::{External, Manner, builtin};
use crate::text::shown_up_to;
use crate::verdict::Verdict;

/// External plugins that are ready to be asked.
#[derive(Debug)]
pub struct Externals {
    instances: Vec<Instance>,
    left_out: bool,
    waits: BTreeMap<String, BTreeSet<String>>,
    plan: Plan,
    runner: Runner,
    manner: Manner,
    /// Where the files of the host are that is asked about, if it is this machine's.
    root: Option<String>,
    until: Instant,
}

impl Found {
    /// Whether there is anything to ask.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Asks every program what it needs.
    pub fn describe(mut self, manner: Manner) -> Externals {
        let until = Instant::now() + BUDGET;
        for instance in &mut self.instances {
            if let Ok(provided) = &*instance.provided {
                instance.description = describe(&self.runner, instance, provided, until);
            }
        }
        let mut waits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for instance in &self.instances {
            let entry = waits.entry(instance.name.clone()).or_default();
            if let Ok(description) = &instance.description {
                entry.extend(description.after.iter().cloned());
            }
        }
        let plan = order::plan(&waits);
        Externals {
            instances: self.instances,
            left_out: self.left_out,
            waits,
            plan,
            runner: self.runner,
            manner,
            root: None,
            until,
        }
    }
}

fn describe(
    runner: &Runner,
    instance: &Instance,
    provided: &Provided,
    until: Instant,
) -> Result<Description, Malfunction> {
    let input = instance.question().describe();
    let grant = within(until, provided.grant)?;
    let finished = runner.run(&provided.program, &instance.name, "describe", &input, &grant)?;
    if finished.code != 0 {
        let log = log(&finished.stderr);
        return Err(Malfunction::Exit { code: finished.code, log });
    }
    let description = protocol::describe(&finished.stdout).map_err(Malfunction::Answer)?;
    let Description { name, version, .. } = &description;
    tracing::debug!(plugin = instance.name, name, version, "a plugin was asked what it needs");
    Ok(description)
}

/// No longer than what is left for all.
fn within(until: Instant, mut grant: Grant) -> Result<Grant, Malfunction> {
    let left = until.saturating_duration_since(Instant::now()).as_secs();
    if left == 0 {
        return Err(Malfunction::Budget { after: BUDGET });
    }
    grant.timeout_seconds = grant.timeout_seconds.min(left);
    Ok(grant)
}

impl Instance {
    fn question(&self) -> Question<'_> {
        Question { plugin: &self.name, namespace: &self.namespace, data: self.data.as_ref() }
    }

    fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }
}

impl Externals {
    fn position(&self, namespace: &str, plugin: &Plugin) -> Option<usize> {
        self.instances.iter().position(|one| one.is(namespace, &plugin.name))
    }
}

impl Externals {
    /// The facts that the plugins, and the built-in plugins that they ask, want to see.
    pub fn wanted(&self) -> Wanted {
        let descriptions = self.instances.iter().filter_map(|one| one.description.as_ref().ok());
        descriptions.fold(Wanted::default(), |wanted, description| {
            let wanted = description.facts.iter().fold(wanted, |all, name| all.feature(name));
            description
                .asks
                .iter()
                .fold(wanted, |all, (plugin, data)| all.and(builtin::needs(plugin, data.as_ref())))
        })
    }

    /// Forgets the last host. `root` is where the next one's files are, for plugins that may read
    /// them: this machine's own, or none.
    pub fn about(&mut self, root: Option<&str>) {
        self.root = root.map(str::to_owned);
        self.until = Instant::now() + BUDGET;
        self.instances.iter_mut().for_each(|instance| instance.outcome = None);
    }

    /// Asks one plugin, after all whose facts it waits for.
    fn ensure(&mut self, at: usize, facts: &Facts) {
        let name = self.instances[at].name.clone();
        let first = order::before(&self.waits, &name);
        let mut todo: Vec<usize> = Vec::new();
        for other in self.plan.order.iter().filter(|other| first.contains(other.as_str())) {
            todo.extend((0..self.instances.len()).filter(|n| self.instances[*n].name == *other));
        }
        todo.push(at);
        for n in todo {
            if self.instances[n].outcome.is_none() {
                let outcome = self.ask_one(n, facts);
                self.instances[n].outcome = Some(outcome);
            }
        }
    }

    fn ask_one(&self, n: usize, facts: &Facts) -> (Answer, Returned) {
        let instance = &self.instances[n];
        let provided = match &*instance.provided {
            Ok(provided) => provided,
            Err(malfunction) => return (unknown(malfunction, None), Returned::default()),
        };
        let description = match (&instance.description, self.plan.circles.get(&instance.name)) {
            (Ok(_), Some(around)) => {
                let circle = Malfunction::Cycle { around: around.clone() };
                return (unknown(&circle, Some(provided)), Returned::default());
            }
            (Ok(description), None) => description,
            (Err(malfunction), _) => {
                return (unknown(malfunction, Some(provided)), Returned::default());
            }
        };
        match self.run(instance, provided, description, facts) {
            Ok(outcome) => outcome,
            Err(malfunction) => (unknown(&malfunction, Some(provided)), Returned::default()),
        }
    }

    fn run(
        &self,
        instance: &Instance,
        provided: &Provided,
        description: &Description,
        facts: &Facts,
    ) -> Result<(Answer, Returned), Malfunction> {
        let answers: Vec<Value> = description
            .asks
            .iter()
            .filter_map(|(plugin, data)| {
                let answer = builtin::ask(plugin, data.as_ref(), facts, self.manner)?;
                let data = data.as_ref().map_or(Value::Null, Spanned::to_json);
                Some(protocol::handed(plugin, &data, &answer))
            })
            .collect();
        let mut given = protocol::selected(facts, &description.facts);
        for other in self.instances.iter().filter(|one| description.after.contains(&one.name)) {
            if let Some((_, returned)) = &other.outcome {
                returned.add_to(&mut given, &other.name, &other.namespace);
            }
        }
        let platform = facts.platform().ok().map(|host| host.platform.to_string());
        let host = Host {
            root: self.root.as_deref().filter(|_| provided.grant.files),
            platform: platform.as_deref(),
            facts: given,
        };
        let input = instance.question().check(&host, &answers);
        let mut grant = within(self.until, provided.grant)?;
        // This machine's files say nothing about another.
        grant.files &= self.root.is_some();
        let finished =
            self.runner.run(&provided.program, &instance.name, "check", &input, &grant)?;
        let said = match protocol::answer(&finished.stdout, finished.code) {
            Ok(said) => said,
            // It has said that it failed; that its answer is none as well is no news.
            Err(_) if finished.code > 1 => {
                let log = log(&finished.stderr);
                return Err(Malfunction::Exit { code: finished.code, log });
            }
            Err(error) => return Err(Malfunction::Answer(error)),
        };
        let mut answer = from(provided, said.verdict);
        answer.reasons.splice(0..0, said.reasons);
        answer.duration_ms = Some(u64::try_from(finished.took.as_millis()).unwrap_or(u64::MAX));
        answer.sandbox = finished.layers.iter().map(|layer| layer.as_str().to_owned()).collect();
        Ok((answer, said.facts))
    }
}

impl External for Externals {
    fn ask(&mut self, namespace: &str, plugin: &Plugin, facts: &Facts) -> Answer {
        let Some(at) = self.position(namespace, plugin) else {
            let malfunction = match self.left_out {
                true => Malfunction::TooMany,
                // Only if asked about another spec than the one whose programs were found.
                false => Malfunction::NotFound { directory: PathBuf::new() },
            };
            return unknown(&malfunction, None);
        };
        self.ensure(at, facts);
        match &self.instances[at].outcome {
            Some((answer, _)) => answer.clone(),
            None => unknown(&Malfunction::TooMany, None),
        }
    }

    fn overrides(&self, namespace: &str, plugin: &Plugin) -> bool {
        builtin::is(&plugin.name) && self.position(namespace, plugin).is_some()
    }
}

/// An answer of a program, without its reasons.
fn from(provided: &Provided, verdict: Verdict) -> Answer {
    let reasons = provided.passed_over.iter().map(|why| {
        let message = format!("another plugin of this name was passed over: {why}");
        reason(verdict, "PLUGIN_PASSED_OVER", message)
    });
    Answer {
        verdict,
        provider: provided.provider.as_str().to_owned(),
        digest: Some(provided.program.digest().to_string()),
        duration_ms: None,
        sandbox: Vec::new(),
        reasons: reasons.collect(),
    }
}

fn unknown(malfunction: &Malfunction, provided: Option<&Provided>) -> Answer {
    let mut answer = match provided {
        Some(provided) => from(provided, Verdict::Unknown),
        None => Answer {
            verdict: Verdict::Unknown,
            provider: "none".to_owned(),
            digest: None,
            duration_ms: None,
            sandbox: Vec::new(),
            reasons: Vec::new(),
        },
    };
    let text = shown_up_to(&malfunction.describe(), 2000);
    answer.reasons.insert(0, reason(Verdict::Unknown, malfunction.code(), text));
    answer
}

/// The beginning of what a plugin said on stderr.
fn log(stderr: &[u8]) -> String {
    shown_up_to(String::from_utf8_lossy(stderr).trim(), 300)
}

fn reason(verdict: Verdict, code: &'static str, message: String) -> Reason {
    Reason {
        verdict,
        code: code.into(),
        message,
        expected: None,
        found: None,
        source: None,
        remedy: None,
    }
}
