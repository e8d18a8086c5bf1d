//! `cargo xtask crds` and `cargo xtask chart`: write `deploy/crds` and `deploy/chart`, which holds them too, through the
//! tests that compare them.

use anyhow::Result;

pub(crate) fn run() -> Result<()> {
    crate::schemas::write("portolan-api")
}
