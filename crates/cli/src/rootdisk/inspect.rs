//! `portolan rootdisk inspect FILE`

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use portolan_rootdisk::ext4::read::{FileKind, Filesystem};
use portolan_rootdisk::meta::{self, Metadata, MetadataError};
use serde::Serialize;

use super::{failure, listing, to_stdout};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, safe_bytes, size};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan rootdisk inspect app.ext4\n  \
    portolan rootdisk inspect app.ext4 --ls /etc\n  \
    portolan rootdisk inspect app.ext4 --ls -r -o json | jq '.[].path'\n  \
    portolan rootdisk inspect app.ext4 --cat /etc/os-release\n\n\
    Checksums of the file system are not verified; e2fsck -fn does that.")]
pub(crate) struct Args {
    /// The disk
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// List a directory (the root if none is named) or show one file
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "/")]
    ls: Option<OsString>,
    /// With --ls: everything below, too
    #[arg(short, long, requires = "ls")]
    recursive: bool,
    /// Write a file's bytes to stdout; links are followed inside the disk
    #[arg(long, value_name = "PATH", conflicts_with = "ls")]
    cat: Option<OsString>,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Everything shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspection {
    file: String,
    format: &'static str,
    uuid: String,
    label: String,
    /// How long the file is.
    size_bytes: u64,
    /// How much of this machine's disk it takes.
    allocated_bytes: u64,
    filesystem_bytes: u64,
    used_bytes: u64,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    inode_size: u16,
    groups: u32,
    features: Vec<String>,
    clean: bool,
    errors: bool,
    needs_recovery: bool,
    /// Whether metadata carries checksums. None is verified.
    has_checksums: bool,
    checksums_verified: bool,
    created: String,
    written: String,
    /// What the builder said of it, if that lies beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let fs = super::open(&args.file)?;
    if let Some(path) = &args.cat {
        return cat(&fs, path.as_bytes());
    }
    if let Some(path) = &args.ls {
        let rows = listing::rows(&fs, path.as_bytes(), args.recursive)?;
        args.format.print(&rows, |rows| listing::draw(rows))?;
        return Ok(Exit::Ok);
    }
    let inspection = inspect(&args.file, &fs)?;
    args.format.print(&inspection, draw)?;
    Ok(Exit::Ok)
}

fn cat(fs: &Filesystem<File>, path: &[u8]) -> Result<Exit, Failure> {
    let inode = fs.lookup_following(path).map_err(failure)?;
    if inode.kind != FileKind::File {
        let name = String::from_utf8_lossy(path);
        let error = anyhow::anyhow!("{name} is a {}; only files have content to show", inode.kind);
        return Err(Failure::usage(error));
    }
    to_stdout(fs.copy_file(&inode, &mut std::io::stdout().lock()))?;
    Ok(Exit::Ok)
}

fn inspect(file: &Path, fs: &Filesystem<File>) -> Result<Inspection, Failure> {
    let superblock = fs.superblock();
    let features = &superblock.features;
    let format = match () {
        () if features.has("extent") => "ext4",
        () if features.has("has_journal") => "ext3",
        () => "ext2",
    };
    let on_this_disk = std::fs::metadata(file).map_err(|error| {
        let error = anyhow::Error::new(error).context(format!("look at {}", file.display()));
        Failure::new(Exit::Transport, error)
    })?;
    let used = superblock.blocks.saturating_sub(superblock.free_blocks);
    Ok(Inspection {
        file: file.display().to_string(),
        format,
        uuid: superblock.uuid_text(),
        label: String::from_utf8_lossy(&superblock.label).into_owned(),
        size_bytes: on_this_disk.size(),
        allocated_bytes: on_this_disk.blocks().saturating_mul(512),
        filesystem_bytes: superblock.size_bytes(),
        used_bytes: used.saturating_mul(u64::from(superblock.block_size)),
        block_size: superblock.block_size,
        blocks: superblock.blocks,
        free_blocks: superblock.free_blocks,
        inodes: superblock.inodes,
        free_inodes: superblock.free_inodes,
        inode_size: superblock.inode_size,
        groups: superblock.groups,
        features: [&features.compatible, &features.incompatible, &features.read_only_compatible]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        clean: superblock.clean,
        errors: superblock.errors,
        needs_recovery: superblock.needs_recovery(),
        has_checksums: superblock.has_checksums(),
        checksums_verified: false,
        created: superblock.created.to_string(),
        written: superblock.written.to_string(),
        metadata: beside(file),
    })
}

/// What the builder said of the disk. A disk can be looked at without it, so trouble is told only.
fn beside(file: &Path) -> Option<Metadata> {
    match Metadata::read(&meta::path_beside(file)) {
        Ok(metadata) => Some(metadata),
        Err(MetadataError::Missing { .. }) => None,
        Err(error) => {
            format::tell(&format!("warning: {:#}", anyhow::Error::new(error)));
            None
        }
    }
}

fn draw(inspection: &Inspection) -> String {
    let state = match (inspection.errors, inspection.needs_recovery, inspection.clean) {
        (true, _, _) => "errors found by the kernel",
        (_, true, _) => "journal not replayed",
        (_, _, true) => "clean",
        (_, _, false) => "not unmounted properly",
    };
    let i = inspection;
    let mut lines = vec![
        ("format", i.format.to_owned()),
        ("uuid", i.uuid.clone()),
        ("label", safe_bytes(i.label.as_bytes())),
        ("size", format!("{} ({} allocated)", size(i.size_bytes), size(i.allocated_bytes))),
        ("file system", format!("{} ({} used)", size(i.filesystem_bytes), size(i.used_bytes))),
        ("blocks", format!("{} of {} bytes, {} free", i.blocks, i.block_size, i.free_blocks)),
        ("inodes", format!("{} of {} bytes, {} free", i.inodes, i.inode_size, i.free_inodes)),
        ("features", i.features.join(" ")),
        ("state", state.to_owned()),
        ("checksums", checksums(i).to_owned()),
        ("created", i.created.clone()),
        ("written", i.written.clone()),
    ];
    if let Some(metadata) = &i.metadata {
        lines.push(("image", metadata.resolved_digest.to_string()));
        lines.push(("disk key", metadata.rootdisk_key.clone()));
        lines.push(("disk format", safe_bytes(metadata.rootdisk_format_version.as_bytes())));
        lines.push(("built", metadata.build_timestamp.to_string()));
        lines.push(("layers", metadata.layers.to_string()));
        if let Some(verity) = &metadata.verity {
            lines.push(("verity root", verity.root_hash.clone()));
        }
    }
    let mut out = String::new();
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(out, "{name:<12} {value}");
    }
    out
}

fn checksums(inspection: &Inspection) -> &'static str {
    if inspection.has_checksums { "there, not verified here" } else { "none" }
}
