//! What a WorkloadSpec must keep to before anything is done for it.
//!
//! The JSON Schema says the same as far as it can; `schema_and_checks_have_the_same_bounds` holds
//! the two together.

use portolan_core::digest::ParseDigestError;
use portolan_core::platform::ParsePlatformError;
use portolan_core::reference::ParseReferenceError;

use super::WorkloadSpec;
use crate::image::ResolvedImage;
use crate::reason::Reason;

/// Firecracker's limit.
pub const MAX_VCPUS: u8 = 32;
/// Less does not hold a kernel, our initramfs and a workload.
pub const MIN_MEMORY_MIB: u32 = 32;
/// 1 TiB; more is a mistake in the unit.
pub const MAX_MEMORY_MIB: u32 = 1 << 20;
/// 16 MiB: a file system with a journal-less upper directory that can hold something.
pub const MIN_EPHEMERAL_DISK_BYTES: u64 = 16 << 20;
/// 16 TiB, where ext4 with 32-bit block numbers ends.
pub const MAX_EPHEMERAL_DISK_BYTES: u64 = 16 << 40;
/// Variables, and words of a command line.
pub const MAX_WORDS: usize = 1024;
/// The kernel takes no longer string for a program (`MAX_ARG_STRLEN`, with its end).
pub const MAX_WORD_BYTES: usize = 128 * 1024 - 1;
/// Command, arguments and environment together: what the guest's configuration can carry.
pub const MAX_WORDS_BYTES: usize = 256 * 1024;
/// Names of Kubernetes objects are not longer.
pub const MAX_RELEASE_BYTES: usize = 253;

/// Why a spec cannot be carried out. Nothing was fetched or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The one field without which nothing runs.
    #[error(
        "image.resolved_digest is missing; resolution happens in the control plane, where it is \
         recorded: resolve the image for this host (portolan image resolve REF --platform P) and \
         put the digest in the spec"
    )]
    ResolvedDigestMissing,
    /// A field that should be a digest.
    #[error("{field} is not a digest; write sha256: and 64 hex digits")]
    Digest {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        #[source]
        source: ParseDigestError,
    },
    /// A digest of another algorithm.
    #[error("{field} is a {algorithm} digest; the cache is keyed by sha256")]
    Algorithm {
        /// Which.
        field: &'static str,
        /// Its algorithm.
        algorithm: &'static str,
    },
    /// The repository does not read as one.
    #[error("image.repository does not name a repository; write registry/repository")]
    Repository(#[source] ParseReferenceError),
    /// The repository has a tag.
    #[error(
        "image.repository has the tag {0:?}; agents run digests, never tags: leave the tag out"
    )]
    Tag(String),
    /// The repository has a digest.
    #[error("image.repository has a digest; put it in image.resolved_digest instead")]
    DigestInRepository,
    /// A part of the platform is empty or has a slash.
    #[error(
        "image.os, image.arch and image.variant are one word each, such as linux, arm64 and v8"
    )]
    PlatformPart,
    /// The parts are no platform.
    #[error("image.os, image.arch and image.variant do not name a platform")]
    Platform(#[source] ParsePlatformError),
    /// Not linux.
    #[error("image.os is {0:?}; microVMs run linux images")]
    Os(String),
    /// A number out of its bounds.
    #[error("{field} is {value}; use {min} to {max}")]
    Bounds {
        /// Which field.
        field: &'static str,
        /// What it is.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// Too many words or variables.
    #[error("{field} has {count} entries; at most {MAX_WORDS} are taken")]
    TooMany {
        /// Which field.
        field: &'static str,
        /// How many.
        count: usize,
    },
    /// One word is too long for a program, or has a NUL, which would end it early.
    #[error("{field} has a text that is longer than {MAX_WORD_BYTES} bytes or holds a NUL")]
    Word {
        /// Which field.
        field: &'static str,
    },
    /// All words are too long.
    #[error(
        "command, args and env have {0} bytes together; at most {MAX_WORDS_BYTES} are taken: put \
         large data in the image"
    )]
    TooLong(usize),
    /// A command without a program.
    #[error("command names no program; leave it out to use the image's entrypoint")]
    EmptyCommand,
    /// A variable that no program could read back.
    #[error("env has the name {0:?}; use printable ASCII without =, and at least one character")]
    EnvName(String),
    /// A release name that is no name.
    #[error("release is longer than {MAX_RELEASE_BYTES} bytes or has control characters")]
    Release,
}

impl SpecError {
    /// The wire name of what is wrong.
    pub fn reason(&self) -> Reason {
        match self {
            Self::ResolvedDigestMissing => Reason::ResolvedDigestMissing,
            Self::Os(_) => Reason::PlatformMismatch,
            _ => Reason::InvalidSpec,
        }
    }
}

impl WorkloadSpec {
    /// Checks everything that can be checked without a network or a host, and gives the image to
    /// fetch.
    pub fn check(&self) -> Result<ResolvedImage, SpecError> {
        let image = ResolvedImage::from_spec(&self.image)?;
        bounds("vcpus", self.vcpus.into(), 1, MAX_VCPUS.into())?;
        let memory = (MIN_MEMORY_MIB.into(), MAX_MEMORY_MIB.into());
        bounds("memory_mib", self.memory_mib.into(), memory.0, memory.1)?;
        bounds(
            "ephemeral_disk_bytes",
            self.ephemeral_disk_bytes,
            MIN_EPHEMERAL_DISK_BYTES,
            MAX_EPHEMERAL_DISK_BYTES,
        )?;
        self.check_words()?;
        match &self.release {
            Some(r) if r.len() > MAX_RELEASE_BYTES || r.chars().any(char::is_control) => {
                Err(SpecError::Release)
            }
            _ => Ok(image),
        }
    }

    fn check_words(&self) -> Result<(), SpecError> {
        let mut total = 0;
        for (field, list) in [("command", &self.command), ("args", &self.args)] {
            let Some(list) = list else { continue };
            count(field, list.len())?;
            for text in list {
                total += word(field, text)?;
            }
        }
        if self.command.as_ref().is_some_and(|c| c.first().is_none_or(String::is_empty)) {
            return Err(SpecError::EmptyCommand);
        }
        count("env", self.env.len())?;
        for (name, value) in &self.env {
            if name.is_empty() || !name.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
                return Err(SpecError::EnvName(name.chars().take(80).collect()));
            }
            total += word("env", name)? + word("env", value)?;
        }
        if total > MAX_WORDS_BYTES { Err(SpecError::TooLong(total)) } else { Ok(()) }
    }
}

fn bounds(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), SpecError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(SpecError::Bounds { field, value, min, max })
    }
}

fn count(field: &'static str, count: usize) -> Result<(), SpecError> {
    if count > MAX_WORDS { Err(SpecError::TooMany { field, count }) } else { Ok(()) }
}

/// How much room it takes, with its end.
fn word(field: &'static str, text: &str) -> Result<usize, SpecError> {
    if text.len() > MAX_WORD_BYTES || text.contains('\0') {
        return Err(SpecError::Word { field });
    }
    Ok(text.len() + 1)
}

#[cfg(test)]
mod tests;
