//! `portolan verify template test -f OBJECT.yaml`

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use portolan_core::platform::PartialPlatform;
use portolan_registry::ErrorClass;
use portolan_registry::client::Client;
use portolan_verify::collect::Limits;
use portolan_verify::contract::{self, BadKey};
use portolan_verify::decision::{self, Question};
use portolan_verify::pod::{MAX_NODES, MAX_POD, nodes_from_yaml};
use portolan_verify::policy::Policy;
use portolan_verify::subjects::Wanted;
use portolan_verify::template::TEMPLATE;
use portolan_verify::template::answers::Answers;
use portolan_verify::template::evaluate::{Evaluator, Outcome};
use portolan_verify::template::read::{
    Constraint, MAX_TEMPLATE, ReadTemplateError, Template, documents,
};
use portolan_verify::verify::verify;
use serde::Serialize;
use serde_json::Value;

use super::super::{failure, in_file, load_policy, read, this_host};
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{Format, safe, safe_whole};

/// Rounds of questions; a template that asks by what it was told may need more than one.
const MAX_ROUNDS: usize = 8;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan verify template test -f pod.yaml --policy policy.yaml\n  \
    portolan verify template render > gatekeeper.yaml\n  \
    portolan verify template test --template gatekeeper.yaml -f deployment.yaml --answers answers.json -o json\n\n\
    Answers are what a provider answers Gatekeeper: {\"response\": {\"items\": [{\"key\", \"value\" or \"error\"}], \
    \"systemError\"}}. A constraint's `match` is not looked at: what is given is tried.\n\n\
    Exit codes: 0 admitted, 1 denied, 2 bad input, 5 transport."
)]
pub(crate) struct Args {
    /// A ConstraintTemplate, perhaps with its constraints; the shipped one where it is not said
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Constraints of it; without any the template gets no parameters
    #[arg(long, value_name = "FILE")]
    constraint: Option<PathBuf>,
    /// What is applied: one or more objects, in YAML or JSON
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: PathBuf,
    /// Answer as the verifier with this policy would, from the real registry
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "answers",
        required_unless_present = "answers"
    )]
    policy: Option<PathBuf>,
    /// The cluster's nodes for that, as `kubectl get nodes -o yaml` prints them
    #[arg(long, value_name = "FILE", requires = "policy")]
    nodes: Option<PathBuf>,
    /// Answer with what this file has
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// How to print what comes of it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Tried {
    admitted: bool,
    results: Vec<Found>,
}

/// What one constraint makes of one object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    object: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    constraint: Option<String>,
    /// What the provider was asked.
    keys: BTreeSet<String>,
    violations: Vec<String>,
}

/// Who answers.
enum Provider {
    Recorded(Answers),
    Verifier(Box<Verifier>),
}

struct Verifier {
    policy: Policy,
    nodes: Option<Wanted>,
    client: Client,
    known: Answers,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<Exit, Failure> {
    let (evaluator, constraints) = template(args)?;
    let mut provider = provider(args, global)?;
    let objects = read(&args.file, MAX_TEMPLATE as u64)?;
    let objects = documents(&objects).map_err(|error| in_file(&args.file, error))?;
    if objects.is_empty() {
        return Err(in_file(&args.file, anyhow::anyhow!("there is no object in it")));
    }
    let mut results = Vec::new();
    for object in &objects {
        for constraint in &constraints {
            results.push(try_one(&evaluator, object, constraint, &mut provider)?);
        }
    }
    let admitted = results.iter().all(|one| one.violations.is_empty());
    args.format.print(&Tried { admitted, results }, table)?;
    Ok(if admitted { Exit::Ok } else { Exit::No })
}

fn template(args: &Args) -> Result<(Evaluator, Vec<Option<Constraint>>), Failure> {
    let (bytes, name) = match &args.template {
        Some(file) => (read(file, MAX_TEMPLATE as u64)?, file.display().to_string()),
        None => (TEMPLATE.as_bytes().to_vec(), "the shipped template".to_owned()),
    };
    let wrong = |error: anyhow::Error| Failure::usage(error.context(name.clone()));
    let mut all = documents(&bytes).map_err(|error| wrong(error.into()))?;
    let template = Template::among(&all).map_err(|error| wrong(error.into()))?;
    if let Some(file) = &args.constraint {
        let more = documents(&read(file, MAX_TEMPLATE as u64)?);
        all = more.map_err(|error| in_file(file, error))?;
    }
    let mut constraints: Vec<_> = template.constraints(&all).into_iter().map(Some).collect();
    if constraints.is_empty() {
        if let Some(file) = &args.constraint {
            return Err(in_file(file, ReadTemplateError::NoConstraint(template.kind)));
        }
        constraints.push(None);
    }
    let evaluator = Evaluator::new(&template).map_err(|error| wrong(error.into()))?;
    Ok((evaluator, constraints))
}

fn provider(args: &Args, global: &Global) -> Result<Provider, Failure> {
    if let Some(file) = &args.answers {
        let answers = Answers::from_json(&read(file, MAX_POD as u64)?);
        let answers = answers.context("it is no ProviderResponse");
        return Ok(Provider::Recorded(answers.map_err(|error| in_file(file, error))?));
    }
    let Some(policy) = &args.policy else {
        return Err(Failure::usage(anyhow::anyhow!("give --policy or --answers")));
    };
    let nodes = match &args.nodes {
        None => None,
        Some(file) => {
            let nodes = nodes_from_yaml(&read(file, MAX_NODES as u64)?);
            let nodes = nodes.map_err(|error| in_file(file, error))?;
            Wanted::of(nodes.iter().map(|node| PartialPlatform::from(&node.platform)))
        }
    };
    let (policy, client) = (load_policy(policy)?, context::client(global)?);
    Ok(Provider::Verifier(Box::new(Verifier { policy, nodes, client, known: Answers::none_yet() })))
}

/// Evaluates, finds out what is asked for, and evaluates again until nothing is.
fn try_one(
    evaluator: &Evaluator,
    object: &Value,
    constraint: &Option<Constraint>,
    provider: &mut Provider,
) -> Result<Found, Failure> {
    let parameters = constraint.as_ref().map_or(&Value::Null, |one| &one.parameters);
    let run =
        |answers: &Answers| evaluator.run(object, parameters, answers).map_err(Failure::usage);
    let mut keys = match run(&Answers::none_yet())? {
        Outcome::Asks(keys) => keys,
        Outcome::Violations(_) => BTreeSet::new(),
    };
    for _ in 0..MAX_ROUNDS {
        let outcome = match provider {
            Provider::Recorded(answers) => run(answers)?,
            Provider::Verifier(verifier) => run(&verifier.known)?,
        };
        match (outcome, &mut *provider) {
            (Outcome::Violations(violations), _) => {
                let constraint = constraint.as_ref().map(|one| one.name.clone());
                return Ok(Found { object: name(object), constraint, keys, violations });
            }
            (Outcome::Asks(more), Provider::Verifier(verifier)) => {
                context::wait(answer(verifier, &more))?;
                keys.extend(more);
            }
            (Outcome::Asks(_), Provider::Recorded(_)) => break,
        }
    }
    let what = format!("the template still asks for more after {MAX_ROUNDS} rounds of answers");
    Err(Failure::usage(anyhow::anyhow!(what)))
}

async fn answer(verifier: &mut Verifier, keys: &BTreeSet<String>) -> Result<(), Failure> {
    for text in keys {
        let key = match contract::parse(text) {
            Ok(key) => key,
            Err(error) => {
                verifier.known.refused(text, format!("{}: {error}", BadKey::CODE));
                continue;
            }
        };
        let reference = key.reference();
        let Some(rule) = verifier.policy.rule(reference) else {
            let answer = decision::no_policy(reference);
            verifier.known.looked(text, reference, &answer).map_err(Failure::usage)?;
            continue;
        };
        let wanted = rule.wanted(key.platforms(), verifier.nodes.as_ref(), this_host)?;
        let place = crate::image::open(reference, &verifier.client)?;
        let (namespace, now) = (key.namespace(), Timestamp::now());
        let question = Question { reference, namespace, rule, wanted: &wanted, now };
        match verify(&place, &question, &Limits::default()).await {
            Ok(answer) => {
                verifier.known.looked(text, reference, &answer).map_err(Failure::usage)?;
            }
            // What asking again would not change is told of the image; the rest is a breakdown.
            Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::BadInput) => {
                verifier.known.refused(text, format!("{:#}", anyhow::Error::new(error)));
            }
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(())
}

fn name(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (kind, name) = (text("/kind").unwrap_or("object"), text("/metadata/name"));
    name.map_or_else(|| kind.to_owned(), |name| format!("{kind}/{name}"))
}

fn table(tried: &Tried) -> String {
    let mut text = String::new();
    for one in &tried.results {
        let verdict = if one.violations.is_empty() { "admitted" } else { "denied" };
        let by = one.constraint.as_deref().map(|name| format!(" by {}", safe(name)));
        text += &format!("{}: {verdict}{}\n", safe(&one.object), by.unwrap_or_default());
        text.extend(one.violations.iter().map(|why| format!("  {}\n", safe_whole(why))));
    }
    text
}
