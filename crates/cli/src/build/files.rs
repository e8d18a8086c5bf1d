//! Resources in files.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use portolan_api::build::{Build, BuildRun};
use portolan_api::document::{self, Resource};
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
    for class in &mut objects.classes {
        class.status = Some(plan::class_status(class, &objects.image_platforms));
    }
    (runs, objects)
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
