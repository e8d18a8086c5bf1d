//! `portolan compat affinity IMAGE`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use portolan_compat::affinity::formula::Condition;
use portolan_compat::affinity::{Affinity, Unsaid};
use portolan_compat::artifact::{Kind, MAX_SPEC_BYTES};
use portolan_compat::nfd;
use portolan_compat::requirements::Requirements;
use portolan_core::{Digest, Platform, Reference, media_type};
use serde::Serialize;

use super::images::{ArtifactArgs, Looked};
use super::read_file;
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan compat affinity 127.0.0.1:5000/app:1 > affinity.yaml\n  \
    portolan compat affinity --spec needs.json --strict\n\n\
    The labels are NFD's; `host facts --node-labels` prints those of a host. What labels cannot say is \
    listed as comments, and lets nodes through that `compat check` would not."
)]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "IMAGE", required_unless_present = "spec")]
    image: Option<Reference>,
    /// A spec or rules from a file instead of an image's
    #[arg(long, value_name = "FILE", conflicts_with_all = ["image", "platform", "artifact", "artifact_ref"])]
    spec: Option<PathBuf>,
    #[command(flatten)]
    artifact: ArtifactArgs,
    /// Of rules of NFD, only the sets with one of these tags
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tags: Vec<String>,
    /// Fail if there is something that labels cannot say
    #[arg(long)]
    strict: bool,
    /// How to print it: `table` is YAML with comments
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The part of a pod's spec.
#[derive(Serialize)]
struct Printed<'a> {
    affinity: NodeAffinity,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unsaid: &'a [Unsaid],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeAffinity {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_affinity: Option<Required>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Required {
    required_during_scheduling_ignored_during_execution: Terms,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Terms {
    node_selector_terms: Vec<Term>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    match_expressions: Vec<MatchExpression>,
}

#[derive(Serialize)]
struct MatchExpression {
    key: String,
    operator: portolan_compat::affinity::formula::Operator,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

impl From<&Condition> for MatchExpression {
    fn from(condition: &Condition) -> Self {
        let Condition { key, operator, values } = condition.clone();
        Self { key, operator, values }
    }
}

impl NodeAffinity {
    /// A list without terms would match no node, so what holds everywhere has none.
    fn new(affinity: &Affinity) -> Self {
        if affinity.formula.is_always() {
            return Self { node_affinity: None };
        }
        let terms =
            affinity.formula.alternatives().iter().map(|all| Term {
                match_expressions: all.iter().map(MatchExpression::from).collect(),
            });
        let terms = Terms { node_selector_terms: terms.collect() };
        let required = Required { required_during_scheduling_ignored_during_execution: terms };
        Self { node_affinity: Some(required) }
    }
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let affinity = match (&args.spec, &args.image) {
        (Some(file), _) => {
            let bytes = read_file(file, MAX_SPEC_BYTES)?;
            let kind = if nfd::looks_like_rules(&bytes) { Kind::Nfd } else { Kind::Spec };
            let read = Requirements::read(kind, &bytes).map_err(Failure::usage)?;
            Affinity::of(&read.requirements, &args.tags).map_err(Failure::usage)?
        }
        (None, Some(reference)) => of_image(reference, &args, global).await?,
        (None, None) => {
            return Err(Failure::usage(anyhow::anyhow!("name an image or --spec FILE")));
        }
    };
    if affinity.formula.alternatives().is_empty() {
        let error = anyhow::anyhow!("no node can have labels that meet this");
        return Err(Failure::new(Exit::No, error));
    }
    if args.strict && !affinity.unsaid.is_empty() {
        let lines: String =
            affinity.unsaid.iter().map(|one| format!("\n  {}", line(one))).collect();
        let error = anyhow::anyhow!("labels cannot say all of it:{lines}");
        return Err(Failure::new(Exit::No, error));
    }
    let printed = Printed { affinity: NodeAffinity::new(&affinity), unsaid: &affinity.unsaid };
    match args.format {
        Format::Table => format::write(&commented(&printed)?)?,
        other => other.print(&printed, |_| String::new())?,
    }
    Ok(Exit::Ok)
}

fn line(unsaid: &Unsaid) -> String {
    format!("{}: {}", unsaid.place, unsaid.requirement)
}

fn commented(printed: &Printed<'_>) -> Result<String, Failure> {
    let mut text = String::new();
    for unsaid in printed.unsaid {
        let _ = writeln!(text, "# labels cannot say: {}", line(unsaid));
    }
    if printed.affinity.node_affinity.is_none() {
        text += "# any node may run it, as far as labels tell\n";
    }
    let alone = BTreeMap::from([("affinity", &printed.affinity)]);
    text += &format::yaml(&alone)?;
    Ok(text)
}

/// Every image of an index is an alternative: a node that runs one of them will do.
async fn of_image(
    reference: &Reference,
    args: &Args,
    global: &Global,
) -> Result<Affinity, Failure> {
    let client = context::client(global)?;
    let mut looked = Looked::up(reference, &args.artifact, &client).await?;
    let wanted = args.artifact.platform.as_ref().map(Platform::normalised);
    let images: Vec<(Digest, Option<Platform>)> = looked
        .candidates()
        .manifests()
        .filter(|(one, _)| one.artifact_type.as_deref().is_none_or(media_type::is_image_config))
        .map(|(one, platform)| (one.digest, platform.map(Platform::normalised)))
        .filter(|(_, platform)| platform.as_ref().is_none_or(|platform| !platform.is_unknown()))
        .filter(|(_, platform)| wanted.is_none() || *platform == wanted)
        .collect();
    let (mut all, mut asks) = (None::<Affinity>, false);
    for (manifest, platform) in images {
        let own = match looked.needs(manifest).await {
            Ok(needs) => {
                asks = true;
                Affinity::of(&needs.requirements, &args.tags).map_err(Failure::usage)?
            }
            Err(failure) if failure.exit == Exit::NoArtifact => Affinity::anywhere(),
            Err(failure) => return Err(failure),
        };
        let own = platform.iter().fold(own, |own, platform| own.on(platform));
        all = Some(match all {
            Some(all) => all.or(own),
            None => own,
        });
    }
    match (all, asks) {
        (Some(all), true) => Ok(all),
        (None, _) => {
            let error = anyhow::anyhow!("{reference} has no image for that platform");
            Err(Failure::new(Exit::NotFound, error))
        }
        (Some(_), false) => {
            let error = anyhow::anyhow!("nothing says what {reference} needs");
            Err(Failure::new(Exit::NoArtifact, error))
        }
    }
}
