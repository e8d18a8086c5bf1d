//! `cargo xtask crds`: writes `deploy/crds`, through the test that compares it.

use anyhow::Result;

pub(crate) fn run() -> Result<()> {
    crate::schemas::write("portolan-api")
}
