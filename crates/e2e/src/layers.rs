//! Images of a test's own, entry by entry: tars with whatever a real one may hold, in a layout.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A tar in the making. Entries come in the order of the calls, also twice, also without parents.
#[derive(Debug, Default, Clone)]
pub struct Layer {
    tar: Vec<u8>,
}

/// One entry; `Entry::new` gives what most have.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    path: &'a [u8],
    kind: u8,
    link: &'a [u8],
    data: &'a [u8],
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, u32),
    device: (u32, u32),
    xattrs: Vec<(&'a str, &'a [u8])>,
}

impl<'a> Entry<'a> {
    fn new(path: &'a [u8], kind: u8, mode: u32) -> Self {
        Self {
            path,
            kind,
            link: b"",
            data: b"",
            mode,
            owner: (0, 0),
            mtime: (1_700_000_000, 0),
            device: (0, 0),
            xattrs: Vec::new(),
        }
    }

    /// A regular file, 0644.
    pub fn file(
        path: &'a (impl AsRef<[u8]> + ?Sized),
        data: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Self { data: data.as_ref(), ..Self::new(path.as_ref(), b'0', 0o644) }
    }

    /// A directory, 0755.
    pub fn dir(path: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(path.as_ref(), b'5', 0o755)
    }

    /// A symbolic link.
    pub fn symlink(
        path: &'a (impl AsRef<[u8]> + ?Sized),
        to: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Self { link: to.as_ref(), ..Self::new(path.as_ref(), b'2', 0o777) }
    }

    /// Another name for a file.
    pub fn hardlink(
        path: &'a (impl AsRef<[u8]> + ?Sized),
        to: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Self { link: to.as_ref(), ..Self::new(path.as_ref(), b'1', 0o644) }
    }

    /// A character (`'3'`) or block (`'4'`) device, or a pipe (`'6'`).
    pub fn special(path: &'a (impl AsRef<[u8]> + ?Sized), kind: char, device: (u32, u32)) -> Self {
        let kind = u8::try_from(kind).unwrap_or(b'6');
        Self { device, ..Self::new(path.as_ref(), kind, 0o640) }
    }

    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    #[must_use]
    pub fn owner(self, uid: u32, gid: u32) -> Self {
        Self { owner: (uid, gid), ..self }
    }

    /// Seconds and nanoseconds.
    #[must_use]
    pub fn mtime(self, seconds: i64, nanoseconds: u32) -> Self {
        Self { mtime: (seconds, nanoseconds), ..self }
    }

    #[must_use]
    pub fn xattr(mut self, name: &'a str, value: &'a [u8]) -> Self {
        self.xattrs.push((name, value));
        self
    }
}

impl Layer {
    pub fn new() -> Self {
        Self::default()
    }

    /// What some other tool packed.
    pub fn from_tar(tar: Vec<u8>) -> Self {
        Self { tar }
    }

    /// Adds an entry, with a PAX header before it for all that the old header cannot hold.
    #[must_use]
    pub fn with(mut self, entry: Entry<'_>) -> Self {
        let mut pax = Vec::new();
        if entry.path.len() > 100 || !entry.path.is_ascii() {
            record(&mut pax, "path", entry.path);
        }
        if entry.link.len() > 100 || !entry.link.is_ascii() {
            record(&mut pax, "linkpath", entry.link);
        }
        for (name, id) in [("uid", entry.owner.0), ("gid", entry.owner.1)] {
            if id > 0o7_777_777 {
                record(&mut pax, name, id.to_string().as_bytes());
            }
        }
        if entry.mtime.1 != 0 || !(0..=0o77_777_777_777).contains(&entry.mtime.0) {
            let (seconds, nanoseconds) = entry.mtime;
            record(&mut pax, "mtime", decimal(seconds, nanoseconds).as_bytes());
        }
        for (name, value) in &entry.xattrs {
            record(&mut pax, &format!("SCHILY.xattr.{name}"), value);
        }
        if !pax.is_empty() {
            let extended = Entry { data: &pax, ..Entry::new(b"PaxHeaders/entry", b'x', 0o644) };
            self.put(&extended);
        }
        self.put(&entry);
        self
    }

    fn put(&mut self, entry: &Entry<'_>) {
        let mut block = [0u8; 512];
        let mut put = |at: usize, room: usize, bytes: &[u8]| {
            let length = bytes.len().min(room);
            block[at..at + length].copy_from_slice(&bytes[..length]);
        };
        let octal = |value: u64, digits: usize| format!("{value:0digits$o}\0").into_bytes();
        let small = |id: u32| if id > 0o7_777_777 { 0 } else { u64::from(id) };
        put(0, 100, entry.path);
        put(100, 8, &octal(entry.mode.into(), 7));
        put(108, 8, &octal(small(entry.owner.0), 7));
        put(116, 8, &octal(small(entry.owner.1), 7));
        put(124, 12, &octal(entry.data.len() as u64, 11));
        put(136, 12, &octal(u64::try_from(entry.mtime.0).unwrap_or(0).min(0o77_777_777_777), 11));
        put(148, 8, b"        ");
        put(156, 1, &[entry.kind]);
        put(157, 100, entry.link);
        put(257, 8, b"ustar\x0000");
        put(329, 8, &octal(entry.device.0.into(), 7));
        put(337, 8, &octal(entry.device.1.into(), 7));
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.tar.extend_from_slice(&block);
        self.tar.extend_from_slice(entry.data);
        self.tar.resize(self.tar.len().next_multiple_of(512), 0);
    }

    /// The tar, with its end.
    pub fn tar(&self) -> Vec<u8> {
        let mut tar = self.tar.clone();
        tar.resize(tar.len() + 1024, 0);
        tar
    }
}

/// `length key=value\n`, where the length counts its own digits.
fn record(pax: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    pax.extend_from_slice(format!("{length} {key}=").as_bytes());
    pax.extend_from_slice(value);
    pax.push(b'\n');
}

/// Seconds since 1970 as PAX writes them: the fraction belongs to the magnitude.
fn decimal(seconds: i64, nanoseconds: u32) -> String {
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let sign = if total < 0 { "-" } else { "" };
    let (whole, part) =
        (total.unsigned_abs() / 1_000_000_000, total.unsigned_abs() % 1_000_000_000);
    format!("{sign}{whole}.{part:09}")
}

/// Writes an image of these layers, gzipped, as a layout with the tag `1`. `config` is what runs:
/// `{"Entrypoint": [...], "Env": [...]}`. The reference by which our commands find it.
pub fn write_image(dir: &Path, layers: &[Layer], config: Value) -> Result<String> {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).with_context(|| format!("create {}", blobs.display()))?;
    let blob = |media_type: &str, bytes: &[u8]| -> Result<Value> {
        let digest = sha256(bytes);
        std::fs::write(blobs.join(&digest), bytes)?;
        let digest = format!("sha256:{digest}");
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() }))
    };
    let mut descriptors = Vec::new();
    let mut diff_ids = Vec::new();
    for layer in layers {
        let tar = layer.tar();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar)?;
        let media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
        descriptors.push(blob(media_type, &gzip.finish()?)?);
        diff_ids.push(format!("sha256:{}", sha256(&tar)));
    }
    let config = json!({
        "os": "linux", "architecture": architecture(), "config": config,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes())?;
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": descriptors,
    });
    let mut entry = blob(manifest_type, manifest.to_string().as_bytes())?;
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": "1" });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    std::fs::write(dir.join("index.json"), index.to_string())?;
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(format!("oci:{}:1", dir.display()))
}

/// This machine's, as images name it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What bytes are known by, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_itself() {
        let mut pax = Vec::new();
        record(&mut pax, "path", &[b'a'; 90]);
        assert!(pax.starts_with(b"99 path=a"), "{}", String::from_utf8_lossy(&pax));
        assert_eq!(pax.len(), 99);
        // With one byte more the length itself gets longer.
        let mut pax = Vec::new();
        record(&mut pax, "path", &[b'a'; 91]);
        assert!(pax.starts_with(b"101 path=a") && pax.len() == 101);
    }

    #[test]
    fn fractions_before_1970() {
        assert_eq!(decimal(-2, 500_000_000), "-1.500000000");
        assert_eq!(decimal(3, 1), "3.000000001");
    }

    #[test]
    fn tar_reads_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let long = "x".repeat(150);
        let layer = Layer::new()
            .with(Entry::dir("d/"))
            .with(Entry::file(&format!("d/{long}"), "data").mode(0o4711).owner(7, 8))
            .with(Entry::symlink("l", &long));
        std::fs::write(dir.path().join("t.tar"), layer.tar()).unwrap();
        let out = std::process::Command::new("tar")
            .args(["-tvf", "t.tar"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let file = text.lines().nth(1).unwrap();
        assert!(file.starts_with("-rws--x--x 7/8") && file.ends_with(&long), "{text}");
        assert!(text.lines().nth(2).unwrap().ends_with(&format!("l -> {long}")), "{text}");
    }
}
