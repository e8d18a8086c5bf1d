//! The words that label values are made of. Each is one of a fixed set, so that no image, client
//! or registry can make new series.

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The label's value.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

words! {
    /// Why a pull failed.
    PullFailure {
        /// The registry could not be reached, broke off or answered with an error of its own.
        Transport => "transport",
        /// It wanted credentials that we do not have, or refused ours.
        Denied => "denied",
        /// It does not have the manifest or a layer.
        NotFound => "not_found",
        /// What came is not what its digest, size or diff_id says.
        DigestMismatch => "digest_mismatch",
        /// What came is no image that we can run: a manifest of another kind, an unknown layer.
        Unusable => "unusable",
        /// The image is for another platform.
        PlatformMismatch => "platform_mismatch",
        /// The whole pull took longer than it may.
        Timeout => "timeout",
        /// Nobody wanted it any more.
        Cancelled => "cancelled",
        /// This machine's disk did not take it.
        Disk => "disk",
    }
}

words! {
    /// Whether a root disk was in the cache.
    CacheResult {
        /// It was.
        Hit => "hit",
        /// It had to be built.
        Miss => "miss",
        /// Another start was building it already, and this one waited for it.
        Joined => "joined",
    }
}

words! {
    /// What a checksum said.
    VerifyResult {
        /// The disk is what was built.
        Ok => "ok",
        /// It is not.
        Corrupt => "corrupt",
        /// It could not be read.
        Error => "error",
    }
}

words! {
    /// What the cache holds.
    CacheKind {
        /// Built root disks.
        Rootdisk => "rootdisk",
        /// Manifests, configurations and layers.
        Blob => "blob",
        /// Work in progress and what crashes left.
        Temporary => "temporary",
    }
}

words! {
    /// A place that can be full.
    Pool {
        /// Blobs, manifests and root disks.
        Cache => "cache",
        /// `instances/`: the scratch disks.
        Volumes => "volumes",
    }
}

words! {
    /// Who gets status reports.
    ReportTarget {
        /// The control plane's URL.
        ControlPlane => "control_plane",
        /// The node object of the Kubernetes API server.
        Node => "node",
    }
}

words! {
    /// What came of the image of a Release.
    PrefetchResult {
        /// It was fetched and built.
        Fetched => "fetched",
        /// It was there already.
        Cached => "cached",
        /// The Release was gone or named another image before it was there.
        Cancelled => "cancelled",
        /// It was refused or could not be had.
        Failed => "failed",
    }
}

/// The status codes that the API answers with; anything else is one word.
pub(super) fn status(status: http::StatusCode) -> &'static str {
    match status.as_u16() {
        200 => "200",
        201 => "201",
        202 => "202",
        204 => "204",
        206 => "206",
        304 => "304",
        400 => "400",
        403 => "403",
        404 => "404",
        405 => "405",
        408 => "408",
        409 => "409",
        413 => "413",
        415 => "415",
        416 => "416",
        422 => "422",
        429 => "429",
        500 => "500",
        503 => "503",
        504 => "504",
        507 => "507",
        _ => "other",
    }
}
