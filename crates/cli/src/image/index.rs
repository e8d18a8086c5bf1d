//! `portolan image index create DST SRC…`

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_core::assemble::assemble;
use portolan_core::manifest::media_type;
use portolan_core::{Descriptor, Digest, Platform, Reference, Tag, Target};
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

/// `KEY=VALUE`, as flags take it.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
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
    // Everything is read and checked before anything is written.
    let tag = destination_tag(&args.destination)?;
    let (mut images, mut found) = (Vec::new(), Vec::new());
    for source in &args.sources {
        for (image, platform) in images_of(source, &client).await? {
            found.push((source, image.digest));
            images.push((plain(image), platform));
        }
    }
    let annotations: BTreeMap<_, _> = args.annotations.into_iter().collect();
    let index = assemble(images, annotations).map_err(Failure::usage)?;

    for (source, digest) in found {
        bring(source, digest, &args.destination, &client, &listener).await?;
    }
    // The bars go before the result comes: they would be drawn over it.
    drop(listener);
    let place = super::create(&args.destination, &client)?;
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

/// The tag that the index gets, if any.
fn destination_tag(destination: &Reference) -> Result<Option<Tag>, Failure> {
    match images::target(destination) {
        Some(Target::Tag(tag)) => Ok(Some(tag)),
        None => Ok(None),
        Some(Target::Digest(wanted)) => Err(Failure::usage(anyhow::anyhow!(
            "DST names the digest {wanted}; an index gets its digest from what is in it, so name a tag"
        ))),
    }
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
    if let Some(closed) = candidates.unopened() {
        return Err(Failure::usage(anyhow::anyhow!(
            "{source}: the index {} in it lies too deep, holds too much or contains itself, so not every image could be found; name the images one by one",
            closed.digest
        )));
    }
    let mut found = Vec::new();
    for (image, platform) in candidates.manifests() {
        match platform {
            // Attestations speak of digests in the index they came with.
            Some(platform) if platform.is_unknown() => {}
            Some(platform) => found.push((image.clone(), platform.clone())),
            None => {
                return Err(Failure::usage(anyhow::anyhow!(
                    "{source}: the config of {} names no platform, so nobody could choose it; rebuild the image with one",
                    image.digest
                )));
            }
        }
    }
    Ok(found)
}

/// Copies one image to where the index will be.
async fn bring(
    source: &Reference,
    image: Digest,
    destination: &Reference,
    client: &Client,
    listener: &Arc<dyn Progress>,
) -> Result<(), Failure> {
    let from = source.with_digest(image);
    let to = destination.with_digest(image);
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
