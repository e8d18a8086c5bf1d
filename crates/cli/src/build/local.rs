//! `portolan build run --engine local`: the embedded engine.

use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use portolan_api::build::{Build, BuildRunStatus, Git, GitResult, PlatformState, SourceStatus};
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, EngineError, Origin, Outcome, Request, Watch};
use portolan_build::names::Outputs;
use portolan_build::plan::{Objects, Timestamp};
use portolan_build::request::{self, BuildWishes, LocalBuild, LocalError, LocalSource};
use portolan_build::steps::{
    self,
    git::{Clone, Halt, redacted},
};
use portolan_build::workshop::{self, Workshop};
use portolan_core::{Platform, Reference};
use portolan_registry::progress::{Progress, Silent};

use super::run::Args;
use super::{files, plan_settings};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format;
use crate::progress::Mode;

pub(super) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    tokio::select! {
        // From the first moment on: what is cloned is left as little as what is built.
        biased;
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
        ended = to_its_end(&args, global) => ended,
    }
}

/// Removes what somebody who was interrupted was still writing when its directory went.
pub(crate) fn tidy_up() {
    workshop::sweep(&std::env::temp_dir());
}

async fn to_its_end(args: &Args, global: &Global) -> Result<Exit, Failure> {
    let temp = std::env::temp_dir();
    // An empty directory to build in or clone to, where a Build says so.
    let empty = Workshop::new(&temp)
        .with_context(|| format!("cannot make a directory in {}", temp.display()))
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    let request = match args.name.is_some() || !args.here.files.is_empty() {
        true => of_build(args, empty.path()).await?,
        false => of_flags(args)?,
    };
    let client = context::client(global)?;
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let watch = Lines { quiet: global.progress == Mode::None };
    let outcome = engine::run(&request, &temp, &client, &progress, &watch, now).await;
    let outcome = outcome.map_err(failure)?;
    args.format.print(&outcome.status, |status| table(status, &request))?;
    Ok(exit(&outcome))
}

pub(crate) fn exit(outcome: &Outcome) -> Exit {
    match (outcome.succeeded, outcome.class) {
        (true, _) => Exit::Ok,
        (false, None) => Exit::No,
        (false, Some(class)) => Exit::from(class),
    }
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
    let (origin, known) = origin(args, &local, empty).await?;
    let context = local.context_dir.clone().unwrap_or_default();
    let file = local.file.as_ref().map(|file| context.join(file));
    let (dir, file) = match &origin {
        // Nothing is there yet: the engine looks when it is.
        Origin::Artifact(_) => {
            let dir = args.here.dir.clone().unwrap_or_default();
            (dir.join(&context), file.map(|file| dir.join(file)))
        }
        // The Build and what it leads to may be a stranger's.
        Origin::Directory(root) | Origin::StoredDirectory(root) => {
            let inside = |path: PathBuf| engine::inside(root, &path).map_err(failure);
            (inside(context)?, file.map(inside).transpose()?)
        }
    };
    Ok(Request {
        recipe: Recipe {
            file,
            dir,
            target: args.here.target.clone().or(local.target),
            args: local.args,
            epoch: local.epoch.unwrap_or(args.here.source_date_epoch),
        },
        platforms: local.platforms,
        outputs: local.outputs,
        labels: local.labels,
        annotations: local.annotations,
        timestamp: local.timestamp,
        jobs: jobs(args),
        origin,
        known,
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
async fn origin(
    args: &Args,
    local: &LocalBuild,
    empty: &Path,
) -> Result<(Origin, SourceStatus), Failure> {
    let nothing = SourceStatus::default;
    if let Some(source) = &args.here.source {
        return Ok((Origin::Artifact(Box::new(source.clone())), nothing()));
    }
    if let Some(dir) = &args.here.dir {
        return Ok((stored(args, existing(dir)?), nothing()));
    }
    match &local.source {
        LocalSource::Nothing => Ok((Origin::Directory(empty.to_owned()), nothing())),
        LocalSource::Artifact(reference) => Ok((Origin::Artifact(reference.clone()), nothing())),
        LocalSource::Directory => Err(Failure::usage(anyhow::anyhow!(
            "the source of the Build is sent by somebody; say which directory: --dir DIR"
        ))),
        LocalSource::Git(git) => {
            let known = cloned(git, empty).await?;
            Ok((stored(args, empty.to_owned()), known))
        }
    }
}

/// Clones as a pod would; a secret is in a cluster, where only its pods see it.
async fn cloned(git: &Git, to: &Path) -> Result<SourceStatus, Failure> {
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
    let halt = Halt::default();
    // Whoever stops waiting for git ends it.
    let _halted = HaltOnDrop(halt.clone());
    let work = move || steps::git::clone_until(&request, &temp, &|line| format::tell(line), &halt);
    let cloned = tokio::task::spawn_blocking(work).await;
    let cloned = cloned.context("git was not waited for");
    let cloned = cloned.map_err(|error| Failure::new(Exit::Transport, error))?;
    let cloned = cloned.map_err(|error| Failure::new(Exit::Transport, error))?;
    let git = GitResult {
        commit_sha: Some(cloned.commit),
        commit_author: Some(cloned.author),
        branch_name: cloned.branch,
    };
    let timestamp = jiff::Timestamp::from_second(cloned.timestamp).ok().map(Time);
    Ok(SourceStatus { git: Some(git), timestamp, ..SourceStatus::default() })
}

struct HaltOnDrop(Halt);

impl Drop for HaltOnDrop {
    fn drop(&mut self) {
        self.0.now();
    }
}

pub(crate) fn existing(dir: &Path) -> Result<PathBuf, Failure> {
    match dir.is_dir() {
        true => Ok(dir.to_owned()),
        false => {
            let error = anyhow::anyhow!("there is no directory {}", dir.display());
            Err(Failure::new(Exit::NotFound, error))
        }
    }
}

fn stored(args: &Args, root: PathBuf) -> Origin {
    if args.here.no_source { Origin::Directory(root) } else { Origin::StoredDirectory(root) }
}

fn jobs(args: &Args) -> NonZeroUsize {
    args.here.jobs.unwrap_or_else(processors)
}

/// So many platforms at a time, where nothing is said.
pub(crate) fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
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
        (None, Some(dir)) => (existing(&dir)?, stored(args, dir)),
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
    let wishes = args.wished.wishes();
    let settings = wishes.output;
    let created = plan_settings().created;
    let timestamp = Timestamp::read(settings.timestamp.as_deref(), created).ok_or_else(|| {
        let error = anyhow::anyhow!(
            "--output-timestamp is Zero, SourceTimestamp, BuildTimestamp or seconds since 1970"
        );
        Failure::usage(error)
    })?;
    Ok(Request {
        recipe: Recipe {
            dir,
            file,
            target: here.target.clone(),
            args: args.wished.build_args.iter().cloned().collect(),
            epoch: here.source_date_epoch,
        },
        platforms: platforms(&args.wished.platforms)?,
        outputs,
        labels: settings.labels,
        annotations: settings.annotations,
        timestamp,
        jobs: jobs(args),
        origin,
        known: SourceStatus::default(),
        backend: args.here.backend.map(Into::into).unwrap_or_default(),
    })
}

pub(crate) fn platforms(asked: &[Platform]) -> Result<Vec<Platform>, Failure> {
    let mut platforms: Vec<Platform> = Vec::new();
    for platform in asked {
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

pub(crate) fn failure(error: EngineError) -> Failure {
    match error.class() {
        Some(class) => context::classed(class, error),
        None => Failure::new(Exit::No, error),
    }
}

pub(crate) fn now() -> Time {
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
