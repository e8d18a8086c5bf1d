//! `portolan compat check IMAGE…` and `portolan compat check --spec FILE`

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

use portolan_compat::artifact::Kind;
use portolan_compat::check::{self, Options};
use portolan_compat::evaluate::Depth;
use portolan_compat::external::Origin;
use portolan_compat::plugins::Manner;
use portolan_compat::report::PlatformMatch;
use portolan_compat::requirements::{Question, ReadRequirements, Requirements};
use portolan_compat::{Mode, Report, nfd};
use portolan_core::platform::HostPlatform;
use portolan_core::{Digest, Reference};

use super::external::{PluginArgs, Plugins};
use super::hosts::{Machine, machines};
use super::images::{ArtifactArgs, Looked};
use super::matrix::{Cell, Matrix, exit};
use super::{Output, read_spec};
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan compat check 127.0.0.1:5000/app:1\n  \
    portolan compat check 127.0.0.1:5000/app:1 --host /host -o json\n  \
    portolan compat check 127.0.0.1:5000/app:1 127.0.0.1:5000/app:2 --facts node-1.json --facts node-2.json\n  \
    portolan compat check --spec needs.json --strict\n  \
    portolan compat check 127.0.0.1:5000/app:1 --plugin-policy policy.json --plugin-dir ./plugins\n\n\
    Exit codes: 0 compatible, 1 incompatible, 2 invalid, 3 unknown, 4 no such image, 5 transport, \
    6 no artifact; of several the worst.")]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "IMAGE")]
    images: Vec<Reference>,
    /// A spec or rules from a file instead of an image's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["images", "platform", "artifact", "artifact_ref"])]
    spec: Option<PathBuf>,
    /// The machine whose root directory this is, instead of this one
    #[arg(long, value_name = "ROOT", conflicts_with = "facts")]
    host: Option<PathBuf>,
    /// A machine whose facts were recorded with `host facts -o json` (repeatable)
    #[arg(long, value_name = "FILE")]
    facts: Vec<PathBuf>,
    #[command(flatten)]
    artifact: ArtifactArgs,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Of rules of NFD, only the sets with one of these tags
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tags: Vec<String>,
    /// Begin at this namespace instead of those that nobody refers to (repeatable)
    #[arg(long = "root", value_name = "NAME")]
    roots: Vec<String>,
    /// Look at no more than decides
    #[arg(long)]
    fail_fast: bool,
    /// Take what is wrong in a spec and yet understood for an error, and kernel options exactly as they are written:
    /// for m, y will not do
    #[arg(long)]
    strict: bool,
    /// How to print the report
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    format: Output,
}

impl Args {
    fn question(&self) -> Question<'_> {
        let depth = if self.fail_fast { Depth::UntilDecided } else { Depth::Everything };
        let manner = Manner { exact_options: self.strict };
        Question { options: Options { roots: &self.roots, depth, manner }, tags: &self.tags }
    }

    fn mode(&self) -> Mode {
        if self.strict { Mode::Strict } else { Mode::Lenient }
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<Exit, Failure> {
    if args.images.is_empty() && args.spec.is_none() {
        let error = anyhow::anyhow!("name an image, or a file with --spec FILE");
        return Err(Failure::usage(error));
    }
    let machines = machines(args.host.as_deref(), &args.facts)?;
    let outcomes = match &args.spec {
        Some(file) => of_file(file, &machines, args, global)?,
        None => context::wait(of_images(&machines, args, global))?,
    };
    match <[_; 1]>::try_from(outcomes) {
        Ok([(_, _, outcome)]) => {
            let report = outcome?;
            args.format.print(&report)?;
            Ok(exit(report.verdict))
        }
        Err(several) => {
            let cells = several.into_iter();
            let cells = cells.map(|(host, image, outcome)| Cell::new(host, image, outcome));
            let matrix = Matrix::new(machines.len(), cells.collect());
            args.format.print_matrix(&matrix)?;
            Ok(matrix.exit())
        }
    }
}

/// A machine, an image or file, and what came of it.
type Outcome = (String, String, Result<Report, Failure>);

/// What is in a file waits for nobody, unless it asks for a plugin that has to be fetched.
fn of_file(
    file: &std::path::Path,
    machines: &[Machine],
    args: &Args,
    global: &Global,
) -> Result<Vec<Outcome>, Failure> {
    let bytes = read_spec(file)?;
    let kind = if nfd::looks_like_rules(&bytes) { Kind::Nfd } else { Kind::Spec };
    let ReadRequirements { requirements, warnings } =
        Requirements::read_in(args.mode(), kind, &bytes).map_err(Failure::usage)?;
    let name = file.display().to_string();
    let question = args.question();
    let mut plugins = if asks_external(&requirements, &question)? {
        let origin = Origin::default();
        context::wait(Plugins::of(&requirements, &question, &origin, &args.plugins, global))?
    } else {
        Plugins::default()
    };
    let outcome = |machine: &Machine| {
        let asked = ask(&requirements, machine, &question, &mut plugins);
        let report = asked.map(|mut report| {
            report.warnings.splice(0..0, warnings.iter().cloned());
            report
        });
        (called(machine), name.clone(), report)
    };
    Ok(machines.iter().map(outcome).collect())
}

fn asks_external(requirements: &Requirements, question: &Question<'_>) -> Result<bool, Failure> {
    match requirements {
        Requirements::Spec(spec) => {
            check::asks_external(spec, &question.options).map_err(Failure::usage)
        }
        Requirements::Nfd(_) => Ok(false),
    }
}

async fn of_images(
    machines: &[Machine],
    args: &Args,
    global: &Global,
) -> Result<Vec<Outcome>, Failure> {
    let named = args.artifact.named();
    let client = context::client(global)?;
    let mut outcomes = Vec::new();
    for reference in &args.images {
        let name = reference.to_string();
        match Looked::up(reference, &args.artifact, &client).await {
            Ok(looked) => {
                let looked = looked.reading(args.mode());
                let mut asked = Asked { looked, reference, args, global, plugins: HashMap::new() };
                for machine in machines {
                    let outcome = asked.about(machine, named.as_ref()).await;
                    outcomes.push((called(machine), name.clone(), outcome));
                }
            }
            // One image alone fails with its own words; among several the others are answered.
            Err(failure) => {
                let Failure { exit, error } = failure;
                let text = format!("{error:#}");
                let mut first = Some(error);
                for machine in machines {
                    let error = first.take().unwrap_or_else(|| anyhow::anyhow!("{text}"));
                    let failed = Err(Failure::new(exit, error));
                    outcomes.push((called(machine), name.clone(), failed));
                }
            }
        }
    }
    Ok(outcomes)
}

/// An image that machines are asked about.
struct Asked<'a> {
    looked: Looked,
    reference: &'a Reference,
    args: &'a Args,
    global: &'a Global,
    /// By artifact: found once, however many machines there are.
    plugins: HashMap<Digest, Plugins>,
}

impl Asked<'_> {
    /// Asks about a machine, for the platform that was named or else its own.
    async fn about(
        &mut self,
        machine: &Machine,
        named: Option<&HostPlatform>,
    ) -> Result<Report, Failure> {
        let host = named.cloned().map_or_else(|| machine.platform(), Ok)?;
        let selection = match self.looked.select(&host) {
            // People are told in words; a program waits for a document.
            Err(Failure { exit: Exit::No, error }) if self.args.format == Output::Json => {
                let mut report = Report::nothing_runs(host.to_string(), format!("{error:#}"));
                report.host = machine.name().map(|name| format::safe(&name));
                report.image = Some(self.reference.to_string());
                return Ok(report);
            }
            selection => selection?,
        };
        let needs = self.looked.needs(selection.chosen.digest).await?;
        let question = self.args.question();
        let plugins = match self.plugins.entry(needs.found.digest) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let (origin, args) = (needs.origin(), &self.args.plugins);
                let found =
                    Plugins::of(&needs.requirements, &question, &origin, args, self.global).await?;
                place.insert(found)
            }
        };
        let mut report = ask(&needs.requirements, machine, &question, plugins)?;
        report.warnings.splice(0..0, needs.warnings.iter().cloned());
        report.image = Some(self.reference.to_string());
        report.subject = Some(needs.found.contents.subject.to_string());
        report.artifact = Some(needs.found.digest.to_string());
        let image = selection.platform.map(|platform| platform.to_string()).unwrap_or_default();
        report.platform = Some(PlatformMatch { host: host.to_string(), image, matches: true });
        Ok(report)
    }
}

/// Collects what the requirements look at, and asks them.
pub(super) fn ask(
    requirements: &Requirements,
    machine: &Machine,
    question: &Question<'_>,
    plugins: &mut Plugins,
) -> Result<Report, Failure> {
    let wanted = requirements.needs(question).map_err(Failure::usage)?.and(plugins.wanted());
    let facts = machine.facts(&wanted)?;
    let report = requirements.check(&facts, question, plugins.about(machine));
    let mut report = report.map_err(Failure::usage)?;
    report.host = machine.name().map(|name| format::safe(&name));
    Ok(report)
}

fn called(machine: &Machine) -> String {
    machine.name().unwrap_or_else(|| "this host".to_owned())
}
