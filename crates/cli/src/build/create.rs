//! `portolan build create NAME`

use std::path::PathBuf;

use portolan_api::Duration;
use portolan_api::build::{Build, Git, Local, OciArtifact, Prune, Source, SourceKind};
use portolan_build::request::{self, BuildWishes};

use super::files;
use crate::cluster::wishes::{Wished, warn_of_source};
use crate::cluster::{self, Cluster, created, duration};
use crate::exit::{Exit, Failure};
use crate::format::Format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan build create sample-go --strategy=source-to-image --output quay.io/you/sample-go:v1 \\\n    --platform=linux/amd64 --platform=linux/arm64 --platform-class default\n  portolan build create -f build.yaml --output quay.io/you/sample-go:v2 --dry-run -o yaml\n\n\
    With -f, what is said on the command line goes on top of the file."
)]
pub(crate) struct Args {
    /// What it is called
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// A file with a Build to start from, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    source: SourceFlags,
    /// The strategy that builds it
    #[arg(long, visible_alias = "strategy", value_name = "NAME")]
    strategy_name: Option<String>,
    /// Whose strategy: the cluster's, or the namespace's (BuildStrategy)
    #[arg(long, value_name = "KIND", value_parser = ["ClusterBuildStrategy", "BuildStrategy"])]
    strategy_kind: Option<String>,
    #[command(flatten)]
    wished: Wished,
    /// How many failed runs are kept
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    retention_failed_limit: Option<i32>,
    /// How many successful runs are kept
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    retention_succeeded_limit: Option<i32>,
    /// Whether runs are deleted with the Build
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    retention_at_build_deletion: Option<bool>,
    /// Only print what would be made; no cluster is asked
    #[arg(long)]
    dry_run: bool,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

// Where the source comes from: one of three.
#[derive(Debug, clap::Args)]
struct SourceFlags {
    /// The git repository
    #[arg(long, value_name = "URL", alias = "source-url", group = "kind")]
    source_git_url: Option<String>,
    /// Its branch, tag or commit
    #[arg(long, value_name = "REV", alias = "source-revision", requires = "source_git_url")]
    source_git_revision: Option<String>,
    /// The Secret that opens it
    #[arg(
        long,
        value_name = "SECRET",
        alias = "source-credentials-secret",
        requires = "source_git_url"
    )]
    source_git_clone_secret: Option<String>,
    /// How much of its history; 0 for all of it
    #[arg(long, value_name = "N", requires = "source_git_url", value_parser = clap::value_parser!(i32).range(0..))]
    source_git_depth: Option<i32>,
    /// The artifact in a registry that holds the source
    #[arg(long, value_name = "REF", alias = "source-bundle-image", group = "kind")]
    source_oci_artifact_image: Option<String>,
    /// The Secret that opens it
    #[arg(long, value_name = "SECRET", requires = "source_oci_artifact_image")]
    source_oci_artifact_pull_secret: Option<String>,
    /// Whether it is deleted once it was pulled
    #[arg(
        long,
        value_name = "WHEN",
        alias = "source-bundle-prune",
        requires = "source_oci_artifact_image"
    )]
    source_oci_artifact_prune: Option<Pruned>,
    /// The source is sent for each run: portolan build upload
    #[arg(long, group = "kind")]
    source_local: bool,
    /// How long a run waits for it
    #[arg(long, value_name = "DURATION", requires = "source_local", value_parser = duration)]
    source_local_timeout: Option<Duration>,
    /// The directory in the source that is built
    #[arg(long, value_name = "DIR")]
    source_context_dir: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Pruned {
    Never,
    AfterPull,
}

impl SourceFlags {
    fn source(&self) -> Option<Source> {
        let of = |kind, git, oci_artifact, local| {
            Some(Source { kind, context_dir: None, git, oci_artifact, local })
        };
        if let Some(url) = &self.source_git_url {
            let git = Git {
                url: url.clone(),
                revision: self.source_git_revision.clone(),
                clone_secret: self.source_git_clone_secret.clone(),
                depth: self.source_git_depth,
            };
            return of(SourceKind::Git, Some(git), None, None);
        }
        if let Some(image) = &self.source_oci_artifact_image {
            let prune = self.source_oci_artifact_prune.map(|prune| match prune {
                Pruned::Never => Prune::Never,
                Pruned::AfterPull => Prune::AfterPull,
            });
            let pull_secret = self.source_oci_artifact_pull_secret.clone();
            let artifact = OciArtifact { image: image.clone(), prune, pull_secret };
            return of(SourceKind::Oci, None, Some(artifact), None);
        }
        let local = Local { name: None, timeout: self.source_local_timeout };
        self.source_local.then(|| of(SourceKind::Local, None, None, Some(local))).flatten()
    }
}

impl Args {
    fn build(&self) -> Result<Build, Failure> {
        let base = match &self.file {
            Some(file) => {
                let (runs, objects) = files::sort(files::read_all(std::slice::from_ref(file))?);
                files::pass_over(&runs);
                Some(files::one_build(&objects.builds, self.name.as_deref())?)
            }
            None => None,
        };
        // The strategies that come with a cluster are the cluster's.
        let usual = base.is_none().then(|| "ClusterBuildStrategy".to_owned());
        let wishes = BuildWishes {
            common: self.wished.wishes(),
            source: self.source.source(),
            context_dir: self.source.source_context_dir.clone(),
            strategy: self.strategy_name.clone(),
            strategy_kind: self.strategy_kind.clone().or(usual),
            failed_limit: self.retention_failed_limit,
            succeeded_limit: self.retention_succeeded_limit,
            at_build_deletion: self.retention_at_build_deletion,
        };
        let build = request::build(base, self.name.as_deref(), &wishes).map_err(Failure::usage)?;
        created::check(&build)?;
        Ok(build)
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let mut build = args.build()?;
    warn_of_source(request::published_source(&build.spec));
    let name = created::name(&build);
    if args.dry_run {
        let named = args.cluster.namespace().map(str::to_owned);
        build.metadata.namespace = named.or(build.metadata.namespace);
        created::print(&build, args.format, &format!("Would create build {name:?}"))?;
        return Ok(Exit::Ok);
    }
    let mut cluster = Cluster::connect(&args.cluster).await?;
    cluster.prefer(args.cluster.namespace(), build.metadata.namespace.as_deref());
    build.metadata.namespace = Some(cluster.namespace.clone());
    let made = cluster.create(&cluster.here(), &build).await?;
    created::print(&made, args.format, &format!("Created build {name:?}"))?;
    Ok(Exit::Ok)
}
