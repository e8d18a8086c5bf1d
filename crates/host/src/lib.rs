//! What a machine is: facts read from a root path, each with the place it came from.
//!
//! The root is this machine's own ([`Host::here`]) or a directory that holds another's
//! ([`Host::at`]): a mounted disk, a bind mount in a container, a fixture. Only facts about the
//! running machine that have no file (the auxiliary vector, uname) are left to [`Host::here`].
//!
//! A source that is missing or cannot be read makes a fact unknown. It never makes it "no", and
//! it never stops the others.
//!
//! | file | what it holds |
//! |---|---|
//! | `fact` | a value and where it came from |
//! | `root` | reading a file below a root, however its links point |
//! | `architecture` | operating system and architecture |
//! | `level` | how far the processor goes |
//! | `compat32` | whether 32-bit programs run |
//! | `container` | whether the files of a root are an image's and not the host's |
//! | `cpuinfo`, `auxv`, `elf`, `machine`, `kernel` | the sources, parsed |
//! | `facts` | everything else, under the names of Node Feature Discovery |
//! | `look` | one machine that is looked at several times |
//! | `platform` | all of it as the platform that images are chosen for |
#![warn(missing_docs)]

mod architecture;
mod auxv;
mod compat32;
mod container;
pub mod cpuinfo;
pub mod elf;
mod fact;
pub mod facts;
pub mod kernel;
mod level;
mod look;
pub mod machine;
mod platform;
mod root;

use std::path::{Path, PathBuf};

use portolan_core::platform::level::Detection;
use serde::Serialize;

use crate::auxv::Capabilities;
use crate::cpuinfo::CpuInfo;
use crate::kernel::Kernel;
use crate::root::Root;

pub use fact::{Fact, Source, Unread};
pub use look::Look;
pub use platform::PlatformError;

/// A machine, as far as it could be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Where it was read.
    pub root: PathBuf,
    /// `linux`, `freebsd`, …
    pub os: Option<Fact<String>>,
    /// `amd64`, `arm64`, … of the kernel, which may be wider than that of the programs.
    pub architecture: Option<Fact<String>>,
    /// How far the processor goes and what the next level lacks. All processors count: a level
    /// that only some have is none.
    pub level: Option<Fact<Detection>>,
    /// Whether the 32-bit programs of the architecture run.
    pub compat32: Option<Fact<bool>>,
    /// Files that are there and could not be read. What they would have told is unknown.
    pub unread: Vec<Unread>,
}

/// A root that cannot be looked into at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {} as the root of a host", root.display())]
pub struct OpenRootError {
    /// The path given.
    pub root: PathBuf,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

/// What only the running machine tells, and no file.
#[derive(Debug, Clone, Default)]
struct Live {
    /// This is the running machine and not some root.
    here: bool,
    /// What uname says the kernel is called and runs on.
    uname: Option<(String, String)>,
    /// What the auxiliary vector says.
    capabilities: Option<Capabilities>,
    /// What a cluster calls this machine, where it told so.
    node_name: Option<String>,
}

impl Live {
    /// Asks the running machine.
    fn here() -> Self {
        let uname = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        let (hwcap, hwcap2) = rustix::param::linux_hwcap();
        Self {
            here: true,
            uname: Some((text(uname.sysname()), text(uname.machine()))),
            capabilities: Some(Capabilities {
                architecture: std::env::consts::ARCH,
                hwcap: hwcap as u64,
                hwcap2: hwcap2 as u64,
            }),
            node_name: std::env::var("NODE_NAME").ok(),
        }
    }
}

impl Host {
    /// This machine.
    pub fn here() -> Result<Self, OpenRootError> {
        Ok(Look::here()?.host())
    }

    /// The machine whose root directory is `root`.
    ///
    /// Links in it, absolute ones too, are followed inside it: nothing outside is ever read.
    pub fn at(root: &Path) -> Result<Self, OpenRootError> {
        Ok(Look::at(root)?.host())
    }

    fn look(look: &Look, kernel: &Kernel<'_>) -> Self {
        let Basics { os, architecture, level } = look.basics().clone();
        let compat32 = architecture
            .as_ref()
            .and_then(|fact| compat32::compat32(&fact.value, &look.root, kernel));
        let (root, unread) = (look.path.clone(), look.root.unread());
        Self { root, os, architecture, level, compat32, unread }
    }
}

/// What is told of a host without looking at its kernel, whose configuration is large.
#[derive(Debug, Clone)]
pub(crate) struct Basics {
    pub(crate) os: Option<Fact<String>>,
    pub(crate) architecture: Option<Fact<String>>,
    pub(crate) level: Option<Fact<Detection>>,
}

impl Basics {
    fn look(root: &Root, live: &Live, cpuinfo: Option<&Fact<CpuInfo>>) -> Self {
        let elf = elf::read(root);
        let os = architecture::os(root, live, elf.as_ref());
        let architecture = architecture::architecture(root, live, cpuinfo, elf.as_ref());
        let level = architecture.as_ref().and_then(|fact| level::level(&fact.value, cpuinfo, live));
        Self { os, architecture, level }
    }
}
