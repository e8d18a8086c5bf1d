//! Container images of one layer, written as an OCI layout: the same files give the same bytes.

use std::path::Path;

use anyhow::{Result, bail};
use portolan_core::Platform;
use serde_json::json;

use crate::layout::{Layer, LayoutWriter};

/// Changes when the bytes for the same files change, so that cached images are made again.
pub(crate) const FORMAT: &str = "layout 2";

/// What an image is made of.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Absolute path and bytes; every file is executable.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// Absolute path of the link, and what it points at.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) entrypoint: Vec<String>,
}

/// Writes the layout into the empty folder `to`.
pub(crate) fn write_layout(contents: &Contents, to: &Path) -> Result<()> {
    let writer = LayoutWriter::new(to)?;
    let tar = layer(contents)?;
    let tar = Layer::tar(&tar);
    let stored = writer.layer(&tar)?;
    let config = json!({
        "Entrypoint": contents.entrypoint,
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "WorkingDir": "/",
    });
    let here = Platform::new("linux", std::env::consts::ARCH).normalised();
    let image = writer.image(&here, config, &[stored], &[tar.diff_id])?;
    writer.finish(image, None)
}

/// The layer: folders first, then files and links, owned by root, without times.
pub(crate) fn layer(contents: &Contents) -> Result<Vec<u8>> {
    // World-writable, as every image a pod may run as any user has it.
    let mut tar = Vec::new();
    header(&mut tar, Entry { path: "tmp/", mode: 0o1777, size: 0, kind: b'5', link: "" })?;
    let mut folders: Vec<String> = contents
        .files
        .iter()
        .map(|(path, _)| path)
        .chain(contents.links.iter().map(|(path, _)| path))
        .filter_map(|path| path.trim_start_matches('/').rsplit_once('/'))
        .map(|(folder, _)| format!("{folder}/"))
        .collect();
    folders.sort();
    folders.dedup();
    for path in &folders {
        header(&mut tar, Entry { path, mode: 0o755, size: 0, kind: b'5', link: "" })?;
    }
    for (path, bytes) in &contents.files {
        let path = path.trim_start_matches('/');
        header(&mut tar, Entry { path, mode: 0o755, size: bytes.len(), kind: b'0', link: "" })?;
        tar.extend_from_slice(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    for (path, link) in &contents.links {
        let path = path.trim_start_matches('/');
        header(&mut tar, Entry { path, mode: 0o777, size: 0, kind: b'2', link })?;
    }
    tar.resize(tar.len() + 1024, 0);
    Ok(tar)
}

struct Entry<'a> {
    path: &'a str,
    mode: u32,
    size: usize,
    kind: u8,
    link: &'a str,
}

/// A ustar header; its field offsets are those of POSIX.1-1988.
fn header(tar: &mut Vec<u8>, entry: Entry<'_>) -> Result<()> {
    if entry.path.len() > 100 || entry.link.len() > 100 {
        bail!("{} is too long a path for a layer of the testbed", entry.path);
    }
    let mut block = [0u8; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, entry.path.as_bytes());
    put(100, format!("{:07o}\0", entry.mode).as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", entry.size).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[entry.kind]);
    put(157, entry.link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&block);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn contents() -> Contents {
        Contents {
            files: vec![("/bin/tool".into(), b"#!/bin/true\n".to_vec())],
            links: vec![("/bin/alias".into(), "tool".into())],
            entrypoint: vec!["/bin/tool".into()],
        }
    }

    #[test]
    fn tar_reads_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("layer.tar");
        fs::write(&file, layer(&contents()).unwrap()).unwrap();
        let out = std::process::Command::new("tar").arg("-tvf").arg(&file).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let names: Vec<_> =
            text.lines().map(|line| line.split_whitespace().skip(5).collect::<Vec<_>>()).collect();
        assert_eq!(
            names,
            [vec!["tmp/"], vec!["bin/"], vec!["bin/tool"], vec!["bin/alias", "->", "tool"]]
        );
        assert!(text.starts_with("drwxrwxrwt 0/0"), "{text}");
    }

    #[test]
    fn the_same_files_give_the_same_index() {
        let index = || {
            let dir = tempfile::tempdir().unwrap();
            write_layout(&contents(), dir.path()).unwrap();
            fs::read(dir.path().join("index.json")).unwrap()
        };
        assert_eq!(index(), index());
    }
}
