//! Pages below `docs/reference` that are rendered from the code and checked in.
//!
//! Who knows the types renders its pages, in a test; this file and its siblings are therefore part of several
//! test programs. `cargo xtask docs` runs those tests so that they write first.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Set by `cargo xtask docs`: pages are written before they are compared.
const UPDATE: &str = "PORTOLAN_UPDATE_REFERENCE";

/// The first line of each, so that nobody edits one by hand.
pub(crate) const MARK: &str = "<!-- Written by `cargo xtask docs`; a test compares it. -->\n\n";

/// The repository's root, from whichever crate this is compiled into.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.ancestors().find(|dir| dir.join("ARCHITECTURE.md").exists());
    root.expect("crates are below the repository's root").to_owned()
}

/// Holds pages against those that are checked in. `owned` says which files of the folder are the caller's: one that
/// nothing renders any more must go.
pub(crate) fn settle(folder: &str, pages: &BTreeMap<String, String>, owned: impl Fn(&str) -> bool) {
    let dir = root().join("docs/reference").join(folder);
    let update = std::env::var_os(UPDATE).is_some();
    if update {
        std::fs::create_dir_all(&dir).expect("the folder can be made");
    }
    let listed = std::fs::read_dir(&dir).map(|entries| {
        let names = entries.map(|entry| entry.expect("the folder can be listed").file_name());
        names.filter_map(|name| name.into_string().ok()).collect::<BTreeSet<String>>()
    });
    let there = listed.unwrap_or_default();
    let mut wrong: Vec<&String> = Vec::new();
    for (name, page) in pages {
        let path = dir.join(name);
        if update {
            std::fs::write(&path, page).expect("a page can be written");
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != *page {
            wrong.push(name);
        }
    }
    for name in there.iter().filter(|name| owned(name) && !pages.contains_key(*name)) {
        match update {
            true => std::fs::remove_file(dir.join(name)).expect("an old page can be removed"),
            false => wrong.push(name),
        }
    }
    assert!(!pages.is_empty(), "nothing was rendered for {folder}");
    assert!(wrong.is_empty(), "docs/reference/{folder} is old; run cargo xtask docs: {wrong:?}");
}

/// A text in a cell of a table: on one line, and without what would end the cell or begin HTML.
pub(crate) fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    outside_code(&line.replace('|', "\\|"))
}

/// Angle brackets as they are meant: in code they stay, elsewhere they would be HTML.
pub(crate) fn outside_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts =
        parts.map(|(n, part)| if n % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("`")
}
