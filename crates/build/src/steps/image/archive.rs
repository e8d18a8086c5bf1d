//! Images in one tarball, as `docker save` writes them and as OCI archives are.
//!
//! The tarball comes from a strategy that may be anybody's: it is read and unpacked by `rootdisk`,
//! within its bounds. Names in it are followed only while they stay inside: beside us is the secret
//! that we push with.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Component, Path};

use portolan_core::manifest::{ImageConfig, MAX_MANIFEST_BYTES};
use portolan_core::{Algorithm, Descriptor, Digest, Hasher, Manifest, media_type};
use portolan_registry::images::Place;
use portolan_registry::layout::Layout;
use portolan_rootdisk::build::LayerInput;
use serde::Deserialize;

use super::REASON;
use crate::source::{MAX_TOTAL, beneath, unpack_layer};
use crate::steps::StepError;

/// So many layers: what runtimes can mount.
const MAX_LAYERS: usize = 500;
/// A tar as it is.
const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

/// One image in `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

/// Unpacks a tarball below `work` and reads the image in it.
pub(crate) async fn load(tarball: &Path, work: &Path) -> Result<Layout, StepError> {
    let failed =
        |source| StepError::local(REASON, format!("cannot read {}", tarball.display()), source);
    let file = File::open(tarball).map_err(failed)?;
    let (kept, files) = (work.join("tarball"), work.join("files"));
    let (layout, layer) = tokio::task::spawn_blocking(move || keep(file, &kept))
        .await
        .expect("reading does not panic")?;
    let name = tarball.display().to_string();
    unpack_layer(Place::Layout(layout), layer, &name, work, &files).await.map_err(|source| {
        StepError::of(REASON, Some(source.class()), format!("{name} is no image"), source)
    })?;
    if files.join("index.json").is_file() {
        return Layout::open(&files).map_err(|source| {
            StepError::of(REASON, Some(source.class()), format!("{name} is no image"), source)
        });
    }
    let into = work.join("image");
    tokio::task::spawn_blocking(move || saved(&files, &into, &name))
        .await
        .expect("reading does not panic")
}

/// Keeps a tar as a layer that is packed no further.
fn keep(tar: File, dir: &Path) -> Result<(Layout, LayerInput), StepError> {
    let failed = |source| StepError::local(REASON, "cannot keep the tarball", source);
    let layout = Layout::create(dir).map_err(failed)?;
    let path = dir.join("whole.tar");
    let io = |source| StepError::local(REASON, "the tarball cannot be read", source);
    let mut file = File::create(&path).map_err(io)?;
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut size = 0_u64;
    let mut bounded = tar.take(MAX_TOTAL + 1);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = bounded.read(&mut buffer).map_err(io)?;
        if read == 0 {
            break;
        }
        size += read as u64;
        if size > MAX_TOTAL {
            let what = format!("the tarball has more than {MAX_TOTAL} bytes");
            return Err(StepError::bad(REASON, what));
        }
        hasher.update(&buffer[..read]);
        file.write_all(&buffer[..read]).map_err(io)?;
    }
    drop(file);
    let digest = hasher.finish();
    let to = dir.join("blobs/sha256").join(digest.hex());
    std::fs::rename(&path, &to).map_err(io)?;
    let descriptor = Descriptor::new(TAR, digest, size);
    Ok((layout, LayerInput { descriptor, diff_id: digest }))
}

/// `docker save`'s form as an OCI layout.
fn saved(files: &Path, into: &Path, name: &str) -> Result<Layout, StepError> {
    let bad = |what: &str| StepError::bad(REASON, format!("{name} is no image: {what}"));
    let list = read(files, "manifest.json")?
        .ok_or_else(|| bad("it has neither index.json nor manifest.json"))?;
    let list: Vec<Saved> =
        serde_json::from_slice(&list).map_err(|error| bad(&format!("manifest.json: {error}")))?;
    let [image] = &list[..] else {
        return Err(bad(&format!("it holds {} images, not one", list.len())));
    };
    let config = read(files, &image.config)?.ok_or_else(|| bad("its configuration is missing"))?;
    let parsed =
        ImageConfig::parse(&config).map_err(|error| bad(&format!("its configuration: {error}")))?;
    if image.layers.len() != parsed.diff_ids.len() || image.layers.len() > MAX_LAYERS {
        return Err(bad("its configuration speaks of other layers"));
    }
    let keep = |source| StepError::local(REASON, "the image cannot be kept", source);
    let layout = Layout::create(into).map_err(keep)?;
    let mut layers = Vec::with_capacity(image.layers.len());
    for path in &image.layers {
        layers.push(layer(files, path, &layout).map_err(|what| bad(&what))?);
    }
    layout.put_blob(&config).map_err(keep)?;
    let manifest = Manifest::new(Descriptor::of(media_type::OCI_CONFIG, &config), layers);
    layout.put_manifest(media_type::OCI_MANIFEST, &manifest.to_vec(), None).map_err(keep)?;
    Ok(layout)
}

/// A file that a tarball names, where it is inside; `docker save` names a layer twice by a link.
fn open(files: &Path, path: &str) -> io::Result<File> {
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    match plain {
        true => beneath::open(files, Path::new(path)),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not in the tarball")),
    }
}

fn read(files: &Path, path: &str) -> Result<Option<Vec<u8>>, StepError> {
    let bad = |what: String| StepError::bad(REASON, format!("the tarball's {path:?}: {what}"));
    let file = match open(files, path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bad(error.to_string())),
    };
    let mut bytes = Vec::new();
    let limit = MAX_MANIFEST_BYTES as u64;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| bad(error.to_string()))?;
    match bytes.len() > MAX_MANIFEST_BYTES {
        true => Err(bad(format!("it has more than {limit} bytes"))),
        false => Ok(Some(bytes)),
    }
}

/// Takes a layer over by its digest; what it is packed with is told by its first bytes.
fn layer(files: &Path, path: &str, layout: &Layout) -> Result<Descriptor, String> {
    let io = |error: io::Error| format!("{path:?}: {error}");
    let mut open = open(files, path).map_err(io)?;
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut first = [0; 4];
    let (mut size, mut buffer) = (0_u64, vec![0; 256 * 1024]);
    loop {
        let read = open.read(&mut buffer).map_err(io)?;
        if read == 0 {
            break;
        }
        if size == 0 {
            let known = read.min(first.len());
            first[..known].copy_from_slice(&buffer[..known]);
        }
        size += read as u64;
        hasher.update(&buffer[..read]);
    }
    let digest: Digest = hasher.finish();
    let kind = match first {
        [0x1f, 0x8b, ..] => "application/vnd.oci.image.layer.v1.tar+gzip",
        [0x28, 0xb5, 0x2f, 0xfd] => "application/vnd.oci.image.layer.v1.tar+zstd",
        _ => TAR,
    };
    let to = layout.dir().join("blobs/sha256").join(digest.hex());
    // One layer may be named twice.
    if !to.exists() {
        open.rewind().map_err(io)?;
        io::copy(&mut open, &mut File::create(&to).map_err(io)?).map_err(io)?;
    }
    Ok(Descriptor::new(kind, digest, size))
}
