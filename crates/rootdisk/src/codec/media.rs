//! What a layer is called, and what its first bytes show it to be.

use std::fmt;

use super::CodecError;

/// How a layer is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all: a plain tar.
    Plain,
    /// gzip, one member or several.
    Gzip,
    /// zstd, one frame or several.
    Zstd,
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "tar",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// The layer's type names one packing, its bytes are another. The bytes decide; this is a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// What the media type says.
    pub declared: Packing,
    /// What the bytes are.
    pub found: Packing,
}

/// How many first bytes [`sniff`] wants, unless the layer is shorter.
pub(super) const SNIFF: usize = 10;

/// What the media type of a layer says. OCI and Docker types, also those of layers that may not
/// be distributed; parameters and case do not matter.
pub(super) fn declared(media_type: &str) -> Result<Packing, CodecError> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/vnd.oci.image.layer.v1.tar"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar"
        | "application/vnd.docker.image.rootfs.diff.tar"
        | "application/vnd.docker.image.rootfs.foreign.diff.tar" => Ok(Packing::Plain),
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip"
        | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" => Ok(Packing::Gzip),
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd"
        | "application/vnd.docker.image.rootfs.foreign.diff.tar.zstd" => Ok(Packing::Zstd),
        _ => Err(CodecError::UnknownType { media_type: media_type.chars().take(120).collect() }),
    }
}

/// What the first bytes are. Whatever has no known magic is taken for a tar, as the Go tools do;
/// the tar reader then says if it is none. No bytes at all are an empty layer.
pub(super) fn sniff(head: &[u8]) -> Result<Packing, CodecError> {
    const XZ: &[u8] = b"\xfd7zXZ\0";
    const BZIP2_BLOCK: &[u8] = b"1AY&SY";
    if head.starts_with(super::gzip::MAGIC) {
        Ok(Packing::Gzip)
    } else if super::zstd::is_frame(head) {
        Ok(Packing::Zstd)
    } else if head.starts_with(XZ) {
        Err(CodecError::UnsupportedPacking { packing: "xz" })
    } else if head.starts_with(b"BZh") && head.get(4..) == Some(BZIP2_BLOCK) {
        Err(CodecError::UnsupportedPacking { packing: "bzip2" })
    } else {
        Ok(Packing::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_type_has_its_packing() {
        for (media_type, packing) in [
            ("application/vnd.oci.image.layer.v1.tar", Packing::Plain),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Packing::Gzip),
            ("application/vnd.oci.image.layer.v1.tar+zstd", Packing::Zstd),
            ("application/vnd.oci.image.layer.nondistributable.v1.tar", Packing::Plain),
            ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", Packing::Gzip),
            ("application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", Packing::Zstd),
            ("application/vnd.docker.image.rootfs.diff.tar", Packing::Plain),
            ("application/vnd.docker.image.rootfs.diff.tar.gzip", Packing::Gzip),
            ("application/vnd.docker.image.rootfs.diff.tar.zstd", Packing::Zstd),
            ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", Packing::Gzip),
            ("Application/vnd.OCI.image.layer.v1.tar+gzip; x=y", Packing::Gzip),
        ] {
            assert_eq!(declared(media_type).unwrap(), packing, "{media_type}");
        }
    }

    #[test]
    fn other_types_are_refused_and_quoted() {
        for media_type in [
            "",
            "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
            "application/vnd.oci.image.layer.v1.erofs",
            "application/vnd.in-toto+json",
        ] {
            let error = declared(media_type).unwrap_err();
            assert!(error.to_string().contains(&format!("{media_type:?}")), "{error}");
        }
    }

    #[test]
    fn first_bytes_tell_the_packing() {
        for (head, packing) in [
            (&b"\x1f\x8b\x08\0\0\0\0\0\0\0"[..], Packing::Gzip),
            (b"\x28\xb5\x2f\xfd\x04\0", Packing::Zstd),
            (b"\x5e\x2a\x4d\x18\0\0\0\0", Packing::Zstd),
            (b"etc/passwd", Packing::Plain),
            (b"BZhello wo", Packing::Plain),
            (b"", Packing::Plain),
        ] {
            assert_eq!(sniff(head).unwrap(), packing, "{head:?}");
        }
        assert!(matches!(
            sniff(b"BZh91AY&SY"),
            Err(CodecError::UnsupportedPacking { packing: "bzip2" })
        ));
        assert!(matches!(
            sniff(b"\xfd7zXZ\0\0\x04\xe6\xd6"),
            Err(CodecError::UnsupportedPacking { packing: "xz" })
        ));
    }
}
