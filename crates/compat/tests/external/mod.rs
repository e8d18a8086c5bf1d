//! What the tests of external plugins share.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

#[path = "../../../registry/tests/common/skip.rs"]
pub(crate) mod skip;

mod naughty;

use std::path::PathBuf;

use portolan_compat::external::Runner;
use portolan_compat::external::sandbox::Strictness;

pub(crate) use naughty::naughty;

/// Runs plugins with the helper of this build.
pub(crate) fn runner() -> Runner {
    Runner {
        helper: PathBuf::from(env!("CARGO_BIN_EXE_portolan-plugin-sandbox")),
        strictness: Strictness::Required,
        ..Runner::default()
    }
}

/// A test that needs the naughty program, or says that it cannot run.
#[macro_export]
macro_rules! need_naughty {
    () => {
        match external::naughty() {
            Some(path) => path,
            None => return external::skip::skip("no C compiler that links statically"),
        }
    };
}
