//! Whether an image's signatures are looked at before it is started.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[verification]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VerificationConfig {
    /// Who must have signed what, as `portolan verify` reads it; not set: nobody looks.
    pub policy: Option<PathBuf>,
    /// What is done about an image that does not pass: `"enforce"`.
    pub mode: VerificationMode,
}

/// What is done about an image that does not pass, or of which that cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerificationMode {
    /// It is not started.
    #[default]
    Enforce,
    /// It is started, and the log says so.
    Report,
}
