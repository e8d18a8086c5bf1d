//! What the agent wrote into the initramfs for this one start.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use crate::step::{Failed, Step as _};

/// The agent writes it, but a bound costs nothing: argv and environment are limited by the kernel
/// to 2 MiB, JSON may double that.
const MAX_CONFIG_BYTES: u64 = 8 << 20;

/// How a workload is started. The agent's `guest::config` writes this form, and one file in
/// `fixtures/` holds both sides to it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// In every line for the agent.
    pub(crate) token: String,
    /// Kernel modules to load, in this order; paths in the initramfs.
    pub(crate) modules: Vec<String>,
    /// How the machine is switched off.
    pub(crate) end: End,
    /// Only tell that the machine boots, and end.
    pub(crate) probe: bool,
    /// The UUID of the root disk's file system, 32 hex digits.
    pub(crate) root_uuid: String,
    /// The UUID of the scratch disk's file system.
    pub(crate) scratch_uuid: String,
    /// The machine's name.
    pub(crate) hostname: String,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// `NAME=value`; a later one wins.
    pub(crate) env: Vec<String>,
    /// Where it starts; created where missing.
    pub(crate) cwd: String,
    /// As in the image's configuration: empty, or name or number, with `:group` or without.
    pub(crate) user: String,
    /// The signal that asks the workload to end; empty for SIGTERM.
    pub(crate) stop_signal: String,
}

/// How the machine is switched off so that its VMM ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// ACPI or PSCI.
    PowerOff,
    /// A reset: what Firecracker on x86 takes for the end.
    Restart,
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Self, Failed> {
        let what = path.display();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes))
            .step("read", what)?;
        if bytes.len() as u64 > MAX_CONFIG_BYTES {
            return Err(Failed::new(format!("read {}", path.display()), "it is too large"));
        }
        serde_json::from_slice(&bytes).step("understand", path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_agent_writes_is_understood() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/guest-config.json");
        let config = Config::read(&path).unwrap();
        assert_eq!(config.argv, ["/bin/server", "--port", "80"]);
        assert_eq!((config.end, config.probe), (End::Restart, false));
        assert_eq!(config.env, ["PATH=/bin", "GREETING=hello"]);
    }

    #[test]
    fn a_config_that_is_none_is_told_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let missing = Config::read(&path).unwrap_err().to_string();
        assert!(missing.contains("read") && missing.contains("config.json"), "{missing}");
        std::fs::write(&path, "{}").unwrap();
        assert!(Config::read(&path).unwrap_err().to_string().contains("understand"));
    }
}
