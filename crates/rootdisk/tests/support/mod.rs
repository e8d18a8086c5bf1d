//! What the tests of this crate share; tests of other crates include single files by `#[path]`.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod model;
pub(crate) mod pack;
pub(crate) mod tarball;
