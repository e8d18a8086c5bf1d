//! Whether an image's needs are looked at before it is started.

use std::path::PathBuf;

use portolan_compat::external::DEFAULT_DIRECTORY;
use portolan_compat::external::policy::DEFAULT_POLICY;
use serde::{Deserialize, Serialize};

/// `[compatibility]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompatibilityConfig {
    /// What is done about an image whose needs are not met: `"off"`.
    pub mode: CompatibilityMode,
    /// Who must meet them: `"guest"`.
    pub of: CompatibilityOf,
    /// Where the host's own root is, for an agent in a container; not set: `/`.
    pub host_root: Option<PathBuf>,
    /// Who may provide plugins that are not built in; none may where this file is not there:
    /// `/etc/oci/image-compatibility/policy.json`.
    pub plugin_policy: PathBuf,
    /// Where plugins are installed, and fetched ones kept: `/opt/oci/image-compatibility`.
    pub plugin_dir: PathBuf,
}

impl Default for CompatibilityConfig {
    fn default() -> Self {
        Self {
            mode: CompatibilityMode::default(),
            of: CompatibilityOf::default(),
            host_root: None,
            plugin_policy: DEFAULT_POLICY.into(),
            plugin_dir: DEFAULT_DIRECTORY.into(),
        }
    }
}

/// What is done about an image whose needs are not met, or perhaps not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompatibilityMode {
    /// Nobody looks.
    #[default]
    Off,
    /// It is started, and the log says so.
    Warn,
    /// It is not started.
    Enforce,
}

/// Who must meet an image's needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompatibilityOf {
    /// The machine that the image runs in: its kernel, its modules, and the host's processor.
    #[default]
    Guest,
    /// The machine that this agent runs on.
    Host,
}
