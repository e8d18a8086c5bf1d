//! Which files change, and how: decided from what they say, before any of them is touched.

use toml_edit::Document;

use super::block::{self, Entry};
use super::version::{plugin, plugin_table, runtimes};
use super::{ConfigError, Loaded, MAX_FILE, Version, handler_table, imports, parse};
use crate::node::request::Wanted;
use crate::node::root::HostRoot;
use crate::node::upstream;

/// The first line of every file that is ours as a whole.
const OURS: &str = "# portolan: this file is made and removed by `portolan node`\n";
/// What a template of k3s or RKE2 begins with, to be the usual configuration and more.
const BASE: &str = "{{ template \"base\" . }}\n";

/// Where k0s writes what it makes of its files: it has our tables without our marks.
pub(super) const MADE_BY_K0S: &str = "/run/k0s/";

/// How a kind of node keeps its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// containerd reads the file and what it imports.
    File,
    /// The file is written anew at every start, from a template beside it (k3s, RKE2).
    Rendered,
    /// The file is made by the distribution, which merges the files of this directory into it (k0s).
    Merged(&'static str),
}

/// One file, before and after. None is: not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As the host names it.
    pub path: String,
    /// As it is.
    pub before: Option<String>,
    /// As it is to be.
    pub after: Option<String>,
}

/// A host's configuration, as it was found.
#[derive(Debug)]
pub struct Look<'a> {
    /// Where it is.
    pub root: &'a HostRoot,
    /// The main file.
    pub main: &'a str,
    /// How it is kept.
    pub layout: Layout,
    /// The runtime's major version, where it is known.
    pub major: Option<u64>,
    /// The files that containerd loads.
    pub loaded: &'a [Loaded],
    /// Files that a former run changed.
    pub known: &'a [String],
}

/// Where a runtime is said.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Spot {
    Block(String),
    Dropin(String),
    Template(String),
}

impl Look<'_> {
    fn version(&self) -> Version {
        let made_for = if self.merges_by_major() { Version::V3 } else { Version::V2 };
        // k0s writes the version itself; a file that says none is not what containerd will read.
        let unsaid = |main: &&Loaded| {
            matches!(self.layout, Layout::Merged(_)) && main.document.get("version").is_none()
        };
        self.loaded.first().filter(|main| !unsaid(main)).map_or(made_for, |main| main.version)
    }

    fn merges_by_major(&self) -> bool {
        self.major.is_some_and(|major| major >= 2)
    }

    /// Whether an imported table is added to, and does not replace.
    fn merges(&self) -> bool {
        self.merges_by_major() || self.version() >= Version::V3
    }

    fn spot(&self, name: &str) -> Spot {
        let file = format!("portolan-{name}.toml");
        let imported = self.loaded.first().and_then(|main| {
            main.imports.iter().find_map(|pattern| imports::takes(pattern, &file))
        });
        match (self.layout, imported) {
            (Layout::Merged(dir), _) if self.is_managed() => Spot::Dropin(format!("{dir}/{file}")),
            (_, Some(dir)) if self.merges() => Spot::Dropin(format!("{dir}/{file}")),
            (Layout::Rendered, _) => Spot::Template(self.template()),
            _ => Spot::Block(self.last_with_table().to_owned()),
        }
    }

    /// k0s says in its file whether it is k0s's own.
    pub(super) fn is_managed(&self) -> bool {
        let line = |line: &str| line.trim_start_matches('#').trim() == "k0s_managed=true";
        let ours = |main: &Loaded| {
            main.text.is_empty()
                || main.text.lines().any(line)
                || main.imports.iter().any(|path| path.starts_with(MADE_BY_K0S))
        };
        self.loaded.first().is_none_or(ours)
    }

    /// The templates that there may be, the newer one last.
    pub(super) fn templates(&self) -> [String; 2] {
        let dir = self.main.rsplit_once('/').map_or("", |(dir, _)| dir);
        ["config.toml.tmpl", "config-v3.toml.tmpl"].map(|file| format!("{dir}/{file}"))
    }

    fn template(&self) -> String {
        let [older, newer] = self.templates();
        if self.version() >= Version::V3 { newer } else { older }
    }

    /// The file whose table counts: containerd 1 takes the last, and nothing of those before.
    fn last_with_table(&self) -> &str {
        let has = |file: &&Loaded| plugin_table(&file.document, file.version).is_some();
        let last = self.loaded.iter().rev().find(has).filter(|_| !self.merges());
        last.or_else(|| self.loaded.first()).map_or(self.main, |file| &file.path)
    }

    /// Every file in which something of ours may be.
    fn candidates(&self, name: &str) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        if self.layout == Layout::Rendered {
            paths.extend(self.templates());
            paths.extend(self.loaded.iter().skip(1).map(|file| file.path.clone()));
        } else {
            paths.extend(self.loaded.iter().map(|file| file.path.clone()));
        }
        if let Layout::Merged(dir) = self.layout {
            paths.push(format!("{dir}/portolan-{name}.toml"));
            // Where upstream's installer put it.
            paths.push(format!("{dir}/config.toml"));
        }
        paths.extend(self.known.iter().cloned());
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    pub(super) fn read(&self, path: &str) -> Result<Option<String>, ConfigError> {
        let bytes = self.root.read(path, MAX_FILE)?;
        let text = bytes.map(String::from_utf8).transpose();
        text.map_err(|_| ConfigError::NotText { path: path.to_owned() })
    }

    /// The version of a file as its tables are written.
    fn spelled(
        &self,
        path: &str,
        version: Version,
        foreign: &Document<String>,
    ) -> Result<Version, ConfigError> {
        let has = |version: Version| plugin(foreign, version.plugin()).is_some();
        match version {
            Version::V1 if !has(Version::V1Full) => Ok(version),
            Version::V1 if self.merges_by_major() && !has(Version::V1) => Ok(Version::V1Full),
            // containerd 1 does not see the one, containerd 2 keeps either of the two.
            Version::V1 => Err(ConfigError::Unversioned { path: path.to_owned() }),
            version => Ok(version),
        }
    }
}

/// Whether a file is ours as a whole.
pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with(OURS)
}

pub(super) fn is_dropin(text: &str, name: &str, path: &str) -> bool {
    is_ours(text) && path.rsplit('/').next() == Some(&format!("portolan-{name}.toml"))
}

/// What a text says of a shim that is ours: a whole file, or a block of it.
pub(crate) fn own_text<'a>(path: &str, text: &'a str, name: &str) -> Option<&'a str> {
    if is_dropin(text, name, path) { Some(text) } else { block::inner(path, text, name) }
}

/// A file with what is the shim's in it as it was in `model`, and everything else as it is. What of upstream's was taken
/// away for it is there again, or its handler would be lost to pods that still ask for it.
pub(crate) fn one_as_in(
    path: &str,
    now: Option<&str>,
    model: Option<&str>,
    name: &str,
    handler: &str,
) -> Result<Option<String>, ConfigError> {
    let Some(text) = now else {
        // One that said nothing but what is ours was removed for it, and by nobody else.
        let ours = |text: &&str| {
            own_text(path, text, name).is_some() && same_foreign(path, Some(*text), None)
        };
        return Ok(model.filter(ours).map(str::to_owned));
    };
    if is_dropin(text, name, path) {
        return Ok(model.map(str::to_owned));
    }
    let model_text = model.unwrap_or_default();
    let text = block::as_in(path, text, model_text, name)?;
    let text = upstream::put_back(&text, model_text, handler);
    Ok(Some(text).filter(|text| model.is_some() || !is_bare(text)))
}

/// Whether two texts of a file differ by what is ours alone.
pub(crate) fn same_foreign(path: &str, one: Option<&str>, other: Option<&str>) -> bool {
    let foreign = |text: Option<&str>| {
        let text = text.filter(|text| !is_ours(text)).unwrap_or_default();
        block::foreign(path, text).unwrap_or_else(|_| text.to_owned())
    };
    foreign(one) == foreign(other)
}

/// What has to change so that the runtime is known as wanted, with its program at `program`.
///
/// # Errors
/// The configuration is refused; see [`ConfigError`].
pub fn install(
    look: &Look<'_>,
    wanted: &Wanted,
    program: &str,
) -> Result<Vec<Change>, ConfigError> {
    look.refuse_conflicts(wanted)?;
    let name = wanted.name.as_str();
    let spot = look.spot(name);
    let target = match &spot {
        Spot::Block(path) | Spot::Dropin(path) | Spot::Template(path) => path.clone(),
    };
    let mut changes = cleared(look, wanted.name.as_str(), wanted.handler.as_str(), Some(&target))?;
    let before = look.read(&target)?;
    let entry = Entry { handler: wanted.handler.as_str(), program, options: &wanted.options };
    let after = match spot {
        Spot::Dropin(path) => dropin(&path, before.as_deref(), look.version(), &entry)?,
        Spot::Template(path) => {
            let text = match &before {
                Some(text) => upstream::remove_block(text, entry.handler),
                None => format!("{OURS}{BASE}"),
            };
            if block::tables(look.version(), &entry, "\n").contains("{{") {
                return Err(ConfigError::InTemplate { path });
            }
            block::add(&path, &text, name, look.version(), &entry, false)?
        }
        Spot::Block(path) => in_file(look, &path, before.as_deref(), name, &entry)?,
    };
    if before.as_deref() != Some(&after) {
        changes.push(Change { path: target, before, after: Some(after) });
    }
    Ok(changes)
}

/// A file of our own.
fn dropin(
    path: &str,
    before: Option<&str>,
    version: Version,
    entry: &Entry<'_>,
) -> Result<String, ConfigError> {
    if before.is_some_and(|text| !is_ours(text)) {
        return Err(ConfigError::NotOurs { path: path.to_owned() });
    }
    Ok(format!("{OURS}version = {}\n\n{}", version.number(), block::tables(version, entry, "\n")))
}

/// A block in a file that containerd reads, which must then be TOML and have the runtime.
fn in_file(
    look: &Look<'_>,
    path: &str,
    before: Option<&str>,
    name: &str,
    entry: &Entry<'_>,
) -> Result<String, ConfigError> {
    let file = look.loaded.iter().find(|file| file.path == path);
    let version = file.map_or_else(|| look.version(), |file| file.version);
    let text = match before {
        Some(text) => upstream::remove_block(text, entry.handler),
        None => format!("{OURS}version = {}\n", version.number()),
    };
    let foreign = parse(path, &block::foreign(path, &text)?)?;
    let version = look.spelled(path, version, &foreign)?;
    let named = runtimes(&foreign, version).is_some_and(|table| !table.is_empty());
    let after = block::add(path, &text, name, version, entry, !look.merges() && !named)?;
    let extend = |source| ConfigError::CannotExtend { path: path.to_owned(), source };
    let document = match parse(path, &after) {
        Ok(document) => document,
        Err(ConfigError::NotToml { source, .. }) => return Err(extend(Some(source))),
        Err(error) => return Err(error),
    };
    let said = handler_table(&document, version, entry.handler).and_then(|t| t.get("runtime_type"));
    if said.and_then(|item| item.as_str()) != Some(entry.program) {
        return Err(extend(None));
    }
    Ok(after)
}

/// What has to change so that nothing of the shim is left.
///
/// # Errors
/// A block of ours is torn, or a file cannot be read.
pub fn uninstall(look: &Look<'_>, name: &str, handler: &str) -> Result<Vec<Change>, ConfigError> {
    cleared(look, name, handler, None)
}

/// Everything of the shim taken away, but for what is in `keep`.
fn cleared(
    look: &Look<'_>,
    name: &str,
    handler: &str,
    keep: Option<&str>,
) -> Result<Vec<Change>, ConfigError> {
    let mut changes = Vec::new();
    for path in look.candidates(name) {
        if keep == Some(&path) {
            continue;
        }
        let Some(before) = look.read(&path)? else { continue };
        let rest = block::remove(&path, &before, name)?;
        let rest = upstream::remove_block(&rest, handler);
        let empty = rest != before && is_bare(&rest);
        // What containerd reads must still be what it can read.
        let read = look.loaded.iter().any(|file| file.path == path);
        if read && rest != before && parse(&path, &rest).is_err() {
            return Err(ConfigError::CannotRemove { path, name: name.to_owned() });
        }
        let after = (!is_dropin(&before, name, &path) && !empty).then_some(rest);
        if after.as_deref() != Some(&before) {
            changes.push(Change { path, before: Some(before), after });
        }
    }
    Ok(changes)
}

/// Whether a file that we made says nothing any more.
fn is_bare(text: &str) -> bool {
    let Some(rest) = text.strip_prefix(OURS) else { return false };
    rest == BASE
        || ["version = 1\n", "version = 2\n", "version = 3\n", "version = 4\n"].contains(&rest)
}
