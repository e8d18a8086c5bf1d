//! `portolan build run --dir DIR --engine local --platform P… --output REF`

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use portolan_api::build::{BuildRunStatus, PlatformState};
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, EngineError, Origin, Request, Watch};
use portolan_build::names::Outputs;
use portolan_core::{Platform, Reference};
use portolan_registry::progress::{Progress, Silent};

use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::image::wanted;
use crate::progress::Mode;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan build run --dir . --engine local --platform linux/amd64 --platform linux/arm64 --output 127.0.0.1:5000/app:1 -o json\n\n\
    The Containerfile may do everything but RUN: no program is run, no root and no daemon are needed, and the same\n\
    directory gives the same digests on every machine. The source is stored as <tag>-src, each platform as\n\
    <tag>-<os>-<arch>, and the index as <tag> once every platform is there."
)]
pub(crate) struct Args {
    /// The directory that is built; with --source the one below it
    #[arg(long, value_name = "DIR", required_unless_present = "source")]
    dir: Option<PathBuf>,
    /// Build a source artifact, such as <tag>-src of an earlier build, instead of a directory
    #[arg(long, value_name = "REF")]
    source: Option<Reference>,
    /// Where it is built
    #[arg(long, value_enum)]
    engine: Engine,
    /// A platform, as os/arch[/variant] (repeatable, or with commas)
    #[arg(long = "platform", value_name = "PLATFORM", required = true, value_delimiter = ',', value_parser = wanted::platform)]
    platforms: Vec<Platform>,
    /// Where the index goes: registry/repository[:tag] or oci:DIR[:tag]
    #[arg(long, value_name = "REF")]
    output: Reference,
    /// The Containerfile; Containerfile or Dockerfile in DIR where nothing is said
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The stage that becomes the image; the last where nothing is said
    #[arg(long, value_name = "STAGE")]
    target: Option<String>,
    /// A value for an ARG, NAME=VALUE (repeatable)
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = crate::image::key_value)]
    build_args: Vec<(String, String)>,
    /// A label of every image, KEY=VALUE (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = crate::image::key_value)]
    labels: Vec<(String, String)>,
    /// An annotation of every image and of the index, KEY=VALUE (repeatable)
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = crate::image::key_value)]
    annotations: Vec<(String, String)>,
    /// So many platforms at a time; as many as there are processors where nothing is said
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Do not store the source beside the image
    #[arg(long)]
    no_source: bool,
    /// When everything in the image says it was made, in seconds since 1970
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
    source_date_epoch: u32,
    /// How to print the status of the run
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Where something is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// On this machine, by the embedded assembler
    Local,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let request = request(&args)?;
    let client = context::client(global)?;
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let watch = Lines { quiet: global.progress == Mode::None };
    let temp = std::env::temp_dir();
    let work = engine::run(&request, &temp, &client, &progress, &watch, now);
    let outcome = tokio::select! {
        outcome = work => outcome.map_err(failure)?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    args.format.print(&outcome.status, |status| table(status, &request))?;
    Ok(match (outcome.succeeded, outcome.class) {
        (true, _) => Exit::Ok,
        (false, None) => Exit::No,
        (false, Some(class)) => Exit::from(class),
    })
}

fn request(args: &Args) -> Result<Request, Failure> {
    match args.engine {
        Engine::Local => {}
    }
    let dir = args.dir.clone().unwrap_or_default();
    let below = |path: &PathBuf| {
        path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
    };
    let origin = match (&args.source, args.no_source) {
        (Some(source), _) => {
            if let Some(outside) = args.dir.iter().chain(&args.file).find(|path| !below(path)) {
                let error =
                    anyhow::anyhow!("{} is not below the source artifact", outside.display());
                return Err(Failure::usage(error));
            }
            Origin::Artifact(Box::new(source.clone()))
        }
        (None, _) if !dir.is_dir() => {
            let error = anyhow::anyhow!("there is no directory {}", dir.display());
            return Err(Failure::new(Exit::NotFound, error));
        }
        (None, true) => Origin::Directory,
        (None, false) => Origin::StoredDirectory,
    };
    let mut platforms: Vec<Platform> = Vec::new();
    for platform in &args.platforms {
        wanted::warn(platform);
        let platform = platform.normalised();
        if platforms.contains(&platform) {
            return Err(Failure::usage(anyhow::anyhow!("--platform {platform} is there twice")));
        }
        platforms.push(platform);
    }
    let outputs = Outputs::new(args.output.clone()).map_err(Failure::usage)?;
    let annotations: BTreeMap<String, String> = args.annotations.iter().cloned().collect();
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Ok(Request {
        recipe: Recipe {
            dir,
            file: args.file.clone(),
            target: args.target.clone(),
            args: args.build_args.iter().cloned().collect(),
            labels: args.labels.iter().cloned().collect(),
            annotations: annotations.clone(),
            epoch: args.source_date_epoch,
        },
        platforms,
        outputs,
        annotations,
        jobs: args.jobs.unwrap_or(processors),
        origin,
    })
}

fn failure(error: EngineError) -> Failure {
    match error.class() {
        Some(class) => context::classed(class, error),
        None => Failure::new(Exit::No, error),
    }
}

fn now() -> Time {
    Time(jiff::Timestamp::now())
}

/// One line for each thing that happens.
struct Lines {
    quiet: bool,
}

impl Lines {
    fn tell(&self, text: &str) {
        if !self.quiet {
            format::tell(text);
        }
    }
}

impl Watch for Lines {
    fn source(&self, image: &Reference, digest: &str) {
        self.tell(&format!("source        {image} {digest}"));
    }

    fn began(&self, platform: &Platform) {
        self.tell(&format!("{:13} building", platform.to_string()));
    }

    fn stored(&self, platform: &Platform, image: &Reference, digest: &str) {
        self.tell(&format!("{:13} {image} {digest}", platform.to_string()));
    }

    fn failed(&self, platform: &Platform, why: &str) {
        self.tell(&format!("{:13} failed: {why}", platform.to_string()));
    }

    fn skipped(&self, name: &Path) {
        self.tell(&format!("note: the socket {} is not part of the source", name.display()));
    }
}

fn table(status: &BuildRunStatus, request: &Request) -> String {
    let output = status.output.clone().unwrap_or_default();
    let rows = output.platforms.iter().map(|row| {
        let platform = [Some(&row.os), Some(&row.arch), row.variant.as_ref()];
        let platform: Vec<&str> = platform.into_iter().flatten().map(String::as_str).collect();
        let state = match row.state {
            PlatformState::Succeeded => "succeeded",
            _ => "failed",
        };
        let size = row.size.and_then(|size| u64::try_from(size).ok()).map(format::size);
        vec![
            platform.join("/"),
            state.to_owned(),
            size.unwrap_or_default(),
            row.digest.clone().unwrap_or_default(),
        ]
    });
    let table = format::table(&["PLATFORM", "STATE", "SIZE", "DIGEST"], rows.collect());
    let message = status.conditions.first().map(|c| c.message.as_str()).unwrap_or_default();
    let top = match &output.digest {
        Some(digest) => format!("{}\n{digest}", request.outputs.index()),
        None => format!("{}\n{}", request.outputs.index(), format::printable(message)),
    };
    format!("{top}\n\n{table}")
}
