//! Where a real part is that `cargo xtask test` finds or installs.

use std::path::PathBuf;

use super::skip::skip;

/// The program called `name`, or none, with the skip noted, where it cannot be had.
pub(crate) fn part(name: &str) -> Option<PathBuf> {
    let variable = format!("PORTOLAN_PART_{}", name.to_uppercase().replace('-', "_"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::var_os(variable).map(PathBuf::from).or_else(|| {
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
    });
    if found.is_none() {
        skip(&format!("{name} is not installed"));
    }
    found
}
