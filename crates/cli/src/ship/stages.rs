//! The stages from a directory to a resolved image. Each asks the function that the command of its
//! own asks; here is only what is handed on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use portolan_api::build::{BuildRunStatus, PlatformState, SourceStatus};
use portolan_build::assemble::Recipe;
use portolan_build::engine::{self, Backend, Known, MadeOf, Origin, Outcome, Request};
use portolan_build::names::Outputs;
use portolan_build::plan::Timestamp;
use portolan_build::request::progress::State as Shown;
use portolan_compat::report::Compatibility;
use portolan_core::platform::{HostPlatform, PartialPlatform};
use portolan_core::select::Selection;
use portolan_core::{Digest, Platform, Reference};
use portolan_registry::client::Client;
use portolan_registry::progress::{Progress, Silent};
use portolan_verify::collect::Limits;
use portolan_verify::decision::Verdict;
use portolan_verify::sign::Form;

use super::log::{Done, Screens, short};
use super::report::{Product, command};
use super::signer::Signer;
use super::site::{Site, local};
use crate::build::local as builds;
use crate::cli::Global;
use crate::compat::external::PluginArgs;
use crate::compat::hosts::Machine;
use crate::compat::images::{ArtifactArgs, Looked};
use crate::compat::{attach, judge};
use crate::exit::{Exit, Failure};
use crate::image::compatible;
use crate::{sign, verify};

/// What is built.
pub(super) struct Wish<'a> {
    pub(super) dir: &'a Path,
    pub(super) file: Option<PathBuf>,
    pub(super) platforms: Vec<Platform>,
    pub(super) outputs: Outputs,
    /// What it is remembered under: wherever the embedded registry listens, it holds the same.
    pub(super) record: String,
}

impl Wish<'_> {
    fn request(&self) -> Request {
        let dir = self.dir.to_owned();
        let (file, target, args) = (self.file.clone(), None, Default::default());
        Request {
            recipe: Recipe { dir: dir.clone(), file, target, args, epoch: 0 },
            platforms: self.platforms.clone(),
            own: Vec::new(),
            outputs: self.outputs.clone(),
            labels: Default::default(),
            annotations: Default::default(),
            timestamp: Timestamp::Untouched,
            jobs: builds::processors(),
            origin: Origin::Sent { root: dir, stored: true },
            known: SourceStatus::default(),
            backend: Backend::Auto,
        }
    }
}

/// Builds and pushes; not what was built and pushed before and would come out the same. Gives the
/// digest of the index.
pub(super) async fn build(
    wish: &Wish<'_>,
    site: &Site,
    client: &Client,
    screens: &Screens,
) -> Result<Done<Digest>, Failure> {
    let (request, temp) = (wish.request(), std::env::temp_dir());
    let made_of = engine::made_of(&request, &temp).await.map_err(builds::failure)?;
    let digest = made_of.as_ref().map(MadeOf::digest);
    if let Some(known) = site.known(&wish.record).filter(|known| Some(known.made_of) == digest)
        && known.stands(&wish.outputs, client).await
    {
        for platform in &wish.platforms {
            screens.show(&platform.to_string(), Shown::Succeeded, "unchanged");
        }
        return done(&known.status, true);
    }
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let outcome = engine::run(&request, &temp, client, &progress, screens, builds::now).await;
    let outcome = outcome.map_err(builds::failure)?;
    if !outcome.succeeded {
        return Err(Failure::new(builds::exit(&outcome), anyhow::anyhow!(unbuilt(&outcome))));
    }
    if let Some(made_of) = made_of
        && let Some(known) = Known::of(made_of.digest(), &outcome.status)
        && made_of.still_holds(&request).await
    {
        site.remember(&wish.record, &known)?;
    }
    done(&outcome.status, false)
}

/// Why there is no index, and what to try where other platforms would help.
fn unbuilt(outcome: &Outcome) -> String {
    let message = outcome.status.conditions.first().map(|one| one.message.clone());
    let message = message.unwrap_or_default();
    let rows = outcome.status.output.iter().flat_map(|output| &output.platforms);
    let some = rows.into_iter().any(|row| row.state == PlatformState::Succeeded);
    match some || outcome.class.is_none() {
        true => format!("{message}; name the platforms that it can be built for with --platform"),
        false => message,
    }
}

fn done(status: &BuildRunStatus, existing: bool) -> Result<Done<Digest>, Failure> {
    let output = status.output.clone().unwrap_or_default();
    let index = output.digest.unwrap_or_default();
    let source = status.source.as_ref().and_then(|source| source.oci_artifact.as_ref());
    let product = |name: String, digest: &str| {
        let digest = digest.to_owned();
        Product { name, digest, existing }
    };
    let mut produced: Vec<Product> =
        source.map(|source| product("source".to_owned(), &source.digest)).into_iter().collect();
    for row in &output.platforms {
        let parts = [Some(&row.os), Some(&row.arch), row.variant.as_ref()];
        let name = parts.into_iter().flatten().cloned().collect::<Vec<_>>().join("/");
        produced.push(product(name, row.digest.as_deref().unwrap_or_default()));
    }
    produced.push(product("index".to_owned(), &index));
    let images: Vec<&str> =
        produced.iter().map(|one| one.name.as_str()).filter(|name| *name != "index").collect();
    let result = format!("{}, index {}", images.join(", "), short(&index));
    let digest = index.parse().context("the index has no digest").map_err(local)?;
    Ok(Done::new(digest, result).with(produced).unchanged_if(existing))
}

/// Signs the index and every image in it.
pub(super) async fn sign_all(
    image: &Reference,
    signer: &Signer,
    client: &Client,
) -> Result<Done<()>, Failure> {
    let signed = sign::all(image, &signer.key, true, &[Form::Bundle], client).await?;
    let produced: Vec<Product> = signed
        .signatures
        .iter()
        .map(|row| Product {
            name: row.name(),
            digest: row.signature.artifact.to_string(),
            existing: row.signature.existing,
        })
        .collect();
    let unchanged = produced.iter().all(|one| one.existing);
    let count = produced.len();
    let result = format!("{count} signatures of {}, {}", signer.name, short(&signed.key));
    Ok(Done::new((), result).with(produced).unchanged_if(unchanged))
}

/// Attaches what the image needs to every image.
pub(super) async fn attach_needs(
    image: &Reference,
    file: &Path,
    client: &Client,
) -> Result<Done<()>, Failure> {
    let attached = attach::unless_said(image, file, client).await?;
    let unchanged = attached.iter().all(|one| one.existing);
    let names: Vec<_> = attached.iter().map(|one| one.platform.clone()).collect();
    let name = file.file_name().unwrap_or_default().display();
    let result = format!("{name} to {}", names.join(", "));
    let produced = attached.into_iter().map(|one| Product {
        name: one.platform,
        digest: one.artifact.to_string(),
        existing: one.existing,
    });
    Ok(Done::new((), result).with(produced.collect()).unchanged_if(unchanged))
}

/// Verifies the index and every image in it, whatever was done before.
pub(super) async fn verify_both(
    image: &Reference,
    signer: &Signer,
    client: &Client,
) -> Result<Done<()>, Failure> {
    let rule = verify::signers::rule_of(&signer.name, signer.key.public().clone());
    let all = [PartialPlatform::any()];
    let answer = verify::image::ask(image, &rule, &all, &Limits::default(), client).await?;
    if answer.verdict != Verdict::Verified {
        let told = verify::table::answer(&answer);
        let error = anyhow::anyhow!("the image is not what {} signed\n{told}", signer.name);
        return Err(Failure::new(Exit::No, error));
    }
    let images = answer.subjects.len().saturating_sub(1);
    let result = format!("the index and {images} images are what {} signed", signer.name);
    Ok(Done::new((), result))
}

/// This host, and an image that was looked up for it.
pub(super) struct Met {
    pub(super) host: HostPlatform,
    machine: Machine,
    looked: Looked,
}

/// Where it is said what an image needs.
pub(super) struct Said<'a> {
    /// Whether the directory says it.
    pub(super) by_directory: bool,
    /// The image as other commands find it when this one is over.
    pub(super) image: &'a str,
}

impl Said<'_> {
    /// Which artifact counts. One that is not of this directory stays with an image that comes out the same, until somebody
    /// takes it away.
    fn by(&self, artifact: &Digest) -> String {
        let name = artifact.short();
        match self.by_directory {
            true => format!("by the artifact {name}"),
            false => {
                let remove = command(&["compat", "remove", self.image]);
                format!(
                    "by the artifact {name}, which is not of this directory; to drop it: {remove}"
                )
            }
        }
    }
}

/// Looks at this host, and asks whether it meets what the best image for it needs.
pub(super) async fn check(
    image: &Reference,
    said: &Said<'_>,
    client: &Client,
    global: &Global,
) -> Result<Done<Met>, Failure> {
    let machine = Machine::of(None);
    let host = machine.platform()?;
    let mut looked = Looked::up(image, &ArtifactArgs::default(), client).await?;
    let selection = looked.select(&host).map_err(|Failure { exit, error }| {
        let add = format!("{}/{}", host.platform.os, host.platform.architecture);
        Failure::new(exit, error.context(format!("nothing runs here; add --platform {add}")))
    })?;
    let name = selection.platform.as_ref().map_or_else(String::new, ToString::to_string);
    let result = match looked.needs(selection.chosen.digest).await {
        Err(Failure { exit: Exit::NoArtifact, .. }) => {
            format!("this host, {host}, runs {name}, which asks for nothing more")
        }
        Err(failure) => return Err(failure),
        Ok(needs) => {
            let report = judge(&needs, &machine, &PluginArgs::default(), global).await?;
            let why = report.why().next().unwrap_or_default();
            let by = said.by(&needs.found.digest);
            match report.verdict {
                Compatibility::Compatible => {
                    format!("this host, {host}, meets what {name} needs {by}")
                }
                verdict => {
                    format!("this host, {host}, is {} to {name}: {why}, {by}", verdict.as_str())
                }
            }
        }
    };
    Ok(Done::new(Met { host, machine, looked }, result))
}

/// The best image whose needs this host meets.
pub(super) async fn resolve(met: &mut Met, global: &Global) -> Result<Done<Selection>, Failure> {
    let Met { host, machine, looked } = met;
    let plugins = PluginArgs::default();
    let (selection, _) = compatible::choose(looked, host, machine, &plugins, global).await?;
    let name = selection.platform.as_ref().map_or_else(|| "image".to_owned(), ToString::to_string);
    let digest = selection.chosen.digest;
    let result = format!("{name} {}", digest.short());
    let produced = vec![Product { name, digest: digest.to_string(), existing: true }];
    Ok(Done::new(selection, result).with(produced))
}

#[cfg(test)]
mod tests {
    use portolan_registry::ErrorClass;
    use serde_json::json;

    use super::*;

    #[test]
    fn other_platforms_are_advised_only_where_they_would_help() {
        let outcome = |first: &str, class| {
            Outcome {
            status: serde_json::from_value(json!({
                "conditions": [{"type": "Succeeded", "status": "False", "reason": "Failed", "message": "no index"}],
                "output": {"platforms": [
                    {"os": "linux", "arch": "amd64", "image": "a", "state": first},
                    {"os": "linux", "arch": "arm64", "image": "b", "state": "Failed"},
                ]},
            }))
            .unwrap(),
            succeeded: false,
            class,
        }
        };
        let advises = |outcome| unbuilt(&outcome).contains("--platform");
        assert!(advises(outcome("Succeeded", Some(ErrorClass::BadInput))));
        assert!(advises(outcome("Failed", None)), "the base image has neither");
        assert!(!advises(outcome("Failed", Some(ErrorClass::Transport))));
    }
}
