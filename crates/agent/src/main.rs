//! `portolan-agent`: fetch, verify, cache, boot.

fn main() {}
