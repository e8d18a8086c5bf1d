//! What the kernel was built and booted with.

pub(crate) mod config;

use std::cell::OnceCell;

pub use config::{Config, ConfigError, Setting, unquoted};

use crate::Live;
use crate::container::{self, Evidence};
use crate::fact::Fact;
use crate::facts::{cmdline, same_but_for_dashes};
use crate::root::{NotRead, Root};

const RELEASE: &str = "/proc/sys/kernel/osrelease";

const CMDLINE: &str = "/proc/cmdline";

/// Far longer than the kernel's own bound.
const CMDLINE_LIMIT: u64 = 64 << 10;

/// What is read about the kernel below a root, each of it once and only when it is asked for.
#[derive(Debug)]
pub(crate) struct Kernel<'r> {
    root: &'r Root,
    evidence: OnceCell<Evidence>,
    release: OnceCell<Result<Fact<String>, String>>,
    /// Whoever looks again has it already.
    config: &'r OnceCell<Result<Fact<Config>, String>>,
    here: bool,
}

impl<'r> Kernel<'r> {
    pub(crate) fn new(
        root: &'r Root,
        live: &Live,
        config: &'r OnceCell<Result<Fact<Config>, String>>,
    ) -> Self {
        Self { root, evidence: OnceCell::new(), release: OnceCell::new(), config, here: live.here }
    }

    /// Whether what is below the root is an image's and not the host's.
    pub(crate) fn evidence(&self) -> &Evidence {
        self.evidence.get_or_init(|| container::evidence(self.root, self.here))
    }

    /// The same, if anybody asked.
    pub(crate) fn evidence_if_seen(&self) -> Option<&Evidence> {
        self.evidence.get()
    }

    /// The release of the running kernel, such as `6.1.0-54-cloud-amd64`, or why it is not known.
    pub(crate) fn release(&self) -> Result<&Fact<String>, &str> {
        let read = || {
            let release = self.root.text(RELEASE, 256).map_err(|why| why.about(RELEASE))?;
            if release.is_empty() {
                return Err(format!("{RELEASE} is empty"));
            }
            Ok(Fact::from_file(release, RELEASE))
        };
        self.release.get_or_init(read).as_ref().map_err(String::as_str)
    }

    /// The release as a part of paths.
    pub(crate) fn release_in_paths(&self) -> Result<&str, &str> {
        let release = &self.release()?.value;
        if release.contains('/') || release.starts_with('.') {
            return Err("the name of the kernel's release cannot be part of a path");
        }
        Ok(release)
    }

    /// The configuration of the running kernel: what it carries itself, else the file that is
    /// named after exactly its release. Any other configuration lying around is of another
    /// kernel.
    pub(crate) fn config(&self) -> Result<&Fact<Config>, &str> {
        self.config.get_or_init(|| self.read_config()).as_ref().map_err(String::as_str)
    }

    fn read_config(&self) -> Result<Fact<Config>, String> {
        let mut tried = Vec::new();
        let mut read = |path: &str| match self.root.load(path, config::LIMIT) {
            Ok(bytes) => match Config::read(&bytes) {
                Ok(config) => Some(Fact::from_file(config, path)),
                Err(error) => {
                    tried.push(format!("{path} is no configuration: {error}"));
                    None
                }
            },
            Err(NotRead::Missing) => None,
            Err(why) => {
                self.root.note(path, &why);
                tried.push(why.about(path));
                None
            }
        };
        let own = "/proc/config.gz";
        if let Some(config) = read(own) {
            return Ok(config);
        }
        let release = self.release_in_paths().map_err(|why| {
            format!(
                "there is no {own}, and without a release no other file is known to be right: {why}"
            )
        })?;
        if let Some(why) = &self.evidence().image_files {
            return Err(format!("there is no {own}, and other files are not the host's: {why}"));
        }
        let paths = config::paths(release);
        match paths.iter().find_map(|path| read(path)) {
            Some(config) => Ok(config),
            None if tried.is_empty() => Err(format!(
                "there is neither {own} nor a configuration of exactly {release} in /boot, \
                 /usr/lib or /usr/src"
            )),
            None => Err(tried.join("; ")),
        }
    }

    /// The last value of the boot parameter `key`, if it has one. A copy without the file has no
    /// parameters; of one that is there and cannot be read nobody knows.
    pub(crate) fn boot_parameter(&self, key: &str) -> Result<Option<Fact<String>>, NotRead> {
        let line = match self.read_cmdline() {
            Err(NotRead::Missing) => return Ok(None),
            read => read?,
        };
        let mut parameters = cmdline::parse(&line).into_iter().rev();
        let value =
            parameters.find_map(|(name, value)| value.filter(|_| same_but_for_dashes(&name, key)));
        Ok(value.map(|value| Fact::from_file(value, CMDLINE)))
    }

    /// The boot parameters as the kernel tells them, or why they are not known. Those of a
    /// boot configuration are among them: the kernel puts them there.
    pub(crate) fn cmdline(&self) -> Result<String, String> {
        self.read_cmdline().map_err(|why| why.about(CMDLINE))
    }

    fn read_cmdline(&self) -> Result<String, NotRead> {
        let line = self.root.text(CMDLINE, CMDLINE_LIMIT);
        line.inspect_err(|why| self.root.note(CMDLINE, why))
    }
}

/// Major and minor version of a release.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
