//! What the operator sets, from one TOML file. Every key has a default, an unknown key is refused
//! with its line, and what cannot work is refused when the file is read, not at the first start.

mod compatibility;
mod network;
mod prefetch;
mod values;
mod verification;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use portolan_registry::serving::program::{self, Configuration};
pub use portolan_registry::serving::program::{ConfigError, Span};
use portolan_rootdisk::limits::Limits;
use serde::{Deserialize, Serialize};

pub use compatibility::{CompatibilityConfig, CompatibilityMode, CompatibilityOf};
pub use network::{ApiConfig, MirrorConfig, Mode, NodeConfig, ReportConfig};
pub use prefetch::PrefetchConfig;
pub use values::{Percent, Size};
pub use verification::{VerificationConfig, VerificationMode};

use crate::guest::GuestConfig;
use crate::vmm::VmmConfig;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Everything the agent keeps. `/var/lib/portolan`, or for another user than root
    /// `$XDG_DATA_HOME/portolan` (`~/.local/share/portolan`).
    pub root: PathBuf,
    /// Where the API listens; `agent.sock` in the root when not set.
    pub socket: Option<PathBuf>,
    /// Answer `/healthz`, `/readyz` and `/metrics` here, to everybody and nothing else; not set: only on the socket.
    pub health: Option<SocketAddr>,
    /// `registries.toml` with TLS, mirrors and deadlines; not set: where the command line looks.
    pub registries: Option<PathBuf>,
    /// A file of registry credentials in docker's form; not set: where the command line looks.
    pub credentials: Option<PathBuf>,
    /// `[cache]`
    pub cache: CacheConfig,
    /// `[pull]`
    pub pull: PullConfig,
    /// `[rootdisk]`
    pub rootdisk: RootdiskConfig,
    /// `[guest]`
    pub guest: GuestConfig,
    /// `[vmm]`
    pub vmm: VmmConfig,
    /// `[api]`
    pub api: ApiConfig,
    /// `[mirror]`
    pub mirror: MirrorConfig,
    /// `[report]`
    pub report: ReportConfig,
    /// `[prefetch]`
    pub prefetch: PrefetchConfig,
    /// `[compatibility]`
    pub compatibility: CompatibilityConfig,
    /// `[verification]`
    pub verification: VerificationConfig,
}

/// How much is kept, and for how long.
///
/// Above a high-water mark the least recently used goes until the target is reached. The marks in
/// bytes count what the cache itself takes; the marks in percent count what anybody takes of its
/// file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Evict down to this; not set: no bound in bytes.
    pub target_bytes: Option<Size>,
    /// Evict from here on; not set: `target_bytes`.
    pub high_water_bytes: Option<Size>,
    /// Evict down to this share of the file system: 80.
    pub target_percent: Percent,
    /// Evict from here on: 90. Where evicting cannot get below it, new builds are refused.
    pub high_water_percent: Percent,
    /// Keep the layers' blobs after a build: true. They make another build cheap and can be
    /// served to other hosts; they are the first to go when room is needed.
    pub keep_blobs: bool,
    /// What was used within this time is not evicted unless a start needs the room: `"2m"`.
    pub min_age: Span,
    /// How often the marks are looked at: `"1m"`.
    pub check_interval: Span,
    /// For how long there must be room until a node is told that pressure is over: `"1m"`.
    pub settle: Span,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            target_bytes: None,
            high_water_bytes: None,
            target_percent: Percent::new(80),
            high_water_percent: Percent::new(90),
            keep_blobs: true,
            min_age: Span::seconds(120),
            check_interval: Span::seconds(60),
            settle: Span::seconds(60),
        }
    }
}

/// How images are fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PullConfig {
    /// For one image with all its layers, repetitions and waits: `"30m"`.
    pub timeout: Span,
    /// How often a pull that failed in transport is begun again: 3. What has arrived is kept.
    /// Each request has repetitions of its own below this (`retries` in registries.toml).
    pub retries: u32,
    /// The wait before the first repetition; it doubles each time: `"1s"`.
    pub backoff: Span,
    /// Images built at a time: 2. Each uses all processors by itself.
    pub concurrency: NonZeroUsize,
}

impl Default for PullConfig {
    fn default() -> Self {
        Self {
            timeout: Span::seconds(30 * 60),
            retries: 3,
            backoff: Span::seconds(1),
            concurrency: NonZeroUsize::new(2).expect("2 is not 0"),
        }
    }
}

/// How root disks are made. Disks that are there already stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RootdiskConfig {
    /// The smallest virtual size: `"512MiB"`.
    pub min_size: Size,
    /// How much larger than its content a disk is, in percent: 20.
    pub headroom_percent: u32,
    /// How much a disk is taken to need before it is built, in percent of its compressed layers:
    /// 300. Images that were measured took 255 to 303 of 100. Only used to make room in advance;
    /// a disk that needs more gets it where it can be had.
    pub expansion_percent: u32,
    /// A dm-verity hash tree behind each disk: false.
    pub verity: bool,
    /// Threads of one build; not set: by the number of processors.
    pub threads: Option<NonZeroUsize>,
    /// Write past the page cache where the file system allows it: true.
    pub direct_io: bool,
    /// How much a stranger's image may ask for: `[rootdisk.limits]`.
    pub limits: Limits,
}

impl Default for RootdiskConfig {
    fn default() -> Self {
        Self {
            min_size: Size(512 << 20),
            headroom_percent: 20,
            expansion_percent: 300,
            verity: false,
            threads: None,
            direct_io: true,
            limits: Limits::default(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            root: default_root(rustix::process::geteuid().is_root(), |name| {
                std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
            }),
            socket: None,
            health: None,
            registries: None,
            credentials: None,
            cache: CacheConfig::default(),
            pull: PullConfig::default(),
            rootdisk: RootdiskConfig::default(),
            guest: GuestConfig::default(),
            vmm: VmmConfig::default(),
            api: ApiConfig::default(),
            mirror: MirrorConfig::default(),
            report: ReportConfig::default(),
            prefetch: PrefetchConfig::default(),
            compatibility: CompatibilityConfig::default(),
            verification: VerificationConfig::default(),
        }
    }
}

/// The system's directory for root, the user's own for everybody else.
fn default_root(is_root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let system = PathBuf::from("/var/lib/portolan");
    if is_root {
        return system;
    }
    // A relative XDG directory is invalid by its specification and must be ignored.
    let data = variable("XDG_DATA_HOME").filter(|dir| dir.is_absolute());
    let data = data.or_else(|| variable("HOME").map(|home| home.join(".local/share")));
    data.map_or(system, |dir| dir.join("portolan"))
}

impl Configuration for Config {
    const ADVICE: &'static str = "give a file that exists, or none for the defaults";

    fn contradiction(&self) -> Option<&'static str> {
        self.contradictory()
    }
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        program::load(path)
    }

    /// Reads a text; `path` is where it came from, for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        program::parse(text, path)
    }

    /// Where the API listens.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.root.join("agent.sock"))
    }

    fn contradictory(&self) -> Option<&'static str> {
        let Self { root, cache, pull, rootdisk, .. } = self;
        if !root.is_absolute() {
            return Some("root must be an absolute path");
        }
        match (cache.target_bytes, cache.high_water_bytes) {
            (None, Some(_)) => {
                return Some("cache.high_water_bytes needs cache.target_bytes to evict down to");
            }
            (Some(target), Some(high)) if target > high => {
                return Some("cache.target_bytes must not be above cache.high_water_bytes");
            }
            _ => {}
        }
        if cache.target_percent > cache.high_water_percent {
            return Some("cache.target_percent must not be above cache.high_water_percent");
        }
        if cache.check_interval.0.is_zero() || pull.timeout.0.is_zero() {
            return Some("cache.check_interval and pull.timeout must not be zero");
        }
        if pull.retries > 100 || pull.concurrency.get() > 64 {
            return Some("pull.retries is at most 100, pull.concurrency at most 64");
        }
        if rootdisk.headroom_percent > 1000 {
            return Some("rootdisk.headroom_percent is at most 1000");
        }
        if !(100..=10_000).contains(&rootdisk.expansion_percent) {
            return Some("rootdisk.expansion_percent is 100 to 10000");
        }
        let prefetch = self.prefetch.contradiction();
        prefetch.or_else(|| network::contradiction(&self.api, &self.mirror, &self.report))
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("agent.toml"))
    }

    #[test]
    fn nothing_written_is_all_defaults_and_the_defaults_can_be_written() {
        let config = parse("").unwrap();
        assert_eq!(config, Config::default());
        let text = toml::to_string(&config).unwrap();
        assert_eq!(parse(&text).unwrap(), config);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = parse("[cache]\nkeep_blobs = false\ntarget_byts = 7\n").unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("line 3") && cause.contains("target_byts"), "{cause}");
        let error = parse("[cache]\nmin_age = \"soon\"").unwrap_err();
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("line 2") && cause.contains("a time is"), "{cause}");
        assert!(error.to_string().contains("agent.toml"), "{error}");
    }

    #[test]
    fn values_that_do_not_go_together_are_refused() {
        for text in [
            "root = \"relative\"",
            "[cache]\ntarget_bytes = 2\nhigh_water_bytes = 1",
            "[cache]\nhigh_water_bytes = 1",
            "[cache]\ntarget_percent = 95",
            "[cache]\ncheck_interval = 0",
            "[pull]\ntimeout = 0",
            "[pull]\nretries = 1000",
            "[rootdisk]\nheadroom_percent = 5000",
            "[rootdisk]\nexpansion_percent = 50",
        ] {
            assert!(matches!(parse(text), Err(ConfigError::Contradiction { .. })), "{text}");
        }
        assert!(matches!(parse("[pull]\nconcurrency = 0"), Err(ConfigError::Parse { .. })));
        let set = parse("[cache]\ntarget_bytes = \"10GiB\"\nhigh_water_bytes = \"12GiB\"").unwrap();
        assert_eq!(set.cache.high_water_bytes, Some(Size(12 << 30)));
    }

    #[test]
    fn who_is_not_root_keeps_it_in_the_data_directory() {
        let root = |is_root, xdg: Option<&str>, home: Option<&str>| {
            default_root(is_root, |name| match name {
                "XDG_DATA_HOME" => xdg.map(PathBuf::from),
                _ => home.map(PathBuf::from),
            })
        };
        assert_eq!(root(true, Some("/d"), Some("/h")), Path::new("/var/lib/portolan"));
        assert_eq!(root(false, Some("/d"), Some("/h")), Path::new("/d/portolan"));
        assert_eq!(root(false, Some("d"), Some("/h")), Path::new("/h/.local/share/portolan"));
        assert_eq!(root(false, None, None), Path::new("/var/lib/portolan"));
    }

    #[test]
    fn a_file_that_is_not_there_is_said_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.toml");
        assert!(matches!(Config::load(&path), Err(ConfigError::Missing { .. })));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Config::load(&path), Err(ConfigError::NotText { .. })));
        std::fs::write(&path, "socket = \"/run/x.sock\"").unwrap();
        assert_eq!(Config::load(&path).unwrap().socket(), Path::new("/run/x.sock"));
    }
}
