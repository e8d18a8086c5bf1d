//! One name for one thing.

use serde::Serialize;

use super::{Platform, containerd};

/// A name that was understood but that nobody should write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum NormaliseWarning {
    /// `ppcle64`, a misspelling in circulation.
    #[error("{found:?} was taken for {meant:?}; write {meant:?}")]
    Misspelt {
        /// As written.
        found: String,
        /// As it is spelt.
        meant: &'static str,
    },
    /// `arm/v9`. ARMv9 has no 32-bit architecture of its own: who writes this means `arm64/v9`,
    /// and runtimes would never run it on such a host.
    #[error("{found:?} was taken for \"arm64/v9\": there is no 32-bit v9; write \"arm64/v9\"")]
    Arm64CalledArm {
        /// As written.
        found: String,
    },
}

impl Platform {
    /// The same platform under its usual names, so that equal things compare equal.
    ///
    /// | written | normalised |
    /// |---|---|
    /// | any case | lower case |
    /// | os `macos` | `darwin` |
    /// | `x86_64`, `x86-64` | `amd64` |
    /// | `amd64/v1` | `amd64` |
    /// | `aarch64`, `arm64/v8`, `/8`, `/v8.0` | `arm64` |
    /// | `arm64/9`, `/9.0`, `/v9.0` | `arm64/v9` |
    /// | `armhf`, `arm`, `arm/7` | `arm/v7` |
    /// | `armel` | `arm/v6` |
    /// | `armv5tel`, `armv6l`, `armv7l`, `armv8l` | `arm/v5` … `arm/v8` |
    /// | `arm/5`, `/6`, `/8` | `arm/v5`, `/v6`, `/v8` |
    /// | `i386`, `i486`, `i586`, `i686` | `386` without a variant |
    /// | `ppcle64` | `ppc64le`, with a warning |
    /// | `arm/v9`, `arm/9` | `arm64/v9`, with a warning |
    /// | features | sorted, each once, none empty |
    ///
    /// Everything else stays as it is.
    #[must_use]
    pub fn normalised(&self) -> Self {
        self.normalised_with_warnings().0
    }

    /// [`Platform::normalised`], and what should have been written otherwise.
    pub fn normalised_with_warnings(&self) -> (Self, Vec<NormaliseWarning>) {
        let mut warnings = Vec::new();
        let mut platform = self.clone();
        platform.architecture.make_ascii_lowercase();
        if let Some(variant) = &mut platform.variant {
            variant.make_ascii_lowercase();
        }
        match (platform.architecture.as_str(), platform.variant.as_deref()) {
            ("i486" | "i586" | "i686", _) => "i386".clone_into(&mut platform.architecture),
            ("ppcle64", _) => {
                warnings.push(NormaliseWarning::Misspelt {
                    found: self.architecture.clone(),
                    meant: "ppc64le",
                });
                "ppc64le".clone_into(&mut platform.architecture);
            }
            ("arm", Some("v9" | "9")) => {
                let found = self.variant.as_deref().unwrap_or_default();
                warnings.push(NormaliseWarning::Arm64CalledArm {
                    found: format!("{}/{found}", self.architecture),
                });
                "arm64".clone_into(&mut platform.architecture);
            }
            (machine, _) => {
                if let Some(version) = arm_machine(machine) {
                    platform.variant = Some(format!("v{version}"));
                    "arm".clone_into(&mut platform.architecture);
                }
            }
        }
        (containerd::normalise(&platform), warnings)
    }
}

/// The version in what `uname -m` says on 32-bit ARM: `armv5tel`, `armv6l`, `armv7l`, `armv8l`.
fn arm_machine(machine: &str) -> Option<char> {
    let rest = machine.strip_prefix("armv")?;
    let version = rest.chars().next().filter(|c| matches!(c, '5'..='8'))?;
    matches!(&rest[1..], "" | "l" | "te" | "tel" | "tej" | "tejl" | "hl").then_some(version)
}
