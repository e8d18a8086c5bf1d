//! A program in memory that nobody can change any more: what was hashed is what runs.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portolan_core::{Algorithm, Digest, Hasher};
use portolan_host::elf::Header;
use rustix::fs::{MemfdFlags, SealFlags};

/// Larger programs are not plugins.
pub const MAX_PROGRAM: u64 = 64 * 1024 * 1024;

/// As much of a program as names its machine and its loader.
const HEAD: usize = 4096;

/// Why bytes are no program for this machine.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be read or kept.
    #[error("cannot {step} it")]
    Io {
        /// What was tried.
        step: &'static str,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// Too large.
    #[error("it has more than {MAX_PROGRAM} bytes")]
    TooLarge,
    /// A script, WebAssembly, a text, nothing.
    #[error(
        "it is no ELF program but {what}; scripts would need an interpreter that the sandbox does not let them have"
    )]
    NotElf {
        /// What it looks like.
        what: &'static str,
    },
    /// For other machines.
    #[error("it is made for {found}, this machine runs {here}")]
    Machine {
        /// Of the program.
        found: String,
        /// Of this machine.
        here: String,
    },
    /// Wants the host's libraries.
    #[error(
        "it needs libraries of the host; link it statically, or let the policy's rule say `\"libraries\": true`"
    )]
    Dynamic,
}

/// A program that was read once, hashed as it was read, and sealed.
#[derive(Debug)]
pub struct Program {
    memory: OwnedFd,
    digest: Digest,
    size: u64,
    dynamic: bool,
}

impl Program {
    /// Reads a program for this machine.
    pub fn read(mut from: impl Read) -> Result<Self, ProgramError> {
        let io = |step| move |source| ProgramError::Io { step, source };
        let mut memory = File::from(memory("plugin", Use::Program).map_err(io("make memory for"))?);
        let mut hasher = Hasher::new(Algorithm::Sha256);
        let mut head = Vec::new();
        let mut chunk = vec![0_u8; 64 * 1024];
        let mut size = 0_u64;
        loop {
            let read = match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(io("read")(error)),
            };
            size += read as u64;
            if size > MAX_PROGRAM {
                return Err(ProgramError::TooLarge);
            }
            let bytes = &chunk[..read];
            let missing = HEAD.saturating_sub(head.len()).min(read);
            head.extend_from_slice(&bytes[..missing]);
            hasher.update(bytes);
            memory.write_all(bytes).map_err(io("keep"))?;
        }
        seal(&memory).map_err(io("seal"))?;
        check_machine(&head, std::env::consts::ARCH)?;
        let (digest, dynamic) = (hasher.finish(), is_dynamic(&head));
        Ok(Self { memory: memory.into(), digest, size, dynamic })
    }

    /// Its bytes, which are in memory as long as it may be asked.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Of the very bytes that run.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// An error unless it runs with or without the host's libraries, as allowed.
    pub fn check_libraries(&self, allowed: bool) -> Result<(), ProgramError> {
        if self.dynamic && !allowed { Err(ProgramError::Dynamic) } else { Ok(()) }
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// A text in memory, to be read from its beginning and never changed.
pub(super) fn sealed_text(text: &[u8]) -> io::Result<OwnedFd> {
    let mut memory = File::from(memory("plugin-input", Use::Text)?);
    memory.write_all(text)?;
    seal(&memory)?;
    io::Seek::rewind(&mut memory)?;
    Ok(memory.into())
}

#[derive(Clone, Copy, PartialEq)]
enum Use {
    Program,
    Text,
}

fn memory(name: &str, usage: Use) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let exact = match usage {
        Use::Program => flags | MemfdFlags::EXEC,
        Use::Text => flags | MemfdFlags::NOEXEC_SEAL,
    };
    match rustix::fs::memfd_create(name, exact) {
        // Kernels before 6.3 do not ask whether it is to run.
        Err(rustix::io::Errno::INVAL) => Ok(rustix::fs::memfd_create(name, flags)?),
        other => Ok(other?),
    }
}

fn seal(memory: &File) -> io::Result<()> {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    Ok(rustix::fs::fcntl_add_seals(memory, seals)?)
}

fn check_machine(head: &[u8], here: &str) -> Result<(), ProgramError> {
    let Some(header) = Header::parse(head) else {
        let what = match head {
            [] => "an empty file",
            [b'#', b'!', ..] => "a script",
            [0, b'a', b's', b'm', ..] => "WebAssembly, which is not run here",
            _ => "something else",
        };
        return Err(ProgramError::NotElf { what });
    };
    let here = portolan_host::machine::architecture(here).unwrap_or(here);
    match header.architecture() {
        Some(found) if found == here && header.os() == Some("linux") => Ok(()),
        found => Err(ProgramError::Machine {
            found: format!("{}/{}", header.os().unwrap_or("another system"), found.unwrap_or("?")),
            here: format!("linux/{here}"),
        }),
    }
}

/// Whether a loader of the host would have to start it (a program header of type `PT_INTERP`).
/// Only for a clear message: without the loader's file it would not start anyway.
fn is_dynamic(head: &[u8]) -> bool {
    const INTERP: u32 = 3;
    let Some(header) = Header::parse(head) else { return false };
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let slice = head.get(at..at.checked_add(bytes)?)?;
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if header.little {
            slice.iter().rev().fold(0, fold)
        } else {
            slice.iter().fold(0, fold)
        })
    };
    let (table, size, count) = if header.wide { ((32, 8), 54, 56) } else { ((28, 4), 42, 44) };
    let look = || -> Option<bool> {
        let start = usize::try_from(number(table.0, table.1)?).ok()?;
        let size = usize::try_from(number(size, 2)?).ok()?;
        let count = usize::try_from(number(count, 2)?).ok()?;
        let kind = |n: usize| number(start.checked_add(size.checked_mul(n)?)?, 4);
        Some((0..count.min(64)).filter_map(kind).any(|kind| kind == u64::from(INTERP)))
    };
    look().unwrap_or(false)
}
