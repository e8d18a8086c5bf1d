//! `portolan build run --engine local`: the embedded engine.

use std::num::NonZeroUsize;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use portolan_api::build::{Build, BuildSpec, SourceStatus};
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::reason::outcome;
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, EngineError, Origin, Outcome, Own, Request};
use portolan_build::names::Outputs;
use portolan_build::plan::{Objects, Timestamp};
use portolan_build::request::{self, BuildWishes, LocalBuild, LocalError, LocalWay, Said, Wishes};
use portolan_build::steps::{self, Access};
use portolan_build::workshop::{self, Workshop};
use portolan_core::{Platform, Reference};
use portolan_registry::client::Client;
use portolan_registry::progress::{Progress, Silent};

use super::origin::{origin, sent};
use super::run::Args;
use super::{files, plan_settings, told};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

pub(super) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    // From the first moment on: what is cloned is left as little as what is built.
    let asked = context::asked_to_end()?;
    tokio::select! {
        biased;
        () = asked.cancelled() => Ok(Exit::Interrupted),
        ended = to_its_end(&args, global) => ended,
    }
}

/// Removes what somebody who was interrupted was still writing when its directory went.
pub(crate) fn tidy_up() {
    workshop::sweep(&std::env::temp_dir());
}

/// What is asked for, before anything of it is fetched.
enum Asked {
    /// By a Build.
    Build(Box<LocalBuild>),
    /// By flags alone.
    Flags(Box<Request>),
}

async fn to_its_end(args: &Args, global: &Global) -> Result<Exit, Failure> {
    let (spec, asked) = match args.name.is_some() || !args.here.files.is_empty() {
        true => of_build(args).await?,
        false => of_flags(args)?,
    };
    tell_unused(args, &spec, &asked);
    let began = now();
    let work = carry_out(args, global, &spec, asked);
    // As in a cluster, 0 is for ever.
    match spec.timeout.map(Duration::from).filter(|limit| !limit.is_zero()) {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| out_of_time(args.format, limit, began)),
    }
}

/// Programs get the status that a cluster would show; people are told in words.
fn out_of_time(format: Format, limit: Duration, began: Time) -> Result<Exit, Failure> {
    let why =
        format!("it was not built within {limit:?}; give a longer --timeout, or 0 for no limit");
    let error = anyhow::anyhow!("{}: {why}", outcome::TIMEOUT);
    if format != Format::Table {
        format.print(&engine::out_of_time(began, now(), why), |_| String::new())?;
    }
    Err(Failure::new(Exit::No, error))
}

/// What was said to no effect. A cluster would have a use for it.
fn tell_unused(args: &Args, spec: &BuildSpec, asked: &Asked) {
    let (by_flags, of_platforms) = match asked {
        Asked::Build(local) => (false, &local.unused[..]),
        Asked::Flags(_) => (true, &[][..]),
    };
    let flags = [
        ("--sa-name", args.sa_name.is_some()),
        ("--platform-class", by_flags && args.wished.platform_class.is_some()),
    ];
    let mut unused = request::unused(spec, is_given(args));
    unused.extend_from_slice(of_platforms);
    unused.extend(flags.iter().filter(|(_, said)| *said).map(|(flag, _)| (*flag).to_owned()));
    if !unused.is_empty() {
        format::tell(&format!("note: not used on one machine: {}", unused.join(", ")));
    }
}

/// Whether the command line says where the source is.
fn is_given(args: &Args) -> bool {
    args.here.dir.is_some() || args.here.source.is_some()
}

async fn carry_out(
    args: &Args,
    global: &Global,
    spec: &BuildSpec,
    asked: Asked,
) -> Result<Exit, Failure> {
    let temp = std::env::temp_dir();
    // An empty directory to build in or clone to, where a Build says so.
    let empty = Workshop::new(&temp)
        .with_context(|| format!("cannot make a directory in {}", temp.display()))
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    let request = match asked {
        Asked::Build(local) => request_of(args, *local, empty.path()).await?,
        Asked::Flags(request) => *request,
    };
    let client = client(global, spec, request.outputs.index()).await?;
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let watch = told::watch(global.progress);
    let outcome = engine::run(&request, &temp, &client, &progress, &*watch, now).await;
    let outcome = outcome.map_err(failure)?;
    args.format.print(&outcome.status, |status| told::table(status, &request))?;
    Ok(exit(&outcome))
}

/// This person's client; the registry of the image may be one that nobody vouches for, where the Build says so.
async fn client(global: &Global, spec: &BuildSpec, image: &Reference) -> Result<Client, Failure> {
    match (spec.output.settings.insecure, image) {
        (Some(true), Reference::Registry(_)) => {
            let access = Access { secret: None, insecure: true };
            let client = steps::client(image, &access, context::settings(global)?).await;
            client.map_err(|error| Failure::new(Exit::Step(error.exit), error))
        }
        _ => context::client(global),
    }
}

pub(crate) fn exit(outcome: &Outcome) -> Exit {
    match (outcome.succeeded, outcome.class) {
        (true, _) => Exit::Ok,
        (false, None) => Exit::No,
        (false, Some(class)) => Exit::from(class),
    }
}

/// What is built where a Build says it: in files, or in a cluster.
async fn of_build(args: &Args) -> Result<(BuildSpec, Asked), Failure> {
    let (build, objects) = found(args).await?;
    let wishes = BuildWishes { common: args.wished.wishes(), ..BuildWishes::default() };
    let build = request::build_here(Some(build), None, &wishes).map_err(Failure::usage)?;
    let local = request::local(&build, &objects, &plan_settings(), is_given(args));
    let local = local.map_err(|error| match error {
        LocalError::Refused(_) | LocalError::Strategy { .. } | LocalError::NoBackend(_) => {
            Failure::new(Exit::No, error)
        }
        _ => Failure::usage(error),
    })?;
    Ok((build.spec, Asked::Build(Box::new(local))))
}

/// The same with its source, which may have to be cloned.
async fn request_of(args: &Args, local: LocalBuild, empty: &Path) -> Result<Request, Failure> {
    let (origin, known) = origin(args, &local, empty).await?;
    let context = local.context_dir.clone().unwrap_or_default();
    let there = |path: PathBuf| match &origin {
        // Nothing is there yet: the engine looks when it is.
        Origin::Artifact(_) => Ok(args.here.dir.clone().unwrap_or_default().join(path)),
        // The Build and what it leads to may be a stranger's.
        Origin::Directory(root) | Origin::StoredDirectory(root) | Origin::Sent { root, .. } => {
            engine::inside(root, &path).map_err(failure)
        }
    };
    let dir = there(context.clone())?;
    let own = local.ways.into_iter().map(|way| {
        let LocalWay { platform, image_platform, file, said } = way;
        let file = file.map(|file| there(context.join(file))).transpose()?;
        Ok(Own { platform, image_platform, recipe: recipe(args, dir.clone(), file, said) })
    });
    let own: Vec<Own> = own.collect::<Result<_, Failure>>()?;
    Ok(Request {
        recipe: recipe(args, dir.clone(), None, Said::default()),
        platforms: own.iter().map(|own| own.platform.clone()).collect(),
        own,
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

fn recipe(args: &Args, dir: PathBuf, file: Option<PathBuf>, said: Said) -> Recipe {
    let target = args.here.target.clone().or(said.target);
    let epoch = said.epoch.unwrap_or(args.here.source_date_epoch);
    Recipe { file, dir, target, args: said.args, epoch }
}

async fn found(args: &Args) -> Result<(Build, Objects), Failure> {
    if !args.here.files.is_empty() {
        let (runs, mut objects) = files::sort(files::read_all(&args.here.files)?);
        files::pass_over(&runs);
        files::add_shipped(&mut objects)?;
        let build = files::one_build(&objects.builds, args.name.as_deref())?;
        return Ok((build, objects));
    }
    let name = args.name.as_deref().unwrap_or_default();
    let cluster = Cluster::connect(&args.cluster).await?;
    Ok((cluster.get(&cluster.here(), name).await?, cluster.objects().await?))
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

fn jobs(args: &Args) -> NonZeroUsize {
    args.here.jobs.unwrap_or_else(processors)
}

/// So many platforms at a time, where nothing is said.
pub(crate) fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// What is built where only flags say it.
fn of_flags(args: &Args) -> Result<(BuildSpec, Asked), Failure> {
    let here = &args.here;
    if !is_given(args) {
        let error = anyhow::anyhow!(
            "nothing says what is built; give --dir DIR, --source REF or --file BUILD.yaml"
        );
        return Err(Failure::usage(error));
    }
    let missing = |flag: &str| Failure::usage(anyhow::anyhow!("{flag} is missing"));
    let output = args.wished.output_image.as_ref().ok_or_else(|| missing("--output REF"))?;
    let outputs = Outputs::parse(output).map_err(Failure::usage)?;
    let spec = flags_as_build(args)?;
    let said = request::said(&spec.param_values, &spec.env, &[]).map_err(Failure::usage)?;
    let file = said.file.as_ref().filter(|file| !file.is_empty()).map(PathBuf::from);
    let (dir, origin) = match (&here.source, here.dir.clone()) {
        (Some(source), dir) => {
            let below = |path: &&PathBuf| {
                path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
            };
            if let Some(outside) = dir.iter().chain(&file).find(|path| !below(path)) {
                let error =
                    anyhow::anyhow!("{} is not below the source artifact", outside.display());
                return Err(Failure::usage(error));
            }
            (dir.unwrap_or_default(), Origin::Artifact(Box::new(source.clone())))
        }
        (None, dir) => {
            let dir = existing(&dir.unwrap_or_default())?;
            (dir.clone(), sent(args, dir))
        }
    };
    let settings = &spec.output.settings;
    let created = plan_settings().created;
    let timestamp = Timestamp::read(settings.timestamp.as_deref(), created).ok_or_else(|| {
        let error = anyhow::anyhow!(
            "--output-timestamp is Zero, SourceTimestamp, BuildTimestamp or seconds since 1970"
        );
        Failure::usage(error)
    })?;
    let request = Request {
        recipe: recipe(args, dir, file, said),
        platforms: platforms(&args.wished.platforms)?,
        own: Vec::new(),
        outputs,
        labels: settings.labels.clone(),
        annotations: settings.annotations.clone(),
        timestamp,
        jobs: jobs(args),
        origin,
        known: SourceStatus::default(),
        backend: args.here.backend.map(Into::into).unwrap_or_default(),
    };
    Ok((spec, Asked::Flags(Box::new(request))))
}

/// Flags as the Build they would make in a cluster, without its platforms: here they may say more than a Build can.
fn flags_as_build(args: &Args) -> Result<BuildSpec, Failure> {
    let common = Wishes { platforms: Vec::new(), class: None, ..args.wished.wishes() };
    let strategy = Some("portolan".to_owned());
    let wishes = BuildWishes { common, strategy, ..BuildWishes::default() };
    let build = request::build_here(None, Some("here"), &wishes).map_err(Failure::usage)?;
    Ok(build.spec)
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
