//! `portolan rootdisk extract FILE DIR`

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use portolan_rootdisk::extract::{self, Options, Report};

use crate::context::classed;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, size};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan rootdisk extract app.ext4 ./app\n  \
    portolan rootdisk extract app.ext4 ./out --path /etc/nginx     gives ./out/nginx\n\n\
    Nothing is written outside DIR, and nothing in it is replaced. What this user may not set\n\
    (owners, devices, capabilities) is left out and counted.")]
pub(crate) struct Args {
    /// The disk
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to; made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Only this file or directory of the disk
    #[arg(long, value_name = "PATH")]
    path: Option<OsString>,
    /// Write into a directory that is not empty
    #[arg(long)]
    force: bool,
    /// Even as root: no owners, no devices, no capabilities
    #[arg(long)]
    unprivileged: bool,
    /// How to print what was done
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let fs = super::open(&args.file)?;
    let defaults = Options::default();
    let options = Options {
        path: args.path.map(OsString::into_vec),
        into_non_empty: args.force,
        privileged: defaults.privileged && !args.unprivileged,
        ..defaults
    };
    let report = extract::extract(&fs, &args.directory, &options)
        .map_err(|error| classed(error.class(), error))?;
    args.format.print(&report, draw)?;
    if !report.skipped.is_nothing() {
        warn(&report);
    }
    Ok(Exit::Ok)
}

fn draw(report: &Report) -> String {
    let Report { directories, files, hard_links, symlinks, special, bytes, .. } = report;
    format!(
        "{directories} directories, {files} files ({}), {hard_links} hard links, {symlinks} symlinks, {special} pipes, sockets and devices\n",
        size(*bytes)
    )
}

/// On stderr, so that it is seen whatever the format.
fn warn(report: &Report) {
    let skipped = &report.skipped;
    let counts = [
        (skipped.owners, "owners"),
        (skipped.set_id_bits, "setuid and setgid bits"),
        (skipped.devices, "devices"),
        (skipped.xattrs, "attributes"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format::tell(&format!("warning: not set or made here: {}", counts.join(", ")));
    for example in &skipped.examples {
        format::tell(&format!("  {}", format::safe(example)));
    }
}
