//! Resources in files.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use portolan_api::ResourceExt;
use portolan_api::build::{Build, BuildRun};
use portolan_api::document::{self, Resource};
use portolan_api::install::{self, Component, Options};
use portolan_build::plan::{self, Objects};
use portolan_registry::durable;

use crate::exit::{Exit, Failure};
use crate::format;

/// Every resource of these files; `-` is stdin.
pub(crate) fn read_all(files: &[PathBuf]) -> Result<Vec<Resource>, Failure> {
    let mut resources = Vec::new();
    for file in files {
        resources.extend(read(file)?);
    }
    Ok(resources)
}

fn read(file: &Path) -> Result<Vec<Resource>, Failure> {
    let bytes = bytes(file, document::MAX_BYTES as u64)?;
    document::read(&bytes).map_err(|error| {
        Failure::usage(anyhow::Error::new(error).context(file.display().to_string()))
    })
}

/// A whole file; `-` is stdin. At most one byte more than the limit.
pub(crate) fn bytes(file: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().take(limit + 1).read_to_end(&mut bytes).map_err(Failure::usage)?;
        return Ok(bytes);
    }
    let read = durable::read_bounded(file, limit).map_err(Failure::usage)?;
    read.ok_or_else(|| {
        Failure::new(Exit::NotFound, anyhow::anyhow!("there is no {}", file.display()))
    })
}

/// What is run, and what that may refer to. Classes get the status that their controller would
/// give them.
pub(super) fn sort(resources: Vec<Resource>) -> (Vec<BuildRun>, Objects) {
    let (mut runs, mut objects) = (Vec::new(), Objects::default());
    for resource in resources {
        match resource {
            Resource::Build(build) => objects.builds.push(build),
            Resource::BuildRun(run) => runs.push(run),
            Resource::BuildStrategy(strategy) => objects.strategies.push(strategy),
            Resource::ClusterBuildStrategy(strategy) => objects.cluster_strategies.push(strategy),
            Resource::ImagePlatform(platform) => objects.image_platforms.push(platform),
            Resource::ImagePlatformClass(class) => objects.classes.push(class),
            Resource::Shim(_) => format::tell("note: Shims are not looked at here"),
            Resource::Release(_) => format::tell("note: Releases are not looked at here"),
            Resource::Other { api_version, kind } => {
                format::tell(&format!("note: {kind} of {api_version} is not looked at"));
            }
        }
    }
    judge_classes(&mut objects);
    (runs, objects)
}

/// Says that runs in files are not used, where a Build is what is asked for.
pub(super) fn pass_over(runs: &[BuildRun]) {
    for run in runs {
        let name = run.metadata.name.as_deref().or(run.metadata.generate_name.as_deref());
        let name = format::printable(name.unwrap_or_default());
        format::tell(&format!(
            "note: the BuildRun {name} is not looked at here; say what it says by flags"
        ));
    }
}

fn judge_classes(objects: &mut Objects) {
    for class in &mut objects.classes {
        class.status = Some(plan::class_status(class, &objects.image_platforms));
    }
}

/// Adds the strategies, platforms and classes that an installation brings, but for those that a file has under the same name.
pub(super) fn add_shipped(objects: &mut Objects) -> Result<(), Failure> {
    let components = BTreeSet::from([Component::Build]);
    let options = Options { components, ..Options::new(env!("CARGO_PKG_VERSION")) };
    let mut resources = Vec::new();
    for object in install::objects(&options).map_err(Failure::usage)? {
        if ["ClusterBuildStrategy", "ImagePlatform", "ImagePlatformClass"]
            .iter()
            .any(|kind| object["kind"] == **kind)
        {
            let read = document::read(object.to_string().as_bytes());
            resources.extend(read.map_err(Failure::usage)?);
        }
    }
    let (_, shipped) = sort(resources);
    add(&mut objects.cluster_strategies, shipped.cluster_strategies);
    add(&mut objects.image_platforms, shipped.image_platforms);
    add(&mut objects.classes, shipped.classes);
    judge_classes(objects);
    Ok(())
}

fn add<T: ResourceExt>(all: &mut Vec<T>, more: Vec<T>) {
    let known: BTreeSet<String> = all.iter().map(ResourceExt::name_any).collect();
    all.extend(more.into_iter().filter(|one| !known.contains(&one.name_any())));
}

/// The one Build among them, or the one of that name.
pub(super) fn one_build(builds: &[Build], name: Option<&str>) -> Result<Build, Failure> {
    let named =
        |build: &&Build| name.is_none_or(|name| build.metadata.name.as_deref() == Some(name));
    let found: Vec<&Build> = builds.iter().filter(named).collect();
    match (found[..].len(), name) {
        (1, _) => Ok(found[0].clone()),
        (0, Some(name)) => {
            let error = anyhow::anyhow!("the files have no Build {name:?}");
            Err(Failure::new(Exit::NotFound, error))
        }
        (0, None) => Err(Failure::usage(anyhow::anyhow!("the files have no Build"))),
        (many, _) => {
            let error = anyhow::anyhow!("the files have {many} Builds; name the one that is meant");
            Err(Failure::usage(error))
        }
    }
}
