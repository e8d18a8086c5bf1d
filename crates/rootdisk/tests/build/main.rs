//! Layers to disks: what is built, that it is always the same, and what happens when it cannot be.

#[path = "../ext4_support/mod.rs"]
mod ext4_support;
#[path = "../support/mod.rs"]
mod support;

#[path = "support.rs"]
mod images;

mod disks;
mod faults;
mod layers;
mod verity;
