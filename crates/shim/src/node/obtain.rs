//! The program that is to be installed: out of an archive behind a URL, or as the stage without privilege
//! left it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use portolan_core::{Digest, HostPlatform};
use portolan_host::Look as Machine;
use portolan_registry::durable::{self, DurableError, TempFile};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::archive::{self, Bounds, Program};
use super::elf;
use super::error::NodeError;
use super::fetch::{self, Location, Transport};
use super::progress::{Outcome, Progress};
use super::request::Wanted;
use crate::report::{self, MAX_BYTES, Operation, Phase, Reason, Report};

/// What the fetching stage leaves beside the program.
const NOTE: &str = ".portolan-fetched.json";
/// Two digests and a name.
const MAX_NOTE: u64 = 4096;
/// What it leaves in the place of a program, where it is asked to: its report.
const REFUSAL: &str = ".portolan-refused.json";

/// Where the program comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// An archive behind a URL.
    Location(Box<Location>, Transport),
    /// What the fetching stage left in a directory.
    Assets(PathBuf),
}

/// What the fetching stage says of what it left.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    archive_sha256: String,
    binary_sha256: String,
    binary: String,
}

/// The platform of a host: what its files and its kernel say, else that of the running kernel.
pub(crate) fn platform(root: &Path) -> Result<HostPlatform, NodeError> {
    let unknown = |e: Box<dyn std::error::Error + Send + Sync>| NodeError::Platform(e);
    if root != Path::new("/") {
        let there = Machine::at(root).ok().and_then(|machine| machine.host().platform().ok());
        if let Some(platform) = there {
            return Ok(platform);
        }
    }
    let here = Machine::here().map_err(|e| unknown(e.into()))?;
    here.host().platform().map_err(|e| unknown(e.into()))
}

/// The program, in a file of this process's own.
pub(crate) async fn obtain(
    wanted: &Wanted,
    source: &Source,
    progress: &mut Progress,
) -> Result<Program, NodeError> {
    let temp = std::env::temp_dir();
    match source {
        Source::Location(location, transport) => {
            let fetched = fetch::fetch(location, transport, &temp).await?;
            progress.report.archive_sha256 = Some(fetched.digest.hex());
            progress.report.warnings.extend(fetched.warnings);
            progress.phase(Phase::Extract);
            let mut archive = rewound(&fetched.file)?;
            let program =
                archive::take(&mut archive, wanted.binary.as_str(), &Bounds::default(), &temp)?;
            Ok(note(progress, program))
        }
        Source::Assets(dir) => {
            progress.phase(Phase::Extract);
            refusal(dir)?;
            let path = dir.join(wanted.binary.as_str());
            let missing = |source| NodeError::NoAssets { path: path.clone(), source };
            let mut file = left(&path).map_err(missing)?;
            let program =
                archive::take(&mut file, wanted.binary.as_str(), &Bounds::default(), &temp)?;
            check_note(dir, &path, &program.digest, progress)?;
            Ok(note(progress, program))
        }
    }
}

fn note(progress: &mut Progress, program: Program) -> Program {
    progress.report.binary_sha256 = Some(program.digest.hex());
    program
}

/// The file from its beginning. It has no name any more.
fn rewound(file: &TempFile) -> Result<File, NodeError> {
    let failed = |e| DurableError::Unreadable { path: file.path().to_owned(), source: e };
    let mut file = file.file().try_clone().map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok(file)
}

/// A copy of a program in another directory, to be given a name there.
pub(crate) fn copy(program: &Program, dir: &Path) -> Result<TempFile, NodeError> {
    let copy = TempFile::create(dir)?;
    let mut from = rewound(&program.file)?;
    let failed = |e| DurableError::io("write", copy.path(), e);
    std::io::copy(&mut from, &mut copy.file()).map_err(failed)?;
    Ok(copy)
}

/// A file that the stage without privilege left. It is believed to be a file no more than it is believed to say
/// the truth: a link would lead anywhere, a pipe would never end.
fn left(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

fn read_note(dir: &Path) -> Result<Note, NodeError> {
    let path = dir.join(NOTE);
    let missing = |source| NodeError::NoAssets { path: path.clone(), source };
    let mut text = Vec::new();
    left(&path).and_then(|file| file.take(MAX_NOTE).read_to_end(&mut text)).map_err(missing)?;
    serde_json::from_slice(&text).map_err(|e| missing(e.into()))
}

/// What the fetching stage refused, where it left word of it.
fn refusal(dir: &Path) -> Result<(), NodeError> {
    let path = dir.join(REFUSAL);
    let failed = |source| NodeError::NoAssets { path: path.clone(), source };
    let mut text = Vec::new();
    match left(&path) {
        Ok(file) => file.take(MAX_BYTES as u64).read_to_end(&mut text).map_err(failed)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let report: Report = serde_json::from_slice(&text).map_err(|e| failed(e.into()))?;
    let reason = report.reason.unwrap_or(Reason::DownloadFailed);
    Err(NodeError::NotFetched { reason, message: report.message })
}

/// Leaves word in `assets` of what the fetching stage refused: whoever would install it tells it. So that of several
/// stages, one that fails does not keep the others from being begun.
///
/// # Errors
/// It cannot be written.
pub fn leave_refusal(assets: &Path, report: &Report) -> Result<(), NodeError> {
    Ok(durable::replace(
        assets,
        &assets.join(REFUSAL),
        report.to_message(report::room(1)).as_bytes(),
    )?)
}

/// The fetching stage says what it left.
fn check_note(
    dir: &Path,
    path: &Path,
    digest: &Digest,
    progress: &mut Progress,
) -> Result<(), NodeError> {
    let note = read_note(dir)?;
    if note.binary_sha256 != digest.hex() {
        let (expected, actual) = (note.binary_sha256, digest.hex());
        return Err(NodeError::Assets { path: path.to_owned(), expected, actual });
    }
    progress.report.archive_sha256 = Some(note.archive_sha256);
    Ok(())
}

/// The stage that needs no privilege: fetches, checks, and leaves the program in `assets`.
pub async fn fetch_stage(
    wanted: &Wanted,
    location: &Location,
    transport: &Transport,
    assets: &Path,
) -> Outcome {
    let mut progress = Progress::new(Operation::Fetch, Phase::Fetch);
    let result = stage(wanted, location, transport, assets, &mut progress).await;
    progress.end(result)
}

/// What was refused before says nothing of what is fetched now.
fn forget_refusal(assets: &Path) -> Result<(), NodeError> {
    let path = assets.join(REFUSAL);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DurableError::io("remove", &path, error).into())
        }
        _ => Ok(()),
    }
}

async fn stage(
    wanted: &Wanted,
    location: &Location,
    transport: &Transport,
    assets: &Path,
    progress: &mut Progress,
) -> Result<(), NodeError> {
    forget_refusal(assets)?;
    let fetched = fetch::fetch(location, transport, assets).await?;
    progress.report.archive_sha256 = Some(fetched.digest.hex());
    progress.report.warnings.extend(fetched.warnings.iter().cloned());
    progress.phase(Phase::Extract);
    let mut archive = rewound(&fetched.file)?;
    let binary = wanted.binary.as_str();
    let program = archive::take(&mut archive, binary, &Bounds::default(), assets)?;
    let program = note(progress, program);
    elf::check(binary, &program.head, &platform(Path::new("/"))?)?;
    let said = Note {
        archive_sha256: fetched.digest.hex(),
        binary_sha256: program.digest.hex(),
        binary: binary.to_owned(),
    };
    let text = serde_json::to_string(&said).expect("strings only");
    durable::sweep_temp(assets);
    let copy = copy(&program, assets)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let failed = |e| DurableError::io("set the mode of", copy.path(), e);
    copy.file().set_permissions(mode).map_err(failed)?;
    durable::replace(assets, &assets.join(NOTE), text.as_bytes())?;
    copy.rename(&assets.join(binary))?;
    progress.report.changed = true;
    Ok(())
}
