//! `portolan compat attach IMAGE --file SPEC`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use portolan_compat::artifact::{
    self, Attachment, Choice, Image, Kind, Listed, MAX_PLUGIN_BYTES, MAX_SPEC_BYTES, PluginFile,
    Subject, Which, attach,
};
use portolan_compat::nfd;
use portolan_compat::requirements::{ReadRequirements, Requirements};
use portolan_core::{Digest, Platform, Reference};
use portolan_host::elf::Header;
use portolan_registry::ErrorClass;
use portolan_registry::client::Client;
use portolan_registry::images::Place;
use serde::Serialize;

use super::read_file;
use super::subjects::{self, Spoken, SubjectArg, failure};
use crate::cli::Global;
use crate::context::{self, classed};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::image::wanted;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan compat attach 127.0.0.1:5000/app:1 --file needs.json\n  \
    portolan compat attach 127.0.0.1:5000/app:1 --file needs.json --platform linux/amd64/v3\n  \
    portolan compat attach 127.0.0.1:5000/app:1 --file needs.json --plugin gpu=./gpu@linux/amd64\n\n\
    Of an index every image gets an artifact of its own. The newest one counts; see `compat list`."
)]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "IMAGE")]
    reference: Reference,
    /// What the image needs: a compatibility spec, or rules of NFD
    #[arg(long, value_name = "SPEC")]
    file: PathBuf,
    /// A program that the spec asks for, as NAME=FILE[@PLATFORM]; without a platform it is for that
    /// of each image (repeatable)
    #[arg(long = "plugin", value_name = "NAME=FILE[@PLATFORM]", value_parser = plugin)]
    plugins: Vec<PluginArg>,
    /// Only to the image for this platform (repeatable)
    #[arg(long = "platform", value_name = "PLATFORM", value_parser = wanted::platform)]
    platforms: Vec<Platform>,
    /// To the images, or to the index as a whole
    #[arg(long, value_enum, default_value_t = SubjectArg::Manifest)]
    subject: SubjectArg,
    /// How to print what was made
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PluginArg {
    name: String,
    file: PathBuf,
    platform: Option<Platform>,
}

/// `NAME=FILE[@PLATFORM]`. A file name may hold `@` itself: only what reads as os/arch is taken off.
fn plugin(text: &str) -> Result<PluginArg, String> {
    let Some((name, rest)) =
        text.split_once('=').filter(|(name, rest)| !name.is_empty() && !rest.is_empty())
    else {
        return Err(format!("{text:?} is not NAME=FILE or NAME=FILE@PLATFORM"));
    };
    let (file, platform) = match rest.rsplit_once('@') {
        Some((file, platform)) if platform.contains('/') && !file.is_empty() => {
            match platform.parse::<Platform>() {
                Ok(platform) => (file, Some(platform)),
                Err(_) => (rest, None),
            }
        }
        _ => (rest, None),
    };
    Ok(PluginArg { name: name.to_owned(), file: file.into(), platform })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    platform: String,
    subject: Digest,
    artifact: Digest,
    /// The artifact that counts for the image now.
    chosen: Digest,
    /// Those that come after it, if it is the one that counts.
    supersedes: Vec<Digest>,
}

/// What is attached, as a file has it.
struct Needs {
    kind: Kind,
    spec: Bytes,
    requirements: Requirements,
}

impl Needs {
    /// Reads a file; what is doubtful in it is told.
    fn read(file: &Path) -> Result<Self, Failure> {
        let spec = Bytes::from(read_file(file, MAX_SPEC_BYTES)?);
        let kind = if nfd::looks_like_rules(&spec) { Kind::Nfd } else { Kind::Spec };
        let read = Requirements::read(kind, &spec)
            .with_context(|| file.display().to_string())
            .map_err(Failure::usage)?;
        let ReadRequirements { warnings, requirements } = read;
        for warning in warnings {
            format::tell(&format!("{}:{warning}", file.display()));
        }
        Ok(Self { kind, spec, requirements })
    }

    /// Attaches it to one manifest, so that it counts before what is there.
    async fn attach(
        &self,
        place: &Place,
        one: &Spoken,
        plugins: Vec<PluginFile>,
    ) -> Result<Made, Failure> {
        let subject = one.descriptor.digest;
        let kind = self.kind;
        let mut all = artifact::list(place, &subject).await.map_err(failure)?;
        let newest = all.iter().filter(|old| old.kind == kind).filter_map(|old| old.created).max();
        let created = after(newest, Timestamp::now());
        let attachment = Attachment { kind, spec: self.spec.clone(), plugins, created };
        let stored = attach(place, &one.descriptor, &attachment).await;
        let artifact = stored.map_err(|error| classed(error.class(), error))?.digest;
        all.push(Listed { digest: artifact, kind, created: Some(created), subject });
        let Choice { chosen, skipped } = artifact::choose(all).expect("there is one at least");
        let supersedes = match chosen.digest == artifact {
            true => skipped.into_iter().map(|old| old.digest).collect(),
            false => Vec::new(),
        };
        Ok(Made { platform: one.name(), subject, artifact, chosen: chosen.digest, supersedes })
    }

    /// The artifact that says the very same of a manifest, where it is the one that counts.
    async fn said(&self, place: &Place, subject: Digest) -> Result<Option<Digest>, Failure> {
        let image = Image { top: subject, manifest: subject };
        match artifact::find(place, &image, Subject::Manifest, &Which::Best).await {
            Ok(found) => {
                let same = found.spec == self.spec && found.contents.plugins.is_empty();
                Ok(same.then_some(found.digest))
            }
            // What cannot be read does not count before ours.
            Err(error) => match error.class() {
                None | Some(ErrorClass::BadInput | ErrorClass::NotFound) => Ok(None),
                Some(_) => Err(failure(error)),
            },
        }
    }
}

/// What an image says it needs, and whether it said so before.
pub(crate) struct Attached {
    pub(crate) platform: String,
    pub(crate) artifact: Digest,
    pub(crate) existing: bool,
}

/// Attaches a file to every image of an index, but not to one that says the same already.
pub(crate) async fn unless_said(
    reference: &Reference,
    file: &Path,
    client: &Client,
) -> Result<Vec<Attached>, Failure> {
    let needs = Needs::read(file)?;
    let (place, spoken) = subjects::of(reference, &[], client).await?;
    let mut all = Vec::new();
    for one in spoken.into_iter().filter(|one| !one.is_index) {
        let platform = one.name();
        all.push(match needs.said(&place, one.descriptor.digest).await? {
            Some(artifact) => Attached { platform, artifact, existing: true },
            None => {
                let made = needs.attach(&place, &one, Vec::new()).await?;
                Attached { platform, artifact: made.artifact, existing: false }
            }
        });
    }
    Ok(all)
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let needs = Needs::read(&args.file)?;
    let mut programs = Vec::new();
    for arg in &args.plugins {
        programs.push((arg, Bytes::from(read_file(&arg.file, MAX_PLUGIN_BYTES)?)));
    }
    let client = context::client(global)?;
    let (place, spoken) = subjects::of(&args.reference, &args.platforms, &client).await?;
    let to_index = args.subject == SubjectArg::Index;
    let spoken: Vec<Spoken> = spoken.into_iter().filter(|one| one.is_index == to_index).collect();
    if spoken.is_empty() {
        let what = if to_index { "is no index" } else { "holds no image" };
        return Err(Failure::usage(anyhow::anyhow!("{} {what}", args.reference)));
    }
    let mut made = Vec::new();
    let mut warned = BTreeSet::new();
    for one in spoken {
        let plugins: Vec<_> =
            programs.iter().map(|(arg, program)| layer(arg, program, &one)).collect();
        for (plugin, arg) in plugins.iter().zip(&args.plugins) {
            for warning in doubts(plugin, &needs.requirements) {
                if warned.insert((arg.file.clone(), warning.clone())) {
                    format::tell(&format!("warning: {}: {warning}", arg.file.display()));
                }
            }
        }
        made.push(needs.attach(&place, &one, plugins).await?);
    }
    args.format.print(&made, |made| {
        let rows = made.iter().map(|one| {
            let counts = match one.supersedes.len() {
                _ if one.chosen != one.artifact => {
                    format!("does not count: {} does", one.chosen.short())
                }
                0 => String::new(),
                n => format!("before {n} older"),
            };
            vec![one.platform.clone(), one.subject.short(), one.artifact.to_string(), counts]
        });
        format::table(&["PLATFORM", "SUBJECT", "ARTIFACT", ""], rows.collect())
    })?;
    Ok(Exit::Ok)
}

/// The time of an artifact that is to count before one of `newest`. To the second, as others write
/// it, where that is enough. Nothing is after the end of time.
fn after(newest: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let second = Timestamp::from_second(now.as_second()).expect("the present is a time");
    let Some(newest) = newest else { return second };
    let next = || newest.checked_add(SignedDuration::from_nanos(1)).unwrap_or(now);
    [second, now].into_iter().find(|time| *time > newest).unwrap_or_else(next)
}

/// Why a program may be of no use to whoever asks for it.
fn doubts(plugin: &PluginFile, requirements: &Requirements) -> Vec<String> {
    let mut doubts = Vec::new();
    let asked = match requirements {
        Requirements::Spec(spec) => {
            let mut plugins = spec.namespaces().flat_map(|(_, one)| &one.plugins);
            plugins.any(|one| one.name == plugin.name)
        }
        Requirements::Nfd(_) => false,
    };
    if !asked {
        doubts.push(format!("nothing in the requirements asks for a plugin {:?}", plugin.name));
    }
    let Some(platform) = &plugin.platform else { return doubts };
    match Header::parse(&plugin.program) {
        None => doubts.push("it is no ELF program, and will not be run".to_owned()),
        Some(header) => {
            let own = header.architecture().unwrap_or("an unknown machine");
            let wanted = platform.normalised();
            if own != wanted.architecture {
                doubts.push(format!("it is a program for {own}, attached for {wanted}"));
            }
        }
    }
    doubts
}

/// A program without a platform is for that of the image, unless it runs anywhere.
fn layer(arg: &PluginArg, program: &Bytes, subject: &Spoken) -> PluginFile {
    let is_wasm = program.starts_with(b"\0asm");
    let of_image =
        || subject.platform.as_ref().map(|platform| Platform { variant: None, ..platform.clone() });
    let platform = arg.platform.clone().or_else(|| if is_wasm { None } else { of_image() });
    PluginFile { name: arg.name.clone(), platform, program: program.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_newer_than_all_before_it() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = time("2026-01-02T03:04:05.678Z");
        let second = time("2026-01-02T03:04:05Z");
        assert_eq!(after(None, now), second);
        assert_eq!(after(Some(time("2026-01-02T03:04:04Z")), now), second);
        assert_eq!(after(Some(second), now), now);
        assert_eq!(after(Some(now), now), time("2026-01-02T03:04:05.678000001Z"));
        let future = time("2099-01-01T00:00:00Z");
        assert_eq!(after(Some(future), now), time("2099-01-01T00:00:00.000000001Z"));
        assert_eq!(after(Some(Timestamp::MAX), now), now);
    }

    #[test]
    fn a_plugin_has_a_name_a_file_and_perhaps_a_platform() {
        let read = |text: &str| {
            let PluginArg { name, file, platform } = plugin(text).unwrap();
            (name, file.display().to_string(), platform.map(|p| p.to_string()))
        };
        let (gpu, platform) = ("gpu".to_owned(), Some("linux/arm64".to_owned()));
        assert_eq!(read("gpu=./a"), (gpu.clone(), "./a".to_owned(), None));
        assert_eq!(read("gpu=./a@linux/arm64"), (gpu.clone(), "./a".to_owned(), platform));
        assert_eq!(read("gpu=a@1/b@2"), (gpu.clone(), "a@1/b@2".to_owned(), None));
        assert_eq!(read("gpu=a=b"), (gpu, "a=b".to_owned(), None));
        for bad in ["gpu", "=a", "gpu="] {
            assert!(plugin(bad).is_err(), "{bad}");
        }
    }
}
