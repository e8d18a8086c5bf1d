//! `portolan rootdisk …`: disks that microVMs boot from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use anyhow::Context as _;
use portolan_rootdisk::ext4::read::{Filesystem, ReadError};

use crate::cli::Global;
use crate::context::classed;
use crate::exit::{Exit, Failure};
use crate::format;

mod build;
mod extract;
mod inspect;
mod limits;
mod listing;
mod progress;
mod size;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Make an ext4 root disk of an image
    Build(Box<build::Args>),
    /// Show what a disk is and what is on it, without mounting it
    Inspect(inspect::Args),
    /// Write what is on a disk to a directory, without mounting it
    Extract(extract::Args),
}

pub(crate) async fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Build(args) => build::run(*args, global).await,
        Command::Inspect(args) => inspect::run(&args),
        Command::Extract(args) => extract::run(args),
    }
}

/// Opens a disk and says what may be wrong with it.
fn open(file: &Path) -> Result<Filesystem<File>, Failure> {
    let opened = open_disk(file).map_err(|error| {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => Exit::Usage,
            _ => Exit::Transport,
        };
        let error = anyhow::Error::new(error).context(format!("open {}", file.display()));
        Failure::new(exit, error)
    })?;
    let fs = Filesystem::open(opened).map_err(failure)?;
    if fs.superblock().needs_recovery() {
        format::tell("warning: the journal was not replayed; what is shown may be out of date");
    }
    if fs.is_cut() {
        format::tell("warning: the file ends before the file system does; some of it is missing");
    }
    Ok(fs)
}

/// Opens a file or block device; a pipe would make us wait for whoever writes to it.
fn open_disk(file: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(file)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if kind.is_file() || kind.is_block_device() {
        return File::open(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a block device"))
}

fn failure(error: ReadError) -> Failure {
    classed(error.class(), error)
}

/// Writes to stdout went wrong; `| head` is no trouble.
fn to_stdout(result: Result<(), ReadError>) -> Result<(), Failure> {
    match result {
        Err(ReadError::Sink { source }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(ReadError::Sink { source }) => Err(source)
            .context("write to stdout")
            .map_err(|error| Failure::new(Exit::Transport, error)),
        result => result.map_err(failure),
    }
}
