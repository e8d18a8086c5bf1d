//! `portolan image index create DST SRC…`

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_core::assemble::assemble;
use portolan_core::manifest::media_type;
use portolan_core::{Descriptor, Platform, Reference};
use portolan_registry::client::Client;
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::images;
use portolan_registry::progress::Progress;
use serde::Serialize;

use super::resolve;
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::progress;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make one index out of several images
    Create(Create),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan image index create 127.0.0.1:5000/app:1 127.0.0.1:5000/app:1-amd64 127.0.0.1:5000/app:1-arm64\n\n\
    Entries stand in the order given; the same images give the same digest every time."
)]
pub(crate) struct Create {
    /// Where the index goes: registry/repository[:tag] or oci:DIR[:tag]
    #[arg(value_name = "DST")]
    destination: Reference,
    /// The images; of an index, every image in it. What is elsewhere is copied to DST first
    #[arg(value_name = "SRC", required = true)]
    sources: Vec<Reference>,
    /// An annotation of the index, KEY=VALUE (repeatable)
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = key_value)]
    annotations: Vec<(String, String)>,
    /// How to print what was made
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    reference: String,
    digest: String,
    media_type: &'static str,
    manifests: Vec<Descriptor>,
}

pub(crate) async fn create(args: Create, global: &Global) -> Result<Exit, Failure> {
    let client = context::client(global)?;
    let listener = progress::listener(global.progress);
    let mut images = Vec::new();
    for source in &args.sources {
        for (image, platform) in images_of(source, &client).await? {
            bring(source, &image, &args.destination, &client, &listener).await?;
            images.push((plain(image), platform));
        }
    }
    let annotations: BTreeMap<_, _> = args.annotations.into_iter().collect();
    let index = assemble(images, annotations).map_err(Failure::usage)?;

    let place = super::create(&args.destination, &client)?;
    let tag = match images::target(&args.destination) {
        Some(portolan_core::Target::Tag(tag)) => Some(tag),
        Some(portolan_core::Target::Digest(wanted)) => {
            let message = format!(
                "DST names the digest {wanted}; an index gets its digest from what is in it, so name a tag"
            );
            return Err(Failure::usage(anyhow::Error::msg(message)));
        }
        None => None,
    };
    let stored = place
        .push_manifest(media_type::OCI_INDEX, index.to_vec().into(), tag.as_ref())
        .await
        .map_err(super::failure)?;
    let made = Made {
        reference: args.destination.to_string(),
        digest: stored.digest.to_string(),
        media_type: media_type::OCI_INDEX,
        manifests: index.manifests,
    };
    args.format.print(&made, |made| {
        let rows = made.manifests.iter().map(|entry| {
            let platform = entry.platform.as_ref().map(ToString::to_string).unwrap_or_default();
            vec![platform, entry.digest.to_string()]
        });
        let table = format::table(&["PLATFORM", "DIGEST"], rows.collect());
        format!("{}\n{}\n\n{table}", made.reference, made.digest)
    })?;
    Ok(Exit::Ok)
}

/// Every image that `source` names, with what it runs on.
async fn images_of(
    source: &Reference,
    client: &Client,
) -> Result<Vec<(Descriptor, Platform)>, Failure> {
    let place = super::open(source, client)?;
    let target = images::target(source);
    let top = place.fetch(target.as_ref()).await.map_err(super::failure)?;
    let candidates = images::candidates(&place, &top).await.map_err(resolve::failure)?;
    let mut found = Vec::new();
    for (image, platform) in candidates.manifests() {
        match platform {
            // Attestations speak of digests in the index they came with.
            Some(platform) if platform.is_unknown() => {}
            Some(platform) => found.push((image.clone(), platform.clone())),
            None => {
                let message = format!(
                    "{source}: the config of {} names no platform, so nobody could choose it; rebuild the image with one",
                    image.digest
                );
                return Err(Failure::usage(anyhow::Error::msg(message)));
            }
        }
    }
    Ok(found)
}

/// Copies one image to where the index will be.
async fn bring(
    source: &Reference,
    image: &Descriptor,
    destination: &Reference,
    client: &Client,
    listener: &Arc<dyn Progress>,
) -> Result<(), Failure> {
    let from = source.with_digest(image.digest);
    let to = destination.with_digest(image.digest);
    if from != to {
        copy(&from, &to, client, &CopyOptions::default(), Arc::clone(listener))
            .await
            .map_err(super::copy::failure)?;
    }
    Ok(())
}

/// What describes the image itself; what another index or layout said of it stays there.
fn plain(image: Descriptor) -> Descriptor {
    Descriptor::new(&image.media_type, image.digest, image.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_needs_a_key_and_may_hold_more_equals_signs() {
        assert_eq!(key_value("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(key_value("=b").is_err());
        assert!(key_value("a").is_err());
    }
}
