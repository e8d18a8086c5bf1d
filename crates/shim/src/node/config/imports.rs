//! The files that containerd would load, in its order.

use std::collections::{BTreeSet, VecDeque};

use globset::GlobBuilder;
use toml_edit::Document;

use super::{ConfigError, MAX_FILE, Version, parse};
use crate::node::root::{HostRoot, plain};

/// More than any node imports.
const MAX_FILES: usize = 64;

/// A file of the configuration.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// As the host names it.
    pub path: String,
    /// As it is.
    pub text: String,
    /// As TOML.
    pub document: Document<String>,
    /// Its version.
    pub version: Version,
    /// Its imports, as patterns of absolute paths.
    pub imports: Vec<String>,
}

/// Reads `main` and all that it imports; empty where there is no `main`.
///
/// # Errors
/// A file that is there cannot be read or understood.
pub fn load(root: &HostRoot, main: &str) -> Result<Vec<Loaded>, ConfigError> {
    let mut loaded = Vec::new();
    let mut seen = BTreeSet::new();
    let mut todo = VecDeque::from([main.to_owned()]);
    while let Some(path) = todo.pop_front() {
        if !seen.insert(path.clone()) {
            continue;
        }
        if loaded.len() == MAX_FILES {
            return Err(ConfigError::Imports { path: main.to_owned(), limit: MAX_FILES });
        }
        let Some(file) = read(root, &path)? else { continue };
        todo.extend(file.imports.iter().flat_map(|pattern| expand(root, pattern)));
        loaded.push(file);
    }
    Ok(loaded)
}

/// One file; none where there is none.
pub(super) fn read(root: &HostRoot, path: &str) -> Result<Option<Loaded>, ConfigError> {
    let Some(bytes) = root.read(path, MAX_FILE)? else { return Ok(None) };
    let path = path.to_owned();
    let text = String::from_utf8(bytes).map_err(|_| ConfigError::NotText { path: path.clone() })?;
    let document = parse(&path, &text)?;
    let version = Version::of(&path, &document)?;
    let imports = patterns(&path, &document);
    Ok(Some(Loaded { path, text, document, version, imports }))
}

/// What a file says it imports, relative paths made absolute and all of them plain.
fn patterns(path: &str, document: &Document<String>) -> Vec<String> {
    let listed = document.get("imports").and_then(|item| item.as_array());
    let texts = listed.into_iter().flatten().filter_map(|value| value.as_str());
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    texts
        .map(|text| {
            // One file must not have two names here: what is written by one would be looked for by the other.
            if text.starts_with('/') { plain(text) } else { plain(&format!("{dir}/{text}")) }
        })
        .collect()
}

/// The files of the host that a pattern names, in order. Only `*` makes a pattern, as containerd has it.
fn expand(root: &HostRoot, pattern: &str) -> Vec<String> {
    if !pattern.contains('*') {
        return vec![pattern.to_owned()];
    }
    let mut found = vec![String::new()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|dir| step(root, dir, part)).collect();
    }
    found
}

fn step(root: &HostRoot, dir: &str, part: &str) -> Vec<String> {
    if !part.contains(['*', '?', '[']) {
        return vec![format!("{dir}/{part}")];
    }
    let Some(matcher) = matcher(part) else { return Vec::new() };
    let names = root.names(dir).into_iter().filter(|name| matcher.is_match(name));
    names.map(|name| format!("{dir}/{name}")).collect()
}

fn matcher(part: &str) -> Option<globset::GlobMatcher> {
    Some(GlobBuilder::new(part).literal_separator(true).build().ok()?.compile_matcher())
}

/// The directory whose files a pattern names by `*`, if it would take a file called `name` there.
pub(super) fn takes<'a>(pattern: &'a str, name: &str) -> Option<&'a str> {
    let (dir, last) = pattern.rsplit_once('/')?;
    let takes = last.contains('*') && !dir.contains('*') && matcher(last)?.is_match(name);
    takes.then_some(dir)
}
