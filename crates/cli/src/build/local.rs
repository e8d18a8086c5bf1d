//! `portolan build run --engine local`: the embedded engine.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use portolan_api::build::{Build, BuildRunStatus, Git, PlatformState};
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, EngineError, Origin, Request, Watch};
use portolan_build::names::Outputs;
use portolan_build::plan::Objects;
use portolan_build::request::{self, BuildWishes, LocalBuild, LocalError, LocalSource};
use portolan_build::steps::{
    self,
    git::{Clone, redacted},
};
use portolan_core::{Platform, Reference};
use portolan_registry::progress::{Progress, Silent};

use super::run::Args;
use super::{files, plan_settings};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format;
use crate::image::wanted;
use crate::progress::Mode;

pub(super) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    // An empty directory to build in or clone to, where a Build says so.
    let empty = tempfile::tempdir().map_err(|error| Failure::new(Exit::Transport, error))?;
    let request = match args.name.is_some() || !args.here.files.is_empty() {
        true => of_build(&args, empty.path()).await?,
        false => of_flags(&args)?,
    };
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

/// What is built where a Build says it: in files, or in a cluster.
async fn of_build(args: &Args, empty: &Path) -> Result<Request, Failure> {
    let (build, objects) = found(args).await?;
    let wishes = BuildWishes { common: args.wished.wishes(), ..BuildWishes::default() };
    let build = request::build(Some(build), None, &wishes).map_err(Failure::usage)?;
    let local =
        request::local(&build, &objects, &plan_settings()).map_err(|error| match error {
            LocalError::Refused(_) | LocalError::Strategy { .. } | LocalError::NoBackend(_) => {
                Failure::new(Exit::No, error)
            }
            _ => Failure::usage(error),
        })?;
    let (dir, origin) = origin(args, &local, empty)?;
    let context = local.context_dir.clone().unwrap_or_default();
    let file = local.file.as_ref().map(|file| context.join(file));
    let (dir, file) = match origin {
        // Nothing is there yet: the engine looks when it is.
        Origin::Artifact(_) => (dir.join(&context), file.map(|file| dir.join(file))),
        // The Build and what it leads to may be a stranger's.
        Origin::Directory | Origin::StoredDirectory => {
            let inside = |path: PathBuf| engine::inside(&dir, &path).map_err(failure);
            (inside(context)?, file.map(inside).transpose()?)
        }
    };
    Ok(Request {
        recipe: Recipe {
            file,
            dir,
            target: args.here.target.clone().or(local.target),
            args: local.args,
            labels: local.labels,
            annotations: local.annotations.clone(),
            epoch: local.epoch.unwrap_or(args.here.source_date_epoch),
        },
        platforms: local.platforms,
        outputs: local.outputs,
        annotations: local.annotations,
        jobs: jobs(args),
        origin,
        backend: args.here.backend.map_or(local.backend, Into::into),
    })
}

async fn found(args: &Args) -> Result<(Build, Objects), Failure> {
    if !args.here.files.is_empty() {
        let (_, objects) = files::sort(files::read_all(&args.here.files)?);
        let build = files::one_build(&objects.builds, args.name.as_deref())?;
        return Ok((build, objects));
    }
    let name = args.name.as_deref().unwrap_or_default();
    let cluster = Cluster::connect(&args.cluster).await?;
    Ok((cluster.get(&cluster.here(), name).await?, cluster.objects().await?))
}

/// Where the source of a Build is, on this machine. A directory or artifact on the command line
/// takes its place.
fn origin(args: &Args, local: &LocalBuild, empty: &Path) -> Result<(PathBuf, Origin), Failure> {
    if let Some(source) = &args.here.source {
        let dir = args.here.dir.clone().unwrap_or_default();
        return Ok((dir, Origin::Artifact(Box::new(source.clone()))));
    }
    if let Some(dir) = &args.here.dir {
        return Ok((existing(dir)?, stored(args)));
    }
    match &local.source {
        LocalSource::Nothing => Ok((empty.to_owned(), Origin::Directory)),
        LocalSource::Artifact(reference) => {
            Ok((PathBuf::new(), Origin::Artifact(reference.clone())))
        }
        LocalSource::Directory => Err(Failure::usage(anyhow::anyhow!(
            "the source of the Build is sent by somebody; say which directory: --dir DIR"
        ))),
        LocalSource::Git(git) => Ok((cloned(git, empty)?, stored(args))),
    }
}

/// Clones as a pod would; a secret is in a cluster, where only its pods see it.
fn cloned(git: &Git, to: &Path) -> Result<PathBuf, Failure> {
    if let Some(secret) = &git.clone_secret {
        let error = anyhow::anyhow!(
            "the source {} needs the secret {secret} of a cluster; clone it and add --dir DIR",
            redacted(&git.url)
        );
        return Err(Failure::usage(error));
    }
    let request = Clone {
        url: git.url.clone(),
        target: to.to_owned(),
        revision: git.revision.clone(),
        // Less than nothing means nothing was meant, as in a cluster.
        depth: git.depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or(1),
        secret: None,
        rewrite: false,
    };
    let temp = std::env::temp_dir();
    steps::git::clone(&request, &temp, &|line| format::tell(line))
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    Ok(to.to_owned())
}

fn existing(dir: &Path) -> Result<PathBuf, Failure> {
    match dir.is_dir() {
        true => Ok(dir.to_owned()),
        false => {
            let error = anyhow::anyhow!("there is no directory {}", dir.display());
            Err(Failure::new(Exit::NotFound, error))
        }
    }
}

fn stored(args: &Args) -> Origin {
    if args.here.no_source { Origin::Directory } else { Origin::StoredDirectory }
}

fn jobs(args: &Args) -> NonZeroUsize {
    let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    args.here.jobs.unwrap_or_else(processors)
}

/// What is built where only flags say it.
fn of_flags(args: &Args) -> Result<Request, Failure> {
    let here = &args.here;
    let dir = here.dir.clone();
    let file = args.wished.dockerfile.as_ref().map(PathBuf::from);
    let below = |path: &&PathBuf| {
        path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
    };
    let (dir, origin) = match (&here.source, dir) {
        (Some(source), dir) => {
            if let Some(outside) = dir.iter().chain(&file).find(|path| !below(path)) {
                let error =
                    anyhow::anyhow!("{} is not below the source artifact", outside.display());
                return Err(Failure::usage(error));
            }
            (dir.unwrap_or_default(), Origin::Artifact(Box::new(source.clone())))
        }
        (None, Some(dir)) => (existing(&dir)?, stored(args)),
        (None, None) => {
            let error = anyhow::anyhow!(
                "nothing says what is built; give --dir DIR, --source REF or --file BUILD.yaml"
            );
            return Err(Failure::usage(error));
        }
    };
    let missing = |flag: &str| Failure::usage(anyhow::anyhow!("{flag} is missing"));
    let output = args.wished.output_image.as_ref().ok_or_else(|| missing("--output REF"))?;
    let outputs = Outputs::parse(output).map_err(Failure::usage)?;
    let annotations: BTreeMap<String, String> =
        args.wished.output_image_annotation.iter().cloned().collect();
    Ok(Request {
        recipe: Recipe {
            dir,
            file,
            target: here.target.clone(),
            args: args.wished.build_args.iter().cloned().collect(),
            labels: args.wished.output_image_label.iter().cloned().collect(),
            annotations: annotations.clone(),
            epoch: here.source_date_epoch,
        },
        platforms: platforms(&args.wished.platforms)?,
        outputs,
        annotations,
        jobs: jobs(args),
        origin,
        backend: args.here.backend.map(Into::into).unwrap_or_default(),
    })
}

fn platforms(asked: &[Platform]) -> Result<Vec<Platform>, Failure> {
    let mut platforms: Vec<Platform> = Vec::new();
    for platform in asked {
        wanted::warn(platform);
        let platform = platform.normalised();
        if platforms.contains(&platform) {
            return Err(Failure::usage(anyhow::anyhow!("--platform {platform} is there twice")));
        }
        platforms.push(platform);
    }
    match platforms.is_empty() {
        true => Err(Failure::usage(anyhow::anyhow!("--platform PLATFORM is missing"))),
        false => Ok(platforms),
    }
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
