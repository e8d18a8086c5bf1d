//! `portolan compat remove IMAGE`

use portolan_compat::artifact::{self, Kind, Listed};
use portolan_core::{Digest, Platform, Reference};
use serde::Serialize;

use super::subjects::{self, failure};
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::image::{self, wanted};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan compat remove 127.0.0.1:5000/app:1\n  \
    portolan compat remove 127.0.0.1:5000/app:1 --artifact sha256:…\n\n\
    Without --artifact every compatibility spec goes; rules of NFD, which others may rely on, only by name.")]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "IMAGE")]
    reference: Reference,
    /// Only this one (repeatable)
    #[arg(long = "artifact", value_name = "DIGEST")]
    artifacts: Vec<Digest>,
    /// Only of the image for this platform (repeatable)
    #[arg(long = "platform", value_name = "PLATFORM", value_parser = wanted::platform)]
    platforms: Vec<Platform>,
    /// How to print what was removed
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Removed {
    removed: Vec<Listed>,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let client = context::client(global)?;
    let (place, spoken) = subjects::of(&args.reference, &args.platforms, &client).await?;
    let mut found = Vec::new();
    for one in spoken {
        found.extend(artifact::list(&place, &one.descriptor.digest).await.map_err(failure)?);
    }
    let doomed = doomed(&found, &args.artifacts).map_err(|missing| {
        let error = anyhow::anyhow!("{missing} is no compatibility artifact of {}", args.reference);
        Failure::new(Exit::NotFound, error)
    })?;
    if doomed.is_empty() {
        let rules = match found.len() {
            0 => String::new(),
            n => format!("; {n} of rules of NFD go only by name, with --artifact"),
        };
        let error = anyhow::anyhow!(
            "there is nothing to remove: no spec speaks of {}{rules}",
            args.reference
        );
        return Err(Failure::new(Exit::NoArtifact, error));
    }
    for artifact in &doomed {
        place.delete_manifest(&artifact.digest).await.map_err(image::failure)?;
    }
    args.format.print(&Removed { removed: doomed }, |Removed { removed }| {
        let rows = removed.iter().map(|one| vec![one.digest.to_string(), one.subject.short()]);
        format::table(&["REMOVED", "SUBJECT"], rows.collect())
    })?;
    Ok(Exit::Ok)
}

/// What is to go, or which of those asked for is not there.
fn doomed(found: &[Listed], asked: &[Digest]) -> Result<Vec<Listed>, Digest> {
    if asked.is_empty() {
        return Ok(found.iter().filter(|one| one.kind == Kind::Spec).cloned().collect());
    }
    let mut doomed: Vec<Listed> = Vec::new();
    for digest in asked {
        let named = found.iter().find(|one| one.digest == *digest).ok_or(*digest)?;
        if !doomed.contains(named) {
            doomed.push(named.clone());
        }
    }
    Ok(doomed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_rely_on_goes_only_by_name() {
        let listed = |text: &str, kind| Listed {
            digest: Digest::sha256(text.as_bytes()),
            kind,
            created: None,
            subject: Digest::sha256(b"image"),
        };
        let found = [listed("a", Kind::Spec), listed("b", Kind::Nfd)];
        assert_eq!(doomed(&found, &[]).unwrap(), found[..1]);
        assert_eq!(doomed(&found, &[found[1].digest]).unwrap(), found[1..]);
        let other = Digest::sha256(b"c");
        assert_eq!(doomed(&found, &[found[0].digest, other]), Err(other));
    }
}
