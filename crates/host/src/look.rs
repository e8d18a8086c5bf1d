//! One machine that is looked at several times: what takes long to read is read the first time.
//!
//! To choose an image and then to check what it needs asks for the kernel's configuration and the
//! processors twice, and they are the longest files there are.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use crate::cpuinfo::{self, CpuInfo};
use crate::fact::Fact;
use crate::facts::{Facts, Wanted};
use crate::kernel::{Config, Kernel};
use crate::root::Root;
use crate::{Basics, Host, Live, OpenRootError};

/// A machine to be looked at. What was read once is not read again, so it shows one moment; for
/// another one, look anew.
#[derive(Debug)]
pub struct Look {
    pub(crate) path: PathBuf,
    pub(crate) root: Root,
    pub(crate) live: Live,
    cpuinfo: OnceCell<Result<Fact<CpuInfo>, String>>,
    basics: OnceCell<Basics>,
    config: OnceCell<Result<Fact<Config>, String>>,
}

impl Look {
    /// This machine.
    pub fn here() -> Result<Self, OpenRootError> {
        Self::open(Path::new("/"), Live::here())
    }

    /// The machine whose root directory is `root`.
    ///
    /// Links in it, absolute ones too, are followed inside it: nothing outside is ever read.
    pub fn at(root: &Path) -> Result<Self, OpenRootError> {
        Self::open(root, Live::default())
    }

    fn open(path: &Path, live: Live) -> Result<Self, OpenRootError> {
        let failed = |source| OpenRootError { root: path.to_owned(), source };
        Ok(Self {
            root: Root::open(path).map_err(failed)?,
            path: path.to_owned(),
            live,
            cpuinfo: OnceCell::new(),
            basics: OnceCell::new(),
            config: OnceCell::new(),
        })
    }

    /// The platform and what it follows from.
    pub fn host(&self) -> Host {
        Host::look(self, &self.kernel())
    }

    /// What is wanted of it.
    pub fn facts(&self, wanted: &Wanted) -> Facts {
        Facts::collect(self, wanted)
    }

    pub(crate) fn kernel(&self) -> Kernel<'_> {
        Kernel::new(&self.root, &self.live, &self.config)
    }

    /// `/proc/cpuinfo`, or why it is not known.
    pub(crate) fn cpuinfo(&self) -> Result<&Fact<CpuInfo>, String> {
        let read = || {
            cpuinfo::load(&self.root).map_err(|why| {
                self.root.note(cpuinfo::PATH, &why);
                why.about(cpuinfo::PATH)
            })
        };
        self.cpuinfo.get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// What it is, as far as no look at the kernel is needed.
    pub(crate) fn basics(&self) -> &Basics {
        let look = || Basics::look(&self.root, &self.live, self.cpuinfo().ok());
        self.basics.get_or_init(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second look needs none of the files of the first.
    #[test]
    fn what_was_read_once_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/ostype", "Linux\n");
        write("proc/sys/kernel/arch", "x86_64\n");
        write("proc/cpuinfo", "processor : 0\nflags : avx2\n");
        write("proc/config.gz", "CONFIG_NET=y\n# CONFIG_IA32_EMULATION is not set\n");
        let look = Look::at(dir.path()).unwrap();
        let host = look.host();
        assert_eq!(host.compat32.as_ref().map(|fact| fact.value), Some(false));
        for path in ["proc/cpuinfo", "proc/config.gz"] {
            std::fs::remove_file(dir.path().join(path)).unwrap();
        }
        let wanted = Wanted::default().feature("kernel.config").feature("cpu.cpuid");
        let facts = look.facts(&wanted);
        assert!(matches!(
            facts.attribute("kernel.config", "NET"),
            crate::facts::Found::Value { value: "y", .. }
        ));
        assert!(facts.feature("cpu.cpuid").is_ok());
        assert_eq!(look.host(), host);
        // Looked at anew, they are gone.
        assert!(Look::at(dir.path()).unwrap().facts(&wanted).feature("kernel.config").is_err());
    }
}
