//! `portolan build plan -f FILE…`

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use portolan_api::ResourceExt as _;
use portolan_api::reason::Reason;
use portolan_build::plan::{self, Objects, Plan, Refusal, Settings, Work};
use portolan_build::{request, tekton};
use portolan_core::{Reference, RegistryReference};
use serde_json::{Value, json};

use super::files;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan build plan -f build.yaml -f platforms.yaml -f strategy.yaml -o yaml\n\n\
    The files hold the Build, its BuildRun, the strategy, the ImagePlatformClass and its ImagePlatforms, in any\n\
    order; nothing else is looked at. Without a BuildRun a plain run of every Build is planned. What the controller was\n\
    told by --source-repository and --service-account is to be said here, too. Exit code 1: at least one run is refused."
)]
pub(crate) struct Args {
    /// A file of resources, or - for stdin (repeatable)
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The image of the steps that are Portolan's own
    #[arg(long, value_name = "IMAGE", default_value_t = step_image())]
    step_image: String,
    /// Who runs pods of BuildRuns that name nobody; the controller takes `pipeline` or `default`
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Where the controller stores sources, as its own --source-repository says; beside the image otherwise
    #[arg(long, value_name = "REPOSITORY", value_parser = repository)]
    source_repository: Option<RegistryReference>,
    /// How to print the plan
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
}

/// A repository of a registry, and nothing in it.
fn repository(text: &str) -> Result<RegistryReference, &'static str> {
    match text.parse() {
        Ok(Reference::Registry(found)) if found.tag.is_none() && found.digest.is_none() => {
            Ok(found)
        }
        _ => Err("it is no repository; write registry.example/sources, without a tag"),
    }
}

/// The image of this very version.
fn step_image() -> String {
    format!("ghcr.io/portolan-dev/portolan:{}", env!("CARGO_PKG_VERSION"))
}

/// What is planned with where nobody says otherwise.
pub(crate) fn settings() -> Settings {
    Settings {
        step_image: step_image(),
        service_account: None,
        source_repository: None,
        created: now(),
    }
}

/// A run, and what came of planning it.
struct Planned {
    run: String,
    outcome: Result<Plan, Vec<Refusal>>,
}

impl Planned {
    /// The object, or the refusals.
    fn document(&self) -> Value {
        match &self.outcome {
            Ok(plan) => tekton::render(plan),
            Err(refusals) => json!({ "buildRun": self.run, "refusals": refusals }),
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |phase: &str, task: &str, platform: &str, image: &str, steps: String| {
            [&self.run, phase, task, platform, image, &steps].map(str::to_owned).to_vec()
        };
        let steps = |task: &plan::Task| {
            task.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        match &self.outcome {
            Err(refusals) => refusals
                .iter()
                .map(|r| row("refused", r.reason.as_str(), "", "", r.message.clone()))
                .collect(),
            Ok(Plan { work: Work::Single(task), .. }) => {
                vec![row("build", &task.name, "", "", steps(task))]
            }
            Ok(Plan { work: Work::Multi(phases), .. }) => {
                let plain =
                    |phase: &str, task: &plan::Task| row(phase, &task.name, "", "", steps(task));
                let mut rows: Vec<_> = phases.source.iter().map(|t| plain("source", t)).collect();
                rows.extend(phases.platforms.iter().map(|p| {
                    let (platform, image) = (p.platform.to_string(), p.image.to_string());
                    row("build", &p.task.name, &platform, &image, steps(&p.task))
                }));
                rows.push(plain("index", &phases.index));
                rows.extend(phases.prune.iter().map(|task| plain("finally", task)));
                rows
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let (runs, objects) = files::sort(files::read_all(&args.files)?);
    let plain = || objects.builds.iter().map(request::plain_run).collect();
    let runs = if runs.is_empty() { plain() } else { runs };
    if runs.is_empty() {
        let error = anyhow::anyhow!(
            "the files have neither a BuildRun nor a Build, so there is nothing to plan"
        );
        return Err(Failure::usage(error));
    }
    let settings = Settings {
        step_image: args.step_image.clone(),
        service_account: args.service_account.clone(),
        source_repository: args.source_repository.clone(),
        ..settings()
    };
    let planned: Vec<Planned> = runs
        .iter()
        .map(|run| {
            let near = in_namespace(&objects, run.metadata.namespace.as_deref());
            Planned { run: run.name_any(), outcome: plan::plan(run, &near, &settings) }
        })
        .collect();
    print(&planned, args.format)?;
    tell_missing(&planned);
    let refused = planned.iter().any(|planned| planned.outcome.is_err());
    Ok(if refused { Exit::No } else { Exit::Ok })
}

/// Unlike a build on this machine, which knows what comes with Portolan, a plan is for a cluster that nobody here knows.
fn tell_missing(planned: &[Planned]) {
    const MISSING: [Reason; 4] = [
        Reason::BuildNotFound,
        Reason::BuildStrategyNotFound,
        Reason::ClusterBuildStrategyNotFound,
        Reason::ImagePlatformClassNotFound,
    ];
    let mut refusals = planned.iter().filter_map(|planned| planned.outcome.as_ref().err());
    if refusals.any(|all| all.iter().any(|refusal| MISSING.contains(&refusal.reason))) {
        format::tell(
            "note: only the files are looked at; give what is missing by -f, too (what comes with Portolan is \
             printed by: portolan install --components build)",
        );
    }
}

fn print(planned: &[Planned], format: Format) -> Result<(), Failure> {
    let text = match (format, planned) {
        (Format::Table, _) => {
            let header = ["BUILDRUN", "PHASE", "TASK", "PLATFORM", "IMAGE", "STEPS"];
            format::table(&header, planned.iter().flat_map(Planned::rows).collect())
        }
        (Format::Json, [one]) => format::json(&one.document())?,
        (Format::Json, many) => {
            format::json(&many.iter().map(Planned::document).collect::<Vec<_>>())?
        }
        (Format::Yaml, all) => {
            let documents: Result<Vec<_>, _> =
                all.iter().map(|planned| format::yaml(&planned.document())).collect();
            documents?.join("---\n")
        }
    };
    format::write(&text)
}

/// What a run of this namespace can see. A file need not say a namespace.
fn in_namespace(objects: &Objects, namespace: Option<&str>) -> Objects {
    let near = |other: Option<&str>| other.is_none() || namespace.is_none() || other == namespace;
    let mut seen = objects.clone();
    seen.builds.retain(|build| near(build.metadata.namespace.as_deref()));
    seen.strategies.retain(|strategy| near(strategy.metadata.namespace.as_deref()));
    seen
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
