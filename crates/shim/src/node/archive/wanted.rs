//! Looking for one name among the entries, and at all the others for what is refused.

use portolan_rootdisk::layer::EntryPath;
use portolan_rootdisk::tar::{Head, HeadKind, Sink};

use super::{ArchiveError, Take};

/// Names that are told where the wanted one is missing.
const TOLD: usize = 8;
/// setuid and setgid.
const SET_ID: u32 = 0o6000;

/// What was seen of an archive so far.
pub(super) struct Search<'a> {
    name: &'a str,
    out: &'a mut dyn Take,
    found: bool,
    others: Vec<String>,
    /// How much of the wanted file came; none for any other.
    taking: Option<u64>,
    size: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(name: &'a str, out: &'a mut dyn Take) -> Self {
        Self { name, out, found: false, others: Vec::new(), taking: None, size: 0 }
    }

    /// What is looked for.
    pub(super) fn wanted(&self) -> &'a str {
        self.name
    }

    /// A regular file begins. Whether it is the wanted one.
    pub(super) fn file(&mut self, path: &[u8], mode: u32) -> Result<bool, ArchiveError> {
        if mode & SET_ID != 0 {
            return Err(refused(path, "a program that runs as its owner (set-user-ID)"));
        }
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if last == self.name.as_bytes() {
            if std::mem::replace(&mut self.found, true) {
                return Err(ArchiveError::Twice { name: self.name.to_owned() });
            }
            return Ok(true);
        }
        if self.others.len() < TOLD {
            self.others.push(shown(path));
        }
        Ok(false)
    }

    /// The name of any entry.
    pub(super) fn name(path: &[u8], absolute: bool) -> Result<(), ArchiveError> {
        if absolute {
            return Err(refused(path, "an absolute name"));
        }
        if path.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return Err(refused(path, "a name that leads out of the archive (..)"));
        }
        Ok(())
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.out.write(bytes)
    }

    /// The archive has ended.
    pub(super) fn finish(self) -> Result<(), ArchiveError> {
        if self.found {
            return Ok(());
        }
        Err(ArchiveError::NotFound { name: self.name.to_owned(), found: self.others })
    }

    /// What is no file was never handed over: holes are zeros.
    fn zeros(&mut self, mut count: u64) -> Result<(), ArchiveError> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while count > 0 {
            let some = usize::try_from(count).unwrap_or(ZEROS.len()).min(ZEROS.len());
            self.out.write(&ZEROS[..some])?;
            count -= some as u64;
        }
        Ok(())
    }
}

impl Sink for Search<'_> {
    type Error = ArchiveError;

    fn begin(&mut self, head: Head) -> Result<(), ArchiveError> {
        let EntryPath(path) = &head.path;
        Self::name(path, head.absolute)?;
        self.taking = None;
        match head.kind {
            HeadKind::Directory | HeadKind::Whiteout | HeadKind::Opaque => Ok(()),
            HeadKind::File { size } => {
                if self.file(path, head.attributes.mode.into())? {
                    (self.taking, self.size) = (Some(0), size);
                }
                Ok(())
            }
            HeadKind::Symlink(_) | HeadKind::Hardlink(_) => Err(refused(path, "a link")),
            HeadKind::CharDevice(_) | HeadKind::BlockDevice(_) | HeadKind::Fifo => {
                Err(refused(path, "a device or pipe"))
            }
        }
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ArchiveError> {
        let Some(at) = self.taking else { return Ok(()) };
        self.zeros(offset - at)?;
        self.take(bytes)?;
        self.taking = Some(offset + bytes.len() as u64);
        Ok(())
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        let Some(at) = self.taking.take() else { return Ok(()) };
        self.zeros(self.size - at)
    }
}

pub(super) fn refused(path: &[u8], what: &'static str) -> ArchiveError {
    ArchiveError::Refused { path: shown(path), what }
}

/// A stranger's name in our messages.
fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(&path[..path.len().min(120)]);
    text.escape_debug().to_string()
}
