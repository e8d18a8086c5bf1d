//! Landlock: only what is named can be opened, and nothing can be changed.

use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// What is asked for; older kernels enforce the part that they know. Before V3 a file could still
/// be cut short and before V6 a signal be sent, which is why the filter of system calls refuses
/// both as well.
const WANTED: ABI = ABI::V6;

/// Whether the kernel enforces it.
pub(super) fn restrict(read: &[PathBuf], execute: &[PathBuf]) -> Result<bool, RulesetError> {
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        // No port is named later, so none may be used.
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .add_rules(path_beneath_rules(read, reading))?
        .add_rules(path_beneath_rules(execute, reading | AccessFs::Execute))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
