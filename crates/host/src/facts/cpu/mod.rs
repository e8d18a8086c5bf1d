//! The processor.

pub(crate) mod cpuid;
pub mod flags;
pub(crate) mod model;
pub(crate) mod power;
pub(crate) mod rdt;
pub(crate) mod security;
pub(crate) mod topology;
mod x86;
