//! What collectors share: the root, and files that more than one of them reads, each read once.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use portolan_core::platform::Level;

use super::{Feature, Wanted};
use crate::container::Evidence;
use crate::cpuinfo::CpuInfo;
use crate::fact::Fact;
use crate::kernel::{Config, Kernel};
use crate::root::{Dir, NotRead, Root};
use crate::{Basics, Host, Live, Look};

/// A feature, or why nothing is known of it.
pub(crate) type Outcome = Result<Feature, String>;

/// Warnings about one machine.
const MAX_WARNINGS: usize = 100;

/// A machine whose facts are being collected.
pub(crate) struct Machine<'a> {
    pub(crate) root: &'a Root,
    pub(crate) wanted: &'a Wanted,
    pub(crate) kernel: Kernel<'a>,
    look: &'a Look,
    host: OnceCell<Host>,
    sys_is_whole: OnceCell<bool>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(look: &'a Look, wanted: &'a Wanted) -> Self {
        Self {
            root: &look.root,
            wanted,
            kernel: look.kernel(),
            look,
            host: OnceCell::new(),
            sys_is_whole: OnceCell::new(),
            warnings: RefCell::default(),
        }
    }

    /// `/proc/cpuinfo`, or why it is not known.
    pub(crate) fn cpuinfo(&self) -> Result<&Fact<CpuInfo>, String> {
        self.look.cpuinfo()
    }

    /// The platform and what it follows from.
    pub(crate) fn host(&self) -> &Host {
        self.host.get_or_init(|| Host::look(self.look, &self.kernel))
    }

    /// What it is, as far as no look at the kernel is needed.
    pub(crate) fn basics(&self) -> &Basics {
        self.look.basics()
    }

    /// How far the processor goes, where it has levels.
    pub(crate) fn level(&self) -> Option<Level> {
        self.basics().level.as_ref()?.value.level
    }

    /// The architecture, in the words of images.
    pub(crate) fn architecture(&self) -> Result<&str, String> {
        let known = self.basics().architecture.as_ref();
        known.map(|fact| fact.value.as_str()).ok_or_else(|| {
            "the architecture is not known: neither /proc nor a program says it".to_owned()
        })
    }

    /// What only the running machine tells.
    pub(crate) fn live(&self) -> &Live {
        &self.look.live
    }

    /// The configuration of the running kernel, if it is known.
    pub(crate) fn config(&self) -> Option<&Fact<Config>> {
        self.kernel.config().ok()
    }

    /// Whether the files of the root are the host's; if not, why.
    pub(crate) fn files_are_the_hosts(&self) -> Result<(), String> {
        self.kernel.evidence().image_files.clone().map_or(Ok(()), Err)
    }

    /// What the place of this machine says about its files.
    pub(crate) fn evidence(&self) -> &Evidence {
        self.kernel.evidence()
    }

    /// Whether it is certain that there is no `path`: it would be below `above`, which is there,
    /// with something in it. In `/sys` that only counts if it is the kernel's own or a whole copy.
    pub(crate) fn is_absent(&self, above: &str, path: &str) -> Result<(), String> {
        let names = self.root.dir(above).and_then(|dir| dir.names());
        let filled = names.is_ok_and(|names| !names.is_empty());
        if filled && (!above.starts_with("/sys") || self.sys_is_whole()) {
            Ok(())
        } else {
            Err(NotRead::Missing.about(path))
        }
    }

    /// Every kernel has processors, so a copy without them is of some parts only.
    fn sys_is_whole(&self) -> bool {
        *self.sys_is_whole.get_or_init(|| self.root.dir("/sys/devices/system/cpu").is_ok())
    }

    /// The directory at `path`; none where the kernel certainly has none ([`Machine::is_absent`]).
    pub(crate) fn dir(&self, above: &str, path: &str) -> Result<Option<Dir<'a>>, String> {
        match self.root.dir(path) {
            Ok(dir) => Ok(Some(dir)),
            Err(NotRead::Missing) => self.is_absent(above, path).map(|()| None),
            Err(why) => Err(why.about(path)),
        }
    }

    /// The names in the directory at `path`; none where the kernel certainly has none.
    pub(crate) fn listing(
        &self,
        above: &str,
        path: &str,
    ) -> Result<Option<(Dir<'a>, Vec<String>)>, String> {
        let Some(dir) = self.dir(above, path)? else { return Ok(None) };
        let names = dir.names().map_err(|why| why.about(path))?;
        Ok(Some((dir, names)))
    }

    /// Something that the reader of the facts should know. So many are kept; more helps nobody.
    pub(crate) fn warn(&self, warning: String) {
        let mut warnings = self.warnings.borrow_mut();
        match warnings.len() {
            _ if warnings.contains(&warning) => {}
            0..MAX_WARNINGS => warnings.push(warning),
            MAX_WARNINGS => warnings.push("there were more warnings than these".to_owned()),
            _ => {}
        }
    }

    /// All warnings: those of collectors, and those about the place itself.
    pub(crate) fn warnings(self) -> Vec<String> {
        let mut warnings = self
            .kernel
            .evidence_if_seen()
            .map_or_else(Vec::new, |evidence| evidence.warnings.clone());
        warnings.extend(self.warnings.into_inner());
        warnings
    }
}

/// What says that there is no `path`.
pub(crate) fn no(path: &str) -> String {
    format!("no {path}")
}

/// Attributes that are gathered one by one, each from a file of its own.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    values: BTreeMap<String, String>,
    sources: BTreeMap<String, String>,
    unknown: BTreeMap<String, String>,
}

impl Attributes {
    /// `name` has this value, as `source` says.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>, source: &str) {
        self.values.insert(name.to_owned(), value.into());
        self.sources.insert(name.to_owned(), source.to_owned());
    }

    /// `name` is known to be absent, as `source` says.
    pub(crate) fn absent(&mut self, name: &str, source: &str) {
        self.sources.insert(name.to_owned(), source.to_owned());
    }

    /// `name` is taken back.
    pub(crate) fn remove(&mut self, name: &str) {
        self.values.remove(name);
        self.sources.remove(name);
    }

    /// Nobody knows `name`.
    pub(crate) fn unknown(&mut self, name: &str, why: impl Into<String>) {
        self.unknown.insert(name.to_owned(), why.into());
    }

    /// The feature, most of which came from `source`.
    pub(crate) fn feature(mut self, source: &str) -> Feature {
        self.sources.retain(|_, from| from != source);
        Feature {
            attributes: Some(self.values),
            source: source.to_owned(),
            sources: self.sources,
            unknown: self.unknown,
            ..Feature::default()
        }
    }
}
