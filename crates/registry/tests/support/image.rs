//! Images made from a seed: every byte is known, no fixture is needed, and two runs agree.

use std::collections::BTreeMap;

use portolan_core::{Descriptor, Digest, Index, Manifest, Platform, media_type};

/// The media type of a gzip layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// A graph of content with one top: everything that a repository must hold to serve it.
#[derive(Debug, Clone)]
pub struct Image {
    /// The index or manifest that a tag points to.
    pub top: Descriptor,
    /// Manifests and indexes by digest, with their media type.
    pub manifests: BTreeMap<Digest, (String, Vec<u8>)>,
    /// Configs and layers by digest.
    pub blobs: BTreeMap<Digest, Vec<u8>>,
}

impl Image {
    /// One platform, layers of these sizes.
    pub fn single(platform: &str, layers: &[usize], seed: u64) -> Self {
        let layers = layers.iter().zip(seed * 1000..).map(|(size, seed)| bytes(*size, seed));
        Self::with_layers(platform, layers.collect())
    }

    /// One platform, these layers.
    pub fn with_layers(platform: &str, layers: Vec<Vec<u8>>) -> Self {
        let platform = self::platform(platform);
        let config = serde_json::json!({
            "os": platform.os, "architecture": platform.architecture, "variant": platform.variant,
            "config": {}, "rootfs": {"type": "layers", "diff_ids": layers.iter()
                .map(|l| Digest::sha256(l).to_string()).collect::<Vec<_>>()},
        });
        let config = serde_json::to_vec(&config).unwrap();
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(media_type::OCI_MANIFEST.to_owned()),
            artifact_type: None,
            config: Descriptor::of(media_type::OCI_CONFIG, &config),
            layers: layers.iter().map(|l| Descriptor::of(LAYER, l)).collect(),
            subject: None,
            annotations: BTreeMap::new(),
        };
        let mut image = Self::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
        image.top.platform = Some(platform);
        for blob in layers.into_iter().chain([config]) {
            image.blobs.insert(Digest::sha256(&blob), blob);
        }
        image
    }

    /// A manifest alone, whatever its bytes are.
    pub fn of_manifest(media_type: &str, bytes: &[u8]) -> Self {
        let top = Descriptor::of(media_type, bytes);
        let manifests = BTreeMap::from([(top.digest, (media_type.to_owned(), bytes.to_vec()))]);
        Self { top, manifests, blobs: BTreeMap::new() }
    }

    /// An index of these images, in this order.
    pub fn index(images: &[Image]) -> Self {
        let index = Index {
            schema_version: 2,
            media_type: Some(media_type::OCI_INDEX.to_owned()),
            artifact_type: None,
            manifests: images.iter().map(|i| i.top.clone()).collect(),
            subject: None,
            annotations: BTreeMap::new(),
        };
        let mut all = Self::of_manifest(media_type::OCI_INDEX, &to_json(&index));
        for image in images {
            all.absorb(image);
        }
        all
    }

    /// An index of single-platform images with two small layers each, none shared.
    pub fn multi(platforms: &[&str], seed: u64) -> Self {
        let images: Vec<_> = platforms
            .iter()
            .zip(seed * 100..)
            .map(|(platform, seed)| Self::single(platform, &[30_000, 2_000], seed))
            .collect();
        Self::index(&images)
    }

    /// An artifact that speaks of `subject`.
    pub fn referrer(subject: &Descriptor, artifact_type: &str, payload: &[u8]) -> Self {
        let manifest = Manifest {
            schema_version: 2,
            media_type: Some(media_type::OCI_MANIFEST.to_owned()),
            artifact_type: Some(artifact_type.to_owned()),
            config: Descriptor::of(media_type::OCI_EMPTY, b"{}"),
            layers: vec![Descriptor::of("application/octet-stream", payload)],
            subject: Some(Descriptor::new(&subject.media_type, subject.digest, subject.size)),
            annotations: BTreeMap::from([("kind".to_owned(), "test".to_owned())]),
        };
        let mut image = Self::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
        image.top.artifact_type = Some(artifact_type.to_owned());
        for blob in [b"{}".as_slice(), payload] {
            image.blobs.insert(Digest::sha256(blob), blob.to_vec());
        }
        image
    }

    /// Takes in the content of another image; the top stays.
    pub fn absorb(&mut self, other: &Image) {
        self.manifests.extend(other.manifests.clone());
        self.blobs.extend(other.blobs.clone());
    }

    /// The document at the top, parsed as an index.
    pub fn as_index(&self) -> Index {
        serde_json::from_slice(&self.manifests[&self.top.digest].1).unwrap()
    }

    /// A manifest of this image.
    pub fn manifest(&self, digest: &Digest) -> Manifest {
        serde_json::from_slice(&self.manifests[digest].1).unwrap()
    }

    /// Every digest, manifests and blobs.
    pub fn digests(&self) -> Vec<Digest> {
        self.manifests.keys().chain(self.blobs.keys()).copied().collect()
    }

    /// The largest blob: a layer, the one worth breaking.
    pub fn largest_blob(&self) -> (Digest, &[u8]) {
        let (digest, bytes) = self.blobs.iter().max_by_key(|(_, b)| b.len()).unwrap();
        (*digest, bytes)
    }
}

/// Pretty JSON: what registries see most, and different from any compact re-encoding.
pub fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).unwrap()
}

/// `os/architecture[/variant]`, as written.
pub fn platform(text: &str) -> Platform {
    let mut parts = text.split('/').map(str::to_owned);
    Platform {
        os: parts.next().unwrap(),
        architecture: parts.next().unwrap(),
        variant: parts.next(),
        os_version: None,
        os_features: Vec::new(),
    }
}

/// Bytes that do not compress and differ for every seed (xorshift).
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A true gzip file of one stored block.
pub fn gzip(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a stored block holds 65535 bytes at most");
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(content);
    out.extend_from_slice(&crc32(content).to_le_bytes());
    out.extend_from_slice(&u32::from(length).to_le_bytes());
    out
}

fn crc32(content: &[u8]) -> u32 {
    !content.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 * (crc & 1)))
    })
}
