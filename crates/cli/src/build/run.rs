//! `portolan build run NAME`, in a cluster or on this machine

use std::num::NonZeroUsize;
use std::path::PathBuf;

use portolan_api::ResourceExt as _;
use portolan_api::build::Build;
use portolan_build::{engine, request};
use portolan_core::Reference;

use super::local;
use crate::cli::Global;
use crate::cluster::wishes::{Becomes, Wished};
use crate::cluster::{self, Cluster, created, follow};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan build run sample-go --platform-class default --platform linux/amd64 --platform linux/arm64 --follow\n  portolan build run --dir . --engine local --platform linux/amd64 --platform linux/arm64 --output 127.0.0.1:5000/app:1 -o json\n  portolan build run -f build.yaml -f strategy.yaml --engine local --dir .\n\n\
    In a cluster, what is said here counts for this run alone; of --platform and --platform-class the one that is not\n\
    said is the Build's.\n\n\
    On this machine the Containerfile may do everything but RUN: no program is run, no root and no daemon are needed,\n\
    and the same directory gives the same digests on every machine. The source is stored as <tag>-src, each platform\n\
    as <tag>-<os>-<arch>, and the index as <tag> once every platform is there."
)]
pub(crate) struct Args {
    /// The Build that is run
    pub(super) name: Option<String>,
    /// Where it is built
    #[arg(long, value_enum, default_value_t = Engine::Cluster)]
    engine: Engine,
    #[command(flatten)]
    pub(super) wished: Wished,
    #[command(flatten)]
    becomes: Becomes,
    /// Who runs it: a service account, or .generate for one of its own
    #[arg(long, value_name = "NAME")]
    pub(super) sa_name: Option<String>,
    /// Follow the run to its end
    #[arg(short = 'F', long)]
    follow: bool,
    /// Only print what would be made
    #[arg(long)]
    dry_run: bool,
    /// How to print the run, or on this machine its status
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) here: Here,
    #[command(flatten)]
    pub(super) cluster: cluster::Flags,
}

// What only this machine can be told.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "On this machine (--engine local)")]
pub(super) struct Here {
    /// A file with the Build, its strategy and platforms (repeatable), or - for stdin
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// The directory that is built; with --source the one below it
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Build a source artifact, such as <tag>-src of an earlier build, instead of a directory
    #[arg(long, value_name = "REF")]
    pub(super) source: Option<Reference>,
    /// The stage that becomes the image; the last where nothing is said
    #[arg(long, value_name = "STAGE")]
    pub(super) target: Option<String>,
    /// So many platforms at a time; as many as there are processors where nothing is said
    #[arg(long, value_name = "N")]
    pub(super) jobs: Option<NonZeroUsize>,
    /// Who puts the images together; auto, or what the strategy of a Build stands for
    #[arg(long, value_enum)]
    pub(super) backend: Option<Backend>,
    /// Do not store the source beside the image
    #[arg(long)]
    pub(super) no_source: bool,
    /// When everything in the image says it was made, in seconds since 1970
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
    pub(super) source_date_epoch: u32,
}

impl Here {
    /// The first of them that a cluster has no use for.
    fn said(&self) -> Option<&'static str> {
        let said = [
            ("--file", !self.files.is_empty()),
            ("--dir", self.dir.is_some()),
            ("--source", self.source.is_some()),
            ("--target", self.target.is_some()),
            ("--jobs", self.jobs.is_some()),
            ("--backend", self.backend.is_some()),
            ("--no-source", self.no_source),
        ];
        said.into_iter().find_map(|(flag, said)| said.then_some(flag))
    }
}

/// Who puts images together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Backend {
    /// The assembler where nothing is run, buildah where RUN is
    Auto,
    /// The embedded assembler: no program is run
    Assembler,
    /// buildah, in a chroot; needs root, and emulation for other platforms
    Buildah,
}

impl From<Backend> for engine::Backend {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Auto => Self::Auto,
            Backend::Assembler => Self::Assembler,
            Backend::Buildah => Self::Buildah,
        }
    }
}

/// Where something is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// By the pods of a cluster
    Cluster,
    /// On this machine, by the embedded assembler or buildah
    Local,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    match args.engine {
        Engine::Local => {
            let only = [("--follow", args.follow), ("--dry-run", args.dry_run)];
            let only = only.into_iter().find_map(|(flag, said)| said.then_some(flag));
            if let Some(flag) = only.or_else(|| args.becomes.said()) {
                let error =
                    anyhow::anyhow!("{flag} is for clusters; leave it out with --engine local");
                return Err(Failure::usage(error));
            }
            local::run(args, global).await
        }
        Engine::Cluster => in_cluster(args, global).await,
    }
}

async fn in_cluster(args: Args, global: &Global) -> Result<Exit, Failure> {
    if let Some(flag) = args.here.said() {
        let error = anyhow::anyhow!(
            "{flag} is for builds on this machine; add --engine local, or use portolan build upload to send a directory to a cluster"
        );
        return Err(Failure::usage(error));
    }
    let Some(name) = &args.name else {
        let error = anyhow::anyhow!(
            "name the Build that is run, or build a directory here: --dir DIR --engine local"
        );
        return Err(Failure::usage(error));
    };
    let wishes = args.wished.wishes();
    let cluster = Cluster::connect(&args.cluster).await?;
    let build: Build = cluster.get(&cluster.here(), name).await?;
    let mut run =
        request::run(&build, None, &wishes, args.sa_name.as_deref()).map_err(Failure::usage)?;
    args.becomes.say(&mut run);
    created::check(&run)?;
    if args.dry_run {
        let told = format!("Would create BuildRun {:?} for build {name:?}", created::name(&run));
        created::print(&run, args.format, &told)?;
        return Ok(Exit::Ok);
    }
    let made = cluster.create(&cluster.here(), &run).await?;
    let told = format!("BuildRun created {:?} for build {name:?}", made.name_any());
    if !args.follow {
        created::print(&made, args.format, &told)?;
        return Ok(Exit::Ok);
    }
    format::tell(&told);
    follow::follow(&cluster, &made, global.progress, args.format).await
}
