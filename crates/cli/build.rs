//! How the program is linked.

/// A release for Linux is linked for a fixed address: no pointer has to be set right at its start.
/// There are 40,000 of them on 170 pages, each of which would be copied, and most commands are
/// over in milliseconds (docs/decisions/0007-a-check-in-milliseconds.md).
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
