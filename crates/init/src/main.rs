//! `portolan-init`: what a microVM runs first.

fn main() {}
