//! `portolan image inspect REF`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use futures_util::{StreamExt as _, stream};
use portolan_core::platform::HostPlatform;
use portolan_core::select::{Candidates, Considered, LevelChoice, by_level, select};
use portolan_core::{Descriptor, Digest, Document, Platform, Reference, Target};
use portolan_registry::ErrorClass;
use portolan_registry::images::{self, Place};
use serde::Serialize;

use super::ls::kind;
use super::wanted::Wanted;
use super::{failure, resolve};
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, safe, size};

/// Whole-image sizes cost a request each; an index with more entries shows manifests' sizes only.
const SIZED_ENTRIES: usize = 32;
/// How many of those requests run at a time.
const AT_ONCE: usize = 8;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan image inspect 127.0.0.1:5000/app:1\n  \
    portolan image inspect oci:./layout:1 -o json | jq '.manifests[].platform'\n  \
    portolan image inspect REF --platform linux/arm64     what that machine would run, and why")]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    wanted: Wanted,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Everything shown. Field names are those of the OCI documents where they mean the same.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspection {
    reference: String,
    digest: Digest,
    media_type: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<Descriptor>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// Of an index: its entries. Of a single image: itself.
    manifests: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Descriptor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    layers: Vec<Descriptor>,
    host: ForHost,
    /// What machines of each level run, where the image makes a difference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    levels: Vec<LevelChoice>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(flatten)]
    descriptor: Descriptor,
    /// Config and layers together, where the manifest could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_size: Option<u64>,
}

/// What the machine in question would run.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ForHost {
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<HostPlatform>,
    /// The digest it would run; absent when nothing fits or the machine is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<Digest>,
    /// Why nothing is said about the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    considered: Vec<Considered>,
    #[serde(skip)]
    is_this_machine: bool,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let place = super::open(&args.reference, &context::client(global)?)?;
    let target = images::target(&args.reference);
    let top = place.fetch(target.as_ref()).await.map_err(failure)?;
    let candidates = images::candidates(&place, &top).await.map_err(resolve::failure)?;
    let host = for_host(&args.wanted, &candidates)?;

    let document = &top.document;
    let entries = match document {
        Document::Index(index) => index.manifests.clone(),
        Document::Manifest(_) => {
            let platform = candidates.manifests().find_map(|(_, platform)| platform.cloned());
            vec![Descriptor { platform, ..top.descriptor.clone() }]
        }
    };
    let (config, layers) = match document {
        Document::Index(_) => (None, Vec::new()),
        Document::Manifest(manifest) => (Some(manifest.config.clone()), manifest.layers.clone()),
    };
    let inspection = Inspection {
        reference: args.reference.to_string(),
        digest: top.descriptor.digest,
        media_type: top.descriptor.media_type.clone(),
        size: top.descriptor.size,
        artifact_type: document
            .artifact_type()
            .filter(|kind| !portolan_core::media_type::is_image_config(kind))
            .map(str::to_owned),
        subject: document.subject().cloned(),
        annotations: document.annotations().clone(),
        manifests: with_sizes(&place, entries).await,
        config,
        layers,
        host,
        levels: by_level(&candidates),
    };
    args.format.print(&inspection, draw)?;
    Ok(Exit::Ok)
}

/// To look at an image one need not be able to run it: an unknown machine and a refusal are both
/// part of the answer.
fn for_host(wanted: &Wanted, candidates: &Candidates) -> Result<ForHost, Failure> {
    let is_this_machine = !wanted.is_given();
    let host = match wanted.host() {
        Ok(host) => host,
        Err(failure) if is_this_machine => {
            let unknown = Some(format!("{:#}", failure.error));
            let considered = Vec::new();
            return Ok(ForHost {
                platform: None,
                runs: None,
                unknown,
                considered,
                is_this_machine,
            });
        }
        Err(failure) => return Err(failure),
    };
    let (runs, considered) = match select(candidates, &host) {
        Ok(selection) => (Some(selection.chosen.digest), selection.considered),
        Err(refusal) => (None, refusal.considered),
    };
    Ok(ForHost { platform: Some(host), runs, unknown: None, considered, is_this_machine })
}

/// Adds the size of each image. An entry that is not there (an index may list what was never
/// copied) has none; one that cannot be read has none and is told.
async fn with_sizes(place: &Place, entries: Vec<Descriptor>) -> Vec<Entry> {
    let few = entries.len() <= SIZED_ENTRIES;
    stream::iter(entries)
        .map(|descriptor| async move {
            let image_size = if few { image_size(place, &descriptor).await } else { None };
            Entry { descriptor, image_size }
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn image_size(place: &Place, entry: &Descriptor) -> Option<u64> {
    let fetched = match place.manifest(&Target::Digest(entry.digest)).await {
        Ok(fetched) => fetched,
        Err(error) if error.class() == ErrorClass::NotFound => return None,
        Err(error) => {
            let error = anyhow::Error::new(error);
            format::tell(&format!("warning: the size of {} is not known: {error:#}", entry.digest));
            return None;
        }
    };
    match &fetched.document {
        Document::Manifest(_) => {
            fetched.document.blobs().try_fold(0_u64, |sum, blob| sum.checked_add(blob.size))
        }
        Document::Index(_) => None,
    }
}

fn draw(inspection: &Inspection) -> String {
    let Inspection { reference, digest, media_type, .. } = inspection;
    let mut out = format!("{reference}\n{digest}\n{} ({media_type})\n", kind(media_type));
    if let Some(artifact_type) = &inspection.artifact_type {
        let _ = writeln!(out, "artifact type {}", safe(artifact_type));
    }
    if let Some(subject) = &inspection.subject {
        let _ = writeln!(out, "refers to {}", subject.digest);
    }
    out.push('\n');
    out += &entries_table(inspection);
    out += &levels_table(&inspection.levels);
    out += &annotations(inspection);
    out.push('\n');
    out += &host_line(&inspection.host);
    out
}

/// Neighbours that run the same are one line: `linux/amd64 … linux/amd64/v2`.
fn levels_table(levels: &[LevelChoice]) -> String {
    let same = |a: &LevelChoice, b: &LevelChoice| {
        a.runs == b.runs && (&a.host.os, &a.host.architecture) == (&b.host.os, &b.host.architecture)
    };
    let rows: Vec<_> = levels
        .chunk_by(same)
        .map(|chunk| {
            let (first, last) = (&chunk[0], &chunk[chunk.len() - 1]);
            let hosts = match chunk.len() {
                1 => first.host.to_string(),
                _ => format!("{} … {}", first.host, last.host),
            };
            let entry = match (&first.platform, &first.runs) {
                (Some(platform), Some(digest)) => vec![platform.to_string(), digest.short()],
                _ => vec!["nothing".to_owned(), String::new()],
            };
            [vec![hosts], entry].concat()
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", format::table(&["A HOST THAT IS", "RUNS", "DIGEST"], rows))
}

fn entries_table(inspection: &Inspection) -> String {
    let reasons: BTreeMap<Digest, &Considered> =
        inspection.host.considered.iter().rev().map(|c| (c.digest, c)).collect();
    let who = if inspection.host.is_this_machine { "THIS HOST" } else { "THAT HOST" };
    let mark = |digest| if inspection.host.runs == Some(digest) { "*" } else { "" }.to_owned();
    let listed = inspection.manifests.iter().map(|entry| {
        let digest = entry.descriptor.digest;
        vec![
            mark(digest),
            name(entry.descriptor.platform.as_ref(), &entry.descriptor.media_type),
            digest.to_string(),
            entry.image_size.map_or_else(|| "-".to_owned(), size),
            reasons.get(&digest).map(|c| c.outcome.to_string()).unwrap_or_default(),
        ]
    });
    // What an index inside it holds was judged too, and may be what runs.
    let direct: BTreeSet<Digest> =
        inspection.manifests.iter().map(|entry| entry.descriptor.digest).collect();
    let nested = inspection.host.considered.iter().filter(|c| !direct.contains(&c.digest));
    let nested = nested.map(|inner| {
        let platform = inner.platform.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let digest = inner.digest.to_string();
        vec![mark(inner.digest), platform, digest, "-".to_owned(), inner.outcome.to_string()]
    });
    let rows = listed.chain(nested).collect();
    format::table(&["", "PLATFORM", "DIGEST", "SIZE", who], rows)
}

fn name(platform: Option<&Platform>, media_type: &str) -> String {
    match platform {
        Some(platform) => platform.to_string(),
        None if kind(media_type) == "index" => "(index)".to_owned(),
        None => "-".to_owned(),
    }
}

fn annotations(inspection: &Inspection) -> String {
    let of_entries = inspection.manifests.iter().flat_map(|entry| {
        let name = entry.descriptor.digest.short();
        entry.descriptor.annotations.iter().map(move |pair| (name.clone(), pair))
    });
    let of_all = inspection.annotations.iter().map(|pair| (inspection.digest.short(), pair));
    let rows: Vec<_> = of_all
        .chain(of_entries)
        .map(|(name, (key, value))| vec![name, safe(key), safe(value)])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", format::table(&["DIGEST", "ANNOTATION", "VALUE"], rows))
}

fn host_line(host: &ForHost) -> String {
    let who = if host.is_this_machine { "this host" } else { "that host" };
    match (&host.platform, &host.runs, &host.unknown) {
        (Some(platform), Some(digest), _) => format!("{who} is {platform} and runs {digest}\n"),
        (Some(platform), None, _) => format!("{who} is {platform} and can run nothing here\n"),
        (None, _, Some(unknown)) => format!("{who} is not known: {unknown}\n"),
        (None, _, None) => String::new(),
    }
}
