//! The papers of the house, as tests: links that lead somewhere, a reference of every resource, queries that ask for what is
//! counted.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod crds;
mod index;
mod links;
mod monitoring;
#[path = "../reference/page.rs"]
mod page;
mod promql;
mod source;

/// Every Markdown file that is or will be checked in, by its path from the root.
fn papers() -> Vec<String> {
    let output = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(page::root())
        .output()
        .expect("git runs");
    // A list that git would not give must not pass for one without faults.
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names are text");
    let there = names.lines().filter(|name| page::root().join(name).exists());
    there.map(str::to_owned).collect()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(page::root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}
