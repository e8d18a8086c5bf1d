//! Images and what they need: from a reference to the requirements that count for a machine.

use std::collections::HashMap;
use std::sync::Arc;

use portolan_compat::Mode;
use portolan_compat::artifact::{self, FindError, Found, Image, Listed, Subject, Which};
use portolan_compat::external::Origin;
use portolan_compat::requirements::{ReadRequirements, Requirements};
use portolan_core::manifest::Document;
use portolan_core::platform::HostPlatform;
use portolan_core::select::{Candidates, Selection, select};
use portolan_core::{Digest, Platform, Reference};
use portolan_registry::client::Client;
use portolan_registry::images::{self, Place, ResolveError};

use super::subjects::{SubjectArg, failure};
use crate::exit::Failure;
use crate::image;

/// Artifacts that do not count and are named in a report; anybody may attach thousands.
const MAX_SKIPPED: usize = 10;

// Which artifact of an image counts, and for which platform. A doc comment would become the help
// of each command that takes these.
#[derive(Debug, clap::Args)]
pub(crate) struct ArtifactArgs {
    /// The image for this platform instead of the one this host would run
    #[arg(long, value_name = "PLATFORM", value_parser = image::wanted::platform)]
    pub(crate) platform: Option<Platform>,
    /// This artifact instead of the newest
    #[arg(long, value_name = "DIGEST", conflicts_with = "artifact_ref")]
    pub(crate) artifact: Option<Digest>,
    /// The artifact under this tag, which must speak of the image
    #[arg(long, value_name = "REF")]
    pub(crate) artifact_ref: Option<Reference>,
    /// Where artifacts are looked for
    #[arg(long, value_enum, default_value_t = SubjectArg::Manifest)]
    pub(crate) subject: SubjectArg,
}

impl Default for ArtifactArgs {
    /// The newest, for the platform of the host.
    fn default() -> Self {
        Self { platform: None, artifact: None, artifact_ref: None, subject: SubjectArg::Manifest }
    }
}

impl ArtifactArgs {
    /// The machine to choose an image for, where the command line names one.
    pub(super) fn named(&self) -> Option<HostPlatform> {
        let platform = self.platform.as_ref()?;
        image::wanted::warn(platform);
        Some(HostPlatform::named(platform))
    }

    fn which(&self, client: &Client) -> Result<Which, Failure> {
        match (&self.artifact, &self.artifact_ref) {
            (Some(digest), _) => Ok(Which::Digest(*digest)),
            (None, Some(reference)) => {
                let place = image::open(reference, client)?;
                let Some(target) = images::target(reference) else {
                    let error = anyhow::anyhow!("{reference} names no artifact; add a tag");
                    return Err(Failure::usage(error));
                };
                Ok(Which::At(place, target))
            }
            (None, None) => Ok(Which::Best),
        }
    }
}

/// An image that was looked up once, however many machines are asked about it.
pub(crate) struct Looked {
    place: Place,
    top: Digest,
    candidates: Candidates,
    which: Which,
    subject: Subject,
    mode: Mode,
    /// Of a manifest that the reference itself names, until somebody asks.
    ahead: Option<Result<Found, FindError>>,
    needs: HashMap<Digest, Arc<Needs>>,
}

/// What one manifest needs.
pub(crate) struct Needs {
    pub(crate) found: Found,
    pub(crate) requirements: Requirements,
    pub(crate) warnings: Vec<String>,
}

impl Needs {
    /// Where it comes from, for plugins that came with it.
    pub(super) fn origin(&self) -> Origin {
        let repository = match &self.found.place {
            Place::Remote(_) => Some(self.found.place.to_string()),
            Place::Layout(_) => None,
        };
        Origin {
            repository,
            artifact: Some(self.found.digest),
            plugins: self.found.contents.plugins.clone(),
            place: Some(self.found.place.clone()),
        }
    }
}

impl Looked {
    pub(crate) async fn up(
        reference: &Reference,
        args: &ArtifactArgs,
        client: &Client,
    ) -> Result<Self, Failure> {
        let place = image::open(reference, client)?;
        let target = images::target(reference);
        let top = place.fetch(target.as_ref()).await.map_err(image::failure)?;
        let (which, subject) = (args.which(client)?, args.subject.into());
        let digest = top.descriptor.digest;
        // What counts for the only manifest there is need not wait for its platform.
        let ahead = async {
            let Document::Manifest(_) = &top.document else { return None };
            let image = Image { top: digest, manifest: digest };
            Some(artifact::find(&place, &image, subject, &which).await)
        };
        let (candidates, ahead) =
            futures_util::future::join(images::candidates(&place, &top), ahead).await;
        Ok(Self {
            top: digest,
            candidates: candidates.map_err(image::resolve::failure)?,
            which,
            subject,
            ahead,
            place,
            mode: Mode::Lenient,
            needs: HashMap::new(),
        })
    }

    /// The same, with its specs read in this mode.
    pub(super) fn reading(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// The manifest that `host` runs.
    pub(crate) fn select(&self, host: &HostPlatform) -> Result<Selection, Failure> {
        self.select_from(&self.candidates, host)
    }

    pub(crate) fn select_from(
        &self,
        candidates: &Candidates,
        host: &HostPlatform,
    ) -> Result<Selection, Failure> {
        select(candidates, host).map_err(|refusal| {
            image::resolve::failure(ResolveError::NoMatch { digest: self.top, refusal })
        })
    }

    /// What the reference named.
    pub(crate) fn top(&self) -> Digest {
        self.top
    }

    pub(crate) fn candidates(&self) -> &Candidates {
        &self.candidates
    }

    /// What the manifest needs.
    pub(crate) async fn needs(&mut self, manifest: Digest) -> Result<Arc<Needs>, Failure> {
        if let Some(known) = self.needs.get(&manifest) {
            return Ok(Arc::clone(known));
        }
        let image = Image { top: self.top, manifest };
        let found = match self.ahead.take().filter(|_| manifest == self.top) {
            Some(found) => found,
            None => artifact::find(&self.place, &image, self.subject, &self.which).await,
        };
        let found = found.map_err(failure)?;
        let read = Requirements::read_in(self.mode, found.contents.kind, &found.spec);
        let read = read.map_err(|error| {
            let error = anyhow::Error::new(error);
            Failure::usage(error.context(format!("the artifact {} cannot be used", found.digest)))
        })?;
        let ReadRequirements { requirements, mut warnings } = read;
        warnings.extend(skipped(&found.skipped));
        let needs = Arc::new(Needs { found, requirements, warnings });
        self.needs.insert(manifest, Arc::clone(&needs));
        Ok(needs)
    }
}

/// What is said about artifacts that do not count.
fn skipped(skipped: &[Listed]) -> Vec<String> {
    let named = skipped.iter().take(MAX_SKIPPED);
    let mut lines: Vec<String> =
        named.map(|one| format!("not looked at: {one}; another one comes before it")).collect();
    if let Some(more) = skipped.len().checked_sub(MAX_SKIPPED).filter(|more| *more > 0) {
        lines.push(format!("not looked at: {more} more; `portolan compat list` names them"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_that_do_not_count_are_named_and_the_others_counted() {
        let one = |n: usize| Listed {
            digest: Digest::sha256(n.to_string().as_bytes()),
            kind: artifact::Kind::Spec,
            created: None,
            subject: Digest::sha256(b"image"),
        };
        let lines = |n: usize| skipped(&(0..n).map(one).collect::<Vec<_>>());
        assert_eq!((lines(0).len(), lines(10).len()), (0, 10));
        let many = lines(100_000);
        assert_eq!(many.len(), 11);
        assert!(many[10].contains("99990 more"), "{}", many[10]);
    }
}
