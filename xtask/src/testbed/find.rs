//! Is a program already on this machine, and is it as good as the one we would make?

use std::path::{Path, PathBuf};
use std::process::Command;

use super::parts::Accepts;

/// The first program of that name, in KUBEBUILDER_ASSETS, PATH or where packages put it,
/// that `accepts` lets through.
pub(crate) fn installed(name: &str, at: Option<&str>, accepts: Accepts) -> Option<PathBuf> {
    let fits = |path: &PathBuf| match accepts {
        Accepts::OnlyOurs => false,
        Accepts::Any => true,
        Accepts::Static => std::fs::read(path).is_ok_and(|bytes| is_static_elf(&bytes)),
        Accepts::Versions { ask, starts } => {
            output_of(path, ask).is_some_and(|text| version_fits(&text, starts))
        }
    };
    if matches!(accepts, Accepts::OnlyOurs) {
        return None;
    }
    if let Some(at) = at {
        return Some(PathBuf::from(at)).filter(|path| is_program(path)).filter(fits);
    }
    folders().map(|dir| dir.join(name)).filter(|path| is_program(path)).find(fits)
}

/// PATH is not enough for a user whose PATH leaves out the folders of daemons.
fn folders() -> impl Iterator<Item = PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    assets.into_iter().chain(path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Some programs answer on the other stream, and some with a failure.
fn output_of(program: &Path, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    Some(text)
}

fn version_fits(output: &str, starts: &[&str]) -> bool {
    let words = output.split(|c: char| c.is_whitespace() || c == ',' || c == '"');
    words.into_iter().any(|word| starts.iter().any(|start| word.starts_with(start)))
}

/// A 64-bit little-endian ELF without a PT_INTERP header, which would name its loader.
fn is_static_elf(bytes: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let at = |from: usize, len: usize| bytes.get(from..from.checked_add(len)?);
    let half = |from| at(from, 2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let headers = || -> Option<bool> {
        let first = usize::try_from(u64::from_le_bytes(at(32, 8)?.try_into().ok()?)).ok()?;
        let (size, count) = (half(54)?, half(56)?);
        for index in 0..count {
            let kind = at(first.checked_add(index * size)?, 4)?;
            if u32::from_le_bytes(kind.try_into().ok()?) == PT_INTERP {
                return Some(false);
            }
        }
        Some(true)
    };
    bytes.starts_with(b"\x7fELF\x02\x01") && headers() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_whole_words() {
        let starts = &["v1.36."];
        assert!(version_fits("Kubernetes v1.36.3\n", starts));
        assert!(version_fits("Client Version: v1.36.0, built", starts));
        assert!(!version_fits("Kubernetes v1.32.4-dispatcher", starts));
        assert!(!version_fits("rev-v1.36.3", starts));
        assert!(!version_fits("Kubernetes v1.360.1", starts));
    }

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        let mut elf = vec![0u8; 64 + 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf[64] = 1; // PT_LOAD
        assert!(is_static_elf(&elf));
        elf[64] = 3; // PT_INTERP
        assert!(!is_static_elf(&elf));
        assert!(!is_static_elf(b"#!/bin/sh\n"));
        assert!(!is_static_elf(&elf[..60]));
    }
}
