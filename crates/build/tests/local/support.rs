//! The registry that fails on command, and the images it is asked for.
#![allow(dead_code, unreachable_pub, reason = "only a part of it is used here")]

#[path = "../../../registry/tests/support/fault/mod.rs"]
pub mod fault;
#[path = "../../../registry/tests/support/image.rs"]
pub mod image;
