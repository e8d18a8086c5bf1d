//! `portolan buildrun gather NAME`: all that is known of a run, in a directory or an archive.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use portolan_api::build::{Build, BuildRun, Executor, ExecutorKind};
use portolan_api::k8s_openapi::api::core::v1::Pod;
use portolan_api::platform::{ImagePlatform, ImagePlatformClass};
use portolan_api::{ResourceExt as _, keys};
use portolan_build::request::pods;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::cluster::{self, Cluster, logs, tidy};
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan buildrun gather sample-go-x7k2p --archive\n\n\
    Secrets are not read. Values of parameters and variables are part of what is collected: look before you share it.")]
pub(crate) struct Args {
    /// Which run
    name: String,
    /// Where it goes; the current directory where nothing is said
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Write a .tar.gz instead of a directory
    #[arg(short = 'z', long)]
    archive: bool,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// Files by their path below the top.
type Files = BTreeMap<PathBuf, Vec<u8>>;

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let run: BuildRun = cluster.get(&cluster.here(), &args.name).await?;
    let name = format!("buildrun-{}-gather", args.name);
    let place = match args.archive {
        true => args.output.join(format!("{name}.tar.gz")),
        false => args.output.join(&name),
    };
    if place.exists() {
        let error = anyhow::anyhow!("{} is there already; move it away", place.display());
        return Err(Failure::usage(error));
    }
    let files = collect(&cluster, run).await?;
    let written = match args.archive {
        true => write_archive(&files, &name, &place),
        false => write_directory(&files, &place),
    };
    written
        .with_context(|| format!("cannot write {}", place.display()))
        .map_err(|error| Failure::new(Exit::Transport, error))?;
    format::write(&format!("BuildRun diagnostics written to {:?}\n", place.display().to_string()))?;
    Ok(Exit::Ok)
}

/// Everything that belongs to a run. What is not there any more is told and left out.
async fn collect(cluster: &Cluster, run: BuildRun) -> Result<Files, Failure> {
    let mut files = Files::new();
    put(&mut files, "buildrun.yaml", &tidy(run.clone()))?;
    if let Some(build) = &run.spec.build.name {
        let found = cluster.get::<Build>(&cluster.here(), build).await;
        if let Some(build) = or_note(found)? {
            put(&mut files, "build.yaml", &tidy(build))?;
        }
    }
    platforms(cluster, &run, &mut files).await?;
    if let Some(executor) = run.status.as_ref().and_then(|status| status.executor.as_ref()) {
        executors(cluster, executor, &mut files).await?;
    }
    let selector = format!("{}={}", keys::BUILD_RUN_NAME, run.name_any());
    let found: Vec<Pod> = cluster.list(&cluster.here(), Some(&selector)).await?;
    let views = pods::view(&run, &found);
    for pod in found {
        let name = file_name(&pod.name_any());
        put(&mut files, &format!("pods/{name}.yaml"), &tidy(pod))?;
    }
    for place in logs::begun(&views) {
        let (send, mut receive) = mpsc::channel(256);
        let read = logs::read(cluster.clone(), place.clone(), false, send);
        let keep = async {
            let mut text = String::new();
            while let Some(line) = receive.recv().await {
                text.push_str(&line.text);
                text.push('\n');
            }
            text
        };
        let (read, text) = tokio::join!(read, keep);
        or_note(read)?;
        let path = format!("logs/{}/{}.log", file_name(&place.pod), file_name(&place.container));
        files.insert(path.into(), text.into_bytes());
    }
    Ok(files)
}

/// The class of a run and what it names: who built how.
async fn platforms(cluster: &Cluster, run: &BuildRun, files: &mut Files) -> Result<(), Failure> {
    let status = run.status.as_ref();
    let own = run.spec.output.as_ref().map(|output| &output.settings);
    let spec = run.spec.build.spec.as_deref();
    let spec = spec.or_else(|| status.and_then(|status| status.build_spec.as_deref()));
    let all = own.into_iter().chain(spec.map(|spec| &spec.output.settings));
    let Some(class) = all.into_iter().find_map(|settings| settings.multi_arch.as_ref()) else {
        return Ok(());
    };
    let name = &class.image_platform_class;
    let class = cluster.get::<ImagePlatformClass>(&cluster.wide(), name).await;
    let Some(class) = or_note(class)? else { return Ok(()) };
    for reference in &class.spec.image_platforms {
        let found = cluster.get::<ImagePlatform>(&cluster.wide(), &reference.name).await;
        if let Some(found) = or_note(found)? {
            let name = file_name(&reference.name);
            put(files, &format!("imageplatforms/{name}.yaml"), &tidy(found))?;
        }
    }
    put(files, "imageplatformclass.yaml", &tidy(class))
}

/// The object of Tekton that does the work, and those that it made.
async fn executors(
    cluster: &Cluster,
    executor: &Executor,
    files: &mut Files,
) -> Result<(), Failure> {
    let kind = match executor.kind {
        ExecutorKind::TaskRun => "TaskRun",
        ExecutorKind::PipelineRun => "PipelineRun",
        ExecutorKind::Local => return Ok(()),
    };
    let api = |kind: &str| {
        let kind = GroupVersionKind::gvk("tekton.dev", "v1", kind);
        let resource = ApiResource::from_gvk(&kind);
        Api::<DynamicObject>::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource)
    };
    let what = format!("get the {kind} {}", executor.name);
    let found = cluster.ask(&what, api(kind).get(&executor.name)).await;
    if let Some(found) = or_note(found)? {
        put(files, &format!("{}.yaml", kind.to_lowercase()), &tidy(found))?;
    }
    if executor.kind == ExecutorKind::PipelineRun {
        let params =
            ListParams::default().labels(&format!("tekton.dev/pipelineRun={}", executor.name));
        let found = cluster.ask("list the TaskRuns", api("TaskRun").list(&params)).await;
        for task in or_note(found)?.into_iter().flatten() {
            let path = format!("taskruns/{}.yaml", file_name(&task.name_any()));
            put(files, &path, &tidy(task))?;
        }
    }
    Ok(())
}

/// What is gone is told; what cannot be asked for ends it.
fn or_note<T>(found: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failure) if matches!(failure.exit, Exit::NotFound | Exit::Usage) => {
            format::tell(&format!("warning: {:#}", failure.error));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Names of a cluster have no slashes; whoever says otherwise gets none either.
fn file_name(name: &str) -> String {
    name.replace(['/', '\0'], "_")
}

fn put<T: Serialize>(files: &mut Files, path: &str, object: &T) -> Result<(), Failure> {
    files.insert(path.into(), format::yaml(object)?.into_bytes());
    Ok(())
}

fn write_directory(files: &Files, place: &Path) -> anyhow::Result<()> {
    let mut dirs = std::fs::DirBuilder::new();
    dirs.recursive(true).mode(0o750);
    for (path, bytes) in files {
        let path = place.join(path);
        dirs.create(path.parent().unwrap_or(place))?;
        let mut file = std::fs::OpenOptions::new();
        file.write(true).create_new(true).mode(0o600).open(&path)?.write_all(bytes)?;
    }
    Ok(())
}

fn write_archive(files: &Files, name: &str, place: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::OpenOptions::new();
    let file = file.write(true).create_new(true).mode(0o600).open(place)?;
    let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, Path::new(name).join(path), bytes.as_slice())?;
    }
    tar.into_inner()?.finish()?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_an_archive_hold_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::new();
        files.insert("buildrun.yaml".into(), b"a".to_vec());
        files.insert("logs/pod/step.log".into(), b"b".to_vec());
        let place = dir.path().join("d");
        write_directory(&files, &place).unwrap();
        assert_eq!(std::fs::read(place.join("logs/pod/step.log")).unwrap(), b"b");
        write_directory(&files, &place).expect_err("nothing is replaced");
        let archive = dir.path().join("a.tar.gz");
        write_archive(&files, "top", &archive).unwrap();
        let gzip = flate2::read::GzDecoder::new(std::fs::File::open(&archive).unwrap());
        let mut tar = tar::Archive::new(gzip);
        let names = tar.entries().unwrap().map(|e| e.unwrap().path().unwrap().into_owned());
        let names: Vec<PathBuf> = names.collect();
        assert_eq!(names, [PathBuf::from("top/buildrun.yaml"), "top/logs/pod/step.log".into()]);
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        assert_eq!(file_name("../x"), ".._x");
    }
}
