//! Which kind of node this is: from what runs, then from what is there, always in the same order.

use super::{Daemon, PRESETS, Preset, daemons, named};
use crate::node::exec::Context;
use crate::node::root::HostRoot;

/// What a person says about a node; it is believed.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// The configuration.
    pub config: Option<String>,
    /// The preset.
    pub distro: Option<String>,
}

/// A node, as far as it matters here.
#[derive(Debug, Clone)]
pub struct Site {
    /// Its kind.
    pub preset: &'static Preset,
    /// The configuration that is edited, or rendered.
    pub config: String,
    /// The running daemon.
    pub daemon: Option<Daemon>,
    /// Where the runtime's program is, as the host names it.
    pub program: Option<String>,
}

impl Site {
    /// Whether a runtime may be running with this configuration: on a mere tree of files, none does.
    pub(crate) fn may_run(&self, root: &HostRoot, context: &Context) -> bool {
        context.is_host() || self.daemon.is_some() || root.has(self.preset.socket)
    }
}

/// Why nothing can be done on a node.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// A preset that there is not.
    #[error("there is no preset {name}; there are {}", names())]
    UnknownPreset {
        /// As it was given.
        name: String,
    },
    /// No containerd.
    #[error(
        "no containerd was found: none runs, and none of {} is there; if it is elsewhere, give --config, or the controller --shim-config",
        tried()
    )]
    NotFound,
    /// A system whose files are not to be changed.
    #[error("this node runs {os}, whose system cannot be changed: {advice}")]
    Immutable {
        /// Its name.
        os: &'static str,
        /// What to do.
        advice: &'static str,
    },
}

fn names() -> String {
    let names: Vec<_> =
        PRESETS.iter().map(|preset| preset.name).chain(["kubeadm", "custom"]).collect();
    names.join(", ")
}

fn tried() -> String {
    let paths: Vec<_> = PRESETS.iter().map(|preset| preset.marker).collect();
    paths.join(", ")
}

/// Systems that take no binaries from outside.
const IMMUTABLE: &[(&str, &str, &str)] = &[
    ("talos", "Talos", "add the shim as a system extension of its image"),
    ("bottlerocket", "Bottlerocket", "its containerd is configured by its own settings alone"),
];

/// Looks at a host.
///
/// # Errors
/// See [`DetectError`].
pub fn detect(root: &HostRoot, overrides: &Overrides) -> Result<Site, DetectError> {
    refuse_immutable(root)?;
    let running = daemons(root.dir());
    let (preset, config, daemon) = match overrides {
        Overrides { distro: Some(name), config } => {
            let unknown = || DetectError::UnknownPreset { name: name.chars().take(40).collect() };
            let preset = named(name).ok_or_else(unknown)?;
            let config = config.clone().unwrap_or_else(|| preset.config.to_owned());
            let daemon = running_for(&running, preset, &config);
            (preset, config, daemon)
        }
        Overrides { config: Some(path), distro: None } => {
            let preset = by_config(path);
            let daemon = running_for(&running, preset, path);
            (preset, path.clone(), daemon)
        }
        Overrides { config: None, distro: None } => from_running(root, &running)
            .or_else(|| from_files(root))
            .ok_or(DetectError::NotFound)?,
    };
    let program = program(root, preset, daemon.as_ref());
    Ok(Site { preset, config, daemon, program })
}

fn refuse_immutable(root: &HostRoot) -> Result<(), DetectError> {
    let release = root
        .read("/etc/os-release", 64 << 10)
        .ok()
        .flatten()
        .or_else(|| root.read("/usr/lib/os-release", 64 << 10).ok().flatten());
    let release = String::from_utf8_lossy(&release.unwrap_or_default()).into_owned();
    let id = release.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or_default();
    let id = id.trim().trim_matches('"');
    match IMMUTABLE.iter().find(|(immutable, ..)| *immutable == id) {
        Some((_, os, advice)) => Err(DetectError::Immutable { os, advice }),
        None => Ok(()),
    }
}

/// The preset whose configuration this is; a path that nobody knows is the usual kind at another place.
fn by_config(path: &str) -> &'static Preset {
    // Several kinds have the usual file, and it says nothing of which.
    if path.starts_with(usual().daemon_config) {
        return usual();
    }
    let known = PRESETS
        .iter()
        .find(|preset| preset.config == path || path.starts_with(preset.daemon_config));
    known.unwrap_or_else(usual)
}

fn usual() -> &'static Preset {
    PRESETS.last().expect("the table is not empty")
}

/// The daemon that reads this configuration; where its configuration is made from it, one of that kind.
pub(crate) fn running_for(running: &[Daemon], preset: &Preset, config: &str) -> Option<Daemon> {
    let started_with =
        |daemon: &Daemon| daemon.config.clone().unwrap_or_else(|| usual().config.to_owned());
    let exact = running.iter().find(|daemon| started_with(daemon) == config);
    let made =
        || running.iter().find(|daemon| started_with(daemon).starts_with(preset.daemon_config));
    let same_file = preset.config == usual().config;
    exact.or_else(|| if same_file { None } else { made() }).cloned()
}

/// All that do.
pub(crate) fn running_all<'a>(
    running: &'a [Daemon],
    preset: &Preset,
    config: &str,
) -> Vec<&'a Daemon> {
    let reads =
        |daemon: &&Daemon| running_for(std::slice::from_ref(*daemon), preset, config).is_some();
    running.iter().filter(reads).collect()
}

type Found = (&'static Preset, String, Option<Daemon>);

/// The daemon that runs pods. Where there are several, the special kinds come first, as in the table.
fn from_running(root: &HostRoot, running: &[Daemon]) -> Option<Found> {
    let rank = |daemon: &&Daemon| {
        let path = daemon.config.as_deref().unwrap_or_else(|| usual().config);
        let known = PRESETS.iter().position(|preset| path.starts_with(preset.daemon_config));
        (known.unwrap_or(PRESETS.len()), daemon.pid)
    };
    let daemon = running.iter().min_by_key(rank)?;
    let path = daemon.config.clone().unwrap_or_else(|| usual().config.to_owned());
    let preset = by_config(&path);
    // What the daemon reads is made from the file of the preset, except for the usual kinds.
    let same = preset.config == usual().config;
    let marked = PRESETS.iter().find(|p| p.config == usual().config && root.has(p.marker));
    let preset = if same { marked.unwrap_or(preset) } else { preset };
    let config = if same { path } else { preset.config.to_owned() };
    Some((preset, config, Some(daemon.clone())))
}

/// Nothing runs, or it cannot be seen: what is there.
fn from_files(root: &HostRoot) -> Option<Found> {
    let marked = PRESETS.iter().find(|preset| root.has(preset.marker));
    // containerd runs without any configuration, too.
    let built_in = || usual().programs.iter().any(|path| root.has(path)).then(usual);
    let preset = marked.or_else(built_in)?;
    Some((preset, preset.config.to_owned(), None))
}

/// The runtime's program, which is run as root: so nobody else may be able to change it.
fn program(root: &HostRoot, preset: &Preset, daemon: Option<&Daemon>) -> Option<String> {
    let named = daemon.and_then(|daemon| daemon.program.clone());
    let usual = preset.programs.iter().map(|path| (*path).to_owned());
    named.into_iter().chain(usual).find(|path| root.is_roots_alone(path))
}
