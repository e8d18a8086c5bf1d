//! `portolan build upload NAME [DIR]`: a run of a Build with the source of this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use kube::api::AttachParams;
use portolan_api::ResourceExt as _;
use portolan_api::build::{Build, BuildRun, OciArtifact, Source, SourceKind};
use portolan_api::k8s_openapi::api::core::v1::Pod;
use portolan_build::blocking::blocking;
use portolan_build::request::pods::{self, Upload};
use portolan_build::request::progress::{self, Outcome};
use portolan_build::request::{self, BuildWishes};
use portolan_build::source::{self, Announced, Packed};
use portolan_build::workshop::Workshop;
use portolan_core::{LayoutReference, Reference};
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::layout::Layout;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::cli::Global;
use crate::cluster::wishes::{Wished, warn_of_source};
use crate::cluster::{self, Cluster, created, duration, follow, logs};
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

/// How often the pod is looked for.
const EVERY: Duration = Duration::from_millis(300);
/// Pieces in which a source is sent.
const PIECE: usize = 64 * 1024;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan build upload sample-go . --follow\n  portolan build upload sample-go --source-bundle-image quay.io/you/sample-go:src\n\n\
    What .shpignore names (written as .gitignore is) stays behind. Links, modes and .git are kept. A Build whose source\n\
    is an artifact, and --source-bundle-image, get it through the registry; else it goes straight to the waiting pod."
)]
pub(crate) struct Args {
    /// The Build that is run
    name: String,
    /// The directory that is sent
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Push the source there and build from that, with your own login
    #[arg(long, value_name = "REF", visible_alias = "source-oci-artifact-image")]
    source_bundle_image: Option<Reference>,
    /// How long the pod waits for the source
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    source_local_timeout: Option<portolan_api::Duration>,
    #[command(flatten)]
    wished: Wished,
    /// Who runs it: a service account, or .generate for one of its own
    #[arg(long, value_name = "NAME")]
    sa_name: Option<String>,
    /// Follow the run to its end
    #[arg(short = 'F', long)]
    follow: bool,
    /// How to print the run
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    if !args.dir.is_dir() {
        let error = anyhow::anyhow!("there is no directory {}", args.dir.display());
        return Err(Failure::new(Exit::NotFound, error));
    }
    // From the first moment on: of a source that is packed for nobody nothing is left.
    let asked = context::asked_to_end()?;
    let (cluster, run) = tokio::select! {
        biased;
        // What it says of a run that waits for its source comes first.
        begun = begun(&args, global, &asked) => begun?,
        () = asked.cancelled() => return Ok(Exit::Interrupted),
    };
    match args.follow {
        true => follow::follow(&cluster, &run, global.progress, args.format).await,
        false => Ok(Exit::Ok),
    }
}

/// The run, with its source on the way.
async fn begun(
    args: &Args,
    global: &Global,
    asked: &CancellationToken,
) -> Result<(Cluster, BuildRun), Failure> {
    let wishes = args.wished.wishes();
    let cluster = Cluster::connect(&args.cluster).await?;
    let build: Build = cluster.get(&cluster.here(), &args.name).await?;
    let (staged, packed) = pack(&args.dir).await?;
    let own = own_artifact(&build);
    let run = match (&args.source_bundle_image, own) {
        (None, None) => {
            let mut run = request::run(&build, None, &wishes, args.sa_name.as_deref())
                .map_err(Failure::usage)?;
            request::upload(&mut run, args.source_local_timeout);
            warn_of_source(sent_to(&build, &run));
            let run = begin(&cluster, &run, args).await?;
            send((&cluster, &run), (&staged, &packed), asked).await?;
            run
        }
        (Some(image), _) => {
            push(&packed, &staged, image, global).await?;
            let wishes = BuildWishes {
                common: wishes,
                source: Some(artifact(&build, image)),
                ..BuildWishes::default()
            };
            let name = build.name_any();
            let bundled = request::build(Some(build), Some(&name), &wishes);
            let mut run = request::embedded_run(&bundled.map_err(Failure::usage)?);
            run.spec.service_account.clone_from(&args.sa_name);
            begin(&cluster, &run, args).await?
        }
        (None, Some(image)) => {
            let image: Reference = image.parse().map_err(Failure::usage)?;
            push(&packed, &staged, &image, global).await?;
            let run = request::run(&build, None, &wishes, args.sa_name.as_deref());
            begin(&cluster, &run.map_err(Failure::usage)?, args).await?
        }
    };
    Ok((cluster, run))
}

/// The artifact that a Build takes its source from.
fn own_artifact(build: &Build) -> Option<String> {
    let source = build.spec.source.as_ref().filter(|source| source.kind == SourceKind::Oci)?;
    source.oci_artifact.as_ref().map(|artifact| artifact.image.clone())
}

/// The Build's source, were it this artifact.
fn artifact(build: &Build, image: &Reference) -> Source {
    let before = build.spec.source.as_ref();
    Source {
        kind: SourceKind::Oci,
        context_dir: before.and_then(|source| source.context_dir.clone()),
        git: None,
        oci_artifact: Some(OciArtifact {
            image: image.to_string(),
            prune: None,
            pull_secret: build.spec.output.settings.push_secret.clone(),
        }),
        local: None,
    }
}

/// Where the source of a run would be stored for all who may pull the image.
fn sent_to(build: &Build, run: &BuildRun) -> Option<String> {
    let mut spec = build.spec.clone();
    let source = Source {
        kind: SourceKind::Local,
        context_dir: None,
        git: None,
        oci_artifact: None,
        local: None,
    };
    spec.source = Some(source);
    if let Some(output) = &run.spec.output {
        spec.output.image = output.image.clone().unwrap_or(spec.output.image);
        if output.settings.multi_arch.is_some() || !output.settings.platforms.is_empty() {
            spec.output.settings = output.settings.clone();
        }
    }
    request::published_source(&spec)
}

async fn begin(cluster: &Cluster, run: &BuildRun, args: &Args) -> Result<BuildRun, Failure> {
    created::check(run)?;
    let made = cluster.create(&cluster.here(), run).await?;
    let told = format!("BuildRun created {:?} for build {:?}", made.name_any(), args.name);
    match (args.follow, args.format) {
        // The document is printed once it has something to say.
        (true, Format::Json | Format::Yaml) => format::tell(&told),
        (_, format) => created::print(&made, format, &told)?,
    }
    Ok(made)
}

/// Packs a directory as it is sent; the layout goes with the first value.
async fn pack(dir: &Path) -> Result<(Workshop, Packed), Failure> {
    let staged = Workshop::new(&std::env::temp_dir());
    let staged = staged
        .context("cannot make a temporary directory")
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    let layout = Layout::create_passing(staged.path());
    let layout = layout.map_err(|error| context::classed(error.class(), error))?;
    let dir = dir.to_owned();
    let packed = blocking(move |halt| source::pack_upload_until(&dir, &layout, halt)).await;
    let packed = packed.context("the source cannot be packed").map_err(Failure::usage)?;
    let packed = packed.map_err(|error| context::classed(error.class(), error))?;
    for name in &packed.skipped {
        format::tell(&format!("note: the socket {} is not sent", name.display()));
    }
    Ok((staged, packed))
}

async fn push(
    packed: &Packed,
    staged: &Workshop,
    to: &Reference,
    global: &Global,
) -> Result<(), Failure> {
    let client = context::client(global)?;
    let dir = staged.path().to_owned();
    let from = LayoutReference { dir, tag: None, digest: Some(packed.manifest.digest) };
    let progress = crate::progress::listener(global.progress);
    let options = CopyOptions::default();
    let pushed = copy(&Reference::Layout(from), to, &client, &options, progress).await;
    pushed.map_err(|error| match error.class() {
        Some(class) => context::classed(class, error),
        None => Failure::new(Exit::No, error),
    })?;
    format::tell(&format!("source {to} {}", packed.manifest.digest));
    Ok(())
}

/// Waits for the pod, and sends it the source.
async fn send(
    (cluster, run): (&Cluster, &BuildRun),
    (staged, packed): (&Workshop, &Packed),
    asked: &CancellationToken,
) -> Result<(), Failure> {
    let name = run.name_any();
    tokio::select! {
        sent = async {
            let (pod, container) = waiting_pod(cluster, &name).await?;
            format::tell(&format!("sending {} to {pod}", format::size(packed.layer.size)));
            stream(cluster, &pod, &container, staged, packed).await
        } => sent,
        () = asked.cancelled() => {
            let hint = format!("portolan buildrun cancel {name} -n {}", cluster.namespace);
            let error = anyhow::anyhow!("the source was not sent; the run waits for it: {hint}");
            Err(Failure::new(Exit::Interrupted, error))
        }
    }
}

async fn waiting_pod(cluster: &Cluster, name: &str) -> Result<(String, String), Failure> {
    let mut told = String::new();
    loop {
        let run: BuildRun = cluster.get(&cluster.here(), name).await?;
        match progress::outcome(&run) {
            Outcome::Going => {}
            Outcome::Failed(why) | Outcome::Canceled(why) => {
                let error =
                    anyhow::anyhow!("BuildRun {name:?} ended before it had a source: {why}");
                return Err(Failure::new(Exit::No, error));
            }
            Outcome::Succeeded(_) => {
                let error = anyhow::anyhow!("BuildRun {name:?} ended without asking for a source");
                return Err(Failure::new(Exit::No, error));
            }
        }
        match pods::upload(&logs::pods(cluster, &run).await?) {
            Upload::To { pod, container } => return Ok((pod, container)),
            Upload::Over(why) => return Err(Failure::new(Exit::No, anyhow::anyhow!(why))),
            Upload::NotYet(why) if why != told => {
                format::tell(&why);
                told = why;
            }
            Upload::NotYet(_) => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Runs our own program in the pod, which takes the source from its stdin.
async fn stream(
    cluster: &Cluster,
    pod: &str,
    container: &str,
    staged: &Workshop,
    packed: &Packed,
) -> Result<(), Failure> {
    let trouble = |error: anyhow::Error| Failure::new(Exit::Transport, error);
    let layout = Layout::open(staged.path());
    let layout = layout.map_err(|error| context::classed(error.class(), error))?;
    let blob = layout.open_blob(&packed.layer.digest);
    let (file, _) = blob.map_err(|error| context::classed(error.class(), error))?;
    let params = AttachParams {
        container: Some(container.to_owned()),
        stdin: true,
        stdout: false,
        stderr: true,
        max_stdin_buf_size: Some(PIECE),
        ..AttachParams::default()
    };
    let command = pods::receive_command(&Announced::from(packed));
    let api = cluster.here::<Pod>();
    let mut process =
        cluster.ask(&format!("send the source to {pod}"), api.exec(pod, command, &params)).await?;
    let mut stdin = process.stdin().expect("it was asked for");
    let mut stderr = process.stderr().expect("it was asked for");
    let status = process.take_status().expect("it is taken once");
    let sending = async {
        let mut file = tokio::fs::File::from_std(file);
        tokio::io::copy_buf(&mut tokio::io::BufReader::with_capacity(PIECE, &mut file), &mut stdin)
            .await?;
        stdin.shutdown().await
    };
    let mut words = Vec::new();
    let mut stderr = (&mut stderr).take(PIECE as u64);
    let hearing = stderr.read_to_end(&mut words);
    let (sent, _) = tokio::join!(sending, hearing);
    let status = status.await;
    let said = String::from_utf8_lossy(&words).trim().to_owned();
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(()),
        Some(status) => {
            let why = if said.is_empty() { status.message.unwrap_or_default() } else { said };
            Err(trouble(anyhow::anyhow!("{pod} did not take the source: {why}")))
        }
        None => {
            sent.context(format!("the connection to {pod} broke off")).map_err(trouble)?;
            Err(trouble(anyhow::anyhow!("the connection to {pod} broke off: {said}")))
        }
    }
}
