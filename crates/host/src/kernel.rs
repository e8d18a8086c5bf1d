//! What the kernel was built and booted with.

use std::io::Read;

use crate::fact::Fact;
use crate::root::Root;

/// No kernel's configuration is longer, and a small file may inflate to anything.
const CONFIG_LIMIT: u64 = 4 << 20;

/// Far longer than the kernel's own bound.
const CMDLINE_LIMIT: u64 = 64 << 10;

/// The lines `CONFIG_X=value` and `# CONFIG_X is not set`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config(String);

/// What the configuration says of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting<'a> {
    /// `y`, `m`, a number or a text, as written.
    Value(&'a str),
    /// Explicitly off.
    NotSet,
    /// Not mentioned: this kernel does not know the option, or its needs are not met.
    Absent,
}

impl Config {
    /// Takes the text of a configuration.
    pub fn parse(text: String) -> Self {
        Self(text)
    }

    /// What it says of `option`, written without `CONFIG_`.
    pub fn get(&self, option: &str) -> Setting<'_> {
        for line in self.0.lines() {
            if let Some(rest) = line.strip_prefix("CONFIG_").and_then(|l| l.strip_prefix(option)) {
                if let Some(value) = rest.strip_prefix('=') {
                    return Setting::Value(value.trim());
                }
            } else if let Some(rest) =
                line.strip_prefix("# CONFIG_").and_then(|l| l.strip_prefix(option))
                && rest.trim_end() == " is not set"
            {
                return Setting::NotSet;
            }
        }
        Setting::Absent
    }

    /// Whether a yes-or-no option is on. One that is not mentioned is off: it cannot be on.
    pub fn is_on(&self, option: &str) -> bool {
        matches!(self.get(option), Setting::Value("y"))
    }
}

/// The release of the running kernel, such as `6.1.0-54-cloud-amd64`.
pub(crate) fn release(root: &Root) -> Option<Fact<String>> {
    let path = "/proc/sys/kernel/osrelease";
    let release = root.read_text(path, 256)?;
    (!release.is_empty()).then(|| Fact::from_file(release, path))
}

/// The configuration of the running kernel: what it carries itself, else the file that is named
/// after exactly its release. Any other configuration lying around is of another kernel.
pub(crate) fn config(root: &Root) -> Option<Fact<Config>> {
    let own = "/proc/config.gz";
    if let Some(text) = root.read(own, CONFIG_LIMIT).and_then(|bytes| inflate(&bytes)) {
        return Some(Fact::from_file(Config(text), own));
    }
    let release = release(root)?.value;
    // It becomes part of a path.
    if release.contains('/') || release.starts_with('.') {
        return None;
    }
    let paths = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        format!("/lib/modules/{release}/build/.config"),
        format!("/usr/lib/ostree-boot/config-{release}"),
        format!("/usr/lib/kernel/config-{release}"),
    ];
    paths.into_iter().find_map(|path| {
        let text = root.read_text(&path, CONFIG_LIMIT)?;
        text.contains("CONFIG_").then(|| Fact::from_file(Config(text), path))
    })
}

fn inflate(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    let reader = flate2::read::GzDecoder::new(bytes);
    reader.take(CONFIG_LIMIT).read_to_string(&mut text).ok()?;
    text.contains("CONFIG_").then_some(text)
}

/// The last value of the boot parameter `key`; what follows `--` is for the first program.
pub(crate) fn boot_parameter(root: &Root, key: &str) -> Option<Fact<String>> {
    let path = "/proc/cmdline";
    let cmdline = root.read_text(path, CMDLINE_LIMIT)?;
    let value = cmdline
        .split_whitespace()
        .take_while(|word| *word != "--")
        .filter_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        .last()?;
    Some(Fact::from_file(value.to_owned(), path))
}

/// Major and minor version of a release.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
