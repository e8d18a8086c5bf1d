//! `portolan rootdisk build REF --output FILE`

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use portolan_core::Reference;
use portolan_registry::images::{self, Place, resolve_platform};
use portolan_registry::layout::Layout;
use portolan_rootdisk::build::{
    BuildError, BuildOptions, Built, Request, SourceError, Trouble, build,
};
use portolan_rootdisk::fetch::{self, Keep, KeepInLayout, PlaceLayers};
use portolan_rootdisk::meta::{self, Metadata, MetadataError};

use super::{limits, progress, size};
use crate::cli::Global;
use crate::context::{self, classed};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::image::wanted::Wanted;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    portolan rootdisk build 127.0.0.1:5000/app:1 --platform linux/amd64 --output app.ext4\n  \
    portolan rootdisk build oci:./app:1 --output app.ext4 --verity -o json\n\n\
    FILE is sparse: its length is more than it takes. What is known of it is printed and written\n\
    beside it: app.meta.json beside app.ext4, and NAME.meta.json beside any other NAME.")]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    wanted: Wanted,
    /// The disk to make
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if there is one
    #[arg(long)]
    force: bool,
    /// Add a dm-verity hash tree behind the file system
    #[arg(long)]
    verity: bool,
    /// The smallest length of the disk
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = size::parse)]
    min_size: u64,
    /// How much longer than what is used the disk is at least
    #[arg(long, value_name = "PERCENT", default_value = "20")]
    headroom_percent: u32,
    /// Refuse images whose disk would be longer, holes included: --limit max_virtual_bytes=SIZE
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_size: Option<u64>,
    /// Set a limit that an error named, for an image that is trusted: --limit max_ratio=5000
    #[arg(long = "limit", value_name = "NAME=N", value_parser = limits::parse)]
    limits: Vec<(String, u64)>,
    /// Keep the verified blobs in an OCI layout in this directory, and take from it what is there
    #[arg(long, value_name = "DIR")]
    blobs: Option<PathBuf>,
    /// Layers at work at a time [default: as many as processors, 4 to 8]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Write through the page cache: slower for others on this machine, warm for a first boot here
    #[arg(long)]
    buffered: bool,
    /// How to print what is known of the disk
    #[arg(short = 'o', long = "format", value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let meta = meta::path_beside(&args.output);
    let dir = free(&args, &meta)?;
    let options = options(&args)?;
    let host = args.wanted.host()?;
    let place = Place::open(&args.reference, &context::client(global)?)
        .map_err(|error| classed(error.class(), error))?;
    let target = images::target(&args.reference);
    let resolved = resolve_platform(&place, target.as_ref(), &host)
        .await
        .map_err(crate::image::resolve::failure)?;
    let digest = resolved.chosen().digest;
    let image = fetch::image(&place, &digest, &host).await.map_err(|error| {
        if error.is_platform() {
            Failure::new(Exit::No, error)
        } else {
            classed(error.class(), error)
        }
    })?;

    let media_type = resolved.chosen().media_type.clone();
    let cancel = context::asked_to_end()?;
    let watch = progress::listener(global.progress, &image.layers, cancel.clone());
    let request = Request { resolved_digest: digest, layers: image.layers.clone(), options };
    let blobs = request.layers.iter().map(|layer| layer.descriptor.clone()).collect();
    let (layout, keep) = keep(&args)?;
    let source = PlaceLayers::new(place, blobs, keep, &cancel);
    let work = {
        let (source, dir) = (source.clone(), dir.clone());
        move || build(&request, &source, &dir, &watch)
    };
    let built = tokio::task::spawn_blocking(work).await;
    let kept = source.settled().await;
    let built =
        built.context("the build panicked").map_err(|e| Failure::new(Exit::CannotTell, e))?;
    let built = built.map_err(failure)?;
    kept.context("a blob cannot be kept").map_err(|e| Failure::new(Exit::Transport, e))?;
    if let Some(layout) = layout {
        layout
            .put_blob(&image.config_bytes)
            .and_then(|_| layout.put_manifest(&media_type, &image.manifest_bytes, None))
            .map_err(|error| classed(error.class(), error))?;
    }
    let metadata = publish(built, &args, &dir, &meta)?;
    args.format.print(&metadata, |metadata| table(metadata, &args.output))?;
    Ok(Exit::Ok)
}

fn options(args: &Args) -> Result<BuildOptions, Failure> {
    let max_size = args.max_size.map(|max| ("max_virtual_bytes".to_owned(), max));
    let limits =
        limits::set(args.limits.iter().cloned().chain(max_size)).map_err(Failure::usage)?;
    let (min, max) = (args.min_size, limits.max_virtual_bytes);
    if min > max {
        return Err(Failure::usage(anyhow::anyhow!(
            "the disk would have the {min} bytes of --min-size, more than the {max} it may have; \
             give a smaller --min-size, or raise --max-size, which is `max_virtual_bytes`"
        )));
    }
    Ok(BuildOptions {
        threads: args.threads,
        direct_io: !args.buffered,
        limits,
        verity: args.verity,
        min_bytes: args.min_size,
        headroom_percent: args.headroom_percent,
    })
}

type Keeper = (Option<Layout>, Option<Arc<dyn Keep>>);

/// Where blobs are kept, if they are.
fn keep(args: &Args) -> Result<Keeper, Failure> {
    let Some(dir) = &args.blobs else { return Ok((None, None)) };
    let layout = Layout::create(dir).map_err(|error| classed(error.class(), error))?;
    Ok((Some(layout), Some(Arc::new(KeepInLayout::new(dir)))))
}

/// The directory that the disk goes to, if it may go there: known before minutes are spent.
fn free(args: &Args, meta: &Path) -> Result<PathBuf, Failure> {
    let taken =
        [args.output.as_path(), meta].into_iter().find(|path| path.symlink_metadata().is_ok());
    if let (Some(taken), false) = (taken, args.force) {
        return Err(Failure::usage(anyhow!(
            "{} exists already; --force replaces it",
            taken.display()
        )));
    }
    if args.output.is_dir() || args.output.file_name().is_none() {
        return Err(Failure::usage(anyhow!("{} is no name for a file", args.output.display())));
    }
    let dir = match args.output.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    if !dir.is_dir() {
        return Err(Failure::new(
            Exit::NotFound,
            anyhow!("there is no directory {}", dir.display()),
        ));
    }
    Ok(dir)
}

/// Gives the disk its name, and writes what is known of it. Metadata never speaks of another
/// disk than the one beside it, wherever this is interrupted.
fn publish(built: Built, args: &Args, dir: &Path, meta: &Path) -> Result<Metadata, Failure> {
    let Built { disk, metadata, .. } = built;
    if args.force {
        match std::fs::remove_file(meta) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let error = anyhow!(error).context(format!("cannot remove {}", meta.display()));
                return Err(Failure::new(Exit::Transport, error));
            }
            _ => {}
        }
    }
    disk.rename(&args.output).map_err(|error| Failure::new(Exit::Transport, error))?;
    metadata
        .write(dir, meta)
        .map_err(|error: MetadataError| Failure::new(Exit::Transport, error))?;
    Ok(metadata)
}

fn failure(error: BuildError) -> Failure {
    let exit = match (&error, error.trouble()) {
        (_, Trouble::Cancelled) => Exit::Interrupted,
        (BuildError::Source { source: SourceError { class, .. }, .. }, _) => Exit::from(*class),
        (_, Trouble::Pull | Trouble::Image) => Exit::Usage,
        (_, Trouble::DiskFull | Trouble::Local) => Exit::Transport,
    };
    Failure::new(exit, error)
}

fn table(metadata: &Metadata, output: &Path) -> String {
    let mut rows = vec![
        ("disk", output.display().to_string()),
        ("image", metadata.resolved_digest.to_string()),
        ("key", metadata.rootdisk_key.clone()),
        ("format", format!("ext4, version {}", metadata.rootdisk_format_version)),
        ("length", format::size(metadata.size_bytes)),
        ("takes", format::size(metadata.allocated_bytes)),
        ("files", format!("{} of {} layers", metadata.files, metadata.layers)),
        ("checksum", metadata.checksum.to_string()),
    ];
    if let Some(verity) = &metadata.verity {
        rows.push(("root hash", verity.root_hash.clone()));
    }
    rows.iter().map(|(name, value)| format!("{name:10} {value}\n")).collect()
}
