//! Whose a handler is: ours, another shim's, somebody else's, or the runtime's own.

use std::borrow::Cow;

use super::plan::{MADE_BY_K0S, is_dropin, is_ours};
use super::version::default_runtime;
use super::{ConfigError, Layout, Loaded, Look, Version, block, handler_table, imports, parse};
use crate::node::request::{BUILT_IN, Wanted};
use crate::node::upstream;

impl Look<'_> {
    /// Whether a file that is loaded says something of the shim already.
    pub(crate) fn has_ours(&self, wanted: &Wanted) -> bool {
        self.loaded.iter().any(|file| says_ours(file, wanted))
    }

    /// The files in which people and we say what containerd reads: on k0s those that it merges, and not what it
    /// made of them at its last start.
    fn sources(&self) -> Result<Cow<'_, [Loaded]>, ConfigError> {
        let dir = match self.layout {
            Layout::Merged(dir) if self.is_managed() => dir,
            _ => return Ok(Cow::Borrowed(self.loaded)),
        };
        let made = |file: &&Loaded| file.path.starts_with(MADE_BY_K0S);
        let mut sources: Vec<_> = self.loaded.iter().filter(|file| !made(file)).cloned().collect();
        for name in self.root.names(dir).into_iter().filter(|name| name.ends_with(".toml")) {
            let path = format!("{dir}/{name}");
            if sources.iter().all(|file| file.path != path) {
                sources.extend(imports::read(self.root, &path)?);
            }
        }
        Ok(Cow::Owned(sources))
    }

    /// Somebody else's runtime of that name is left alone, and so are we.
    pub(super) fn refuse_conflicts(&self, wanted: &Wanted) -> Result<(), ConfigError> {
        let handler = wanted.handler.as_str();
        let default =
            |file: &Loaded| default_runtime(&file.document, file.version) == Some(handler);
        let sources = self.sources()?;
        let ours = || sources.iter().any(|file| says_ours(file, wanted));
        if handler == BUILT_IN || (self.loaded.iter().any(default) && !ours()) {
            return Err(ConfigError::BuiltIn { handler: handler.to_owned() });
        }
        for file in sources.iter() {
            let path = file.path.clone();
            if is_dropin(&file.text, wanted.name.as_str(), &file.path) {
                continue;
            }
            let mine = block::remove(&path, &file.text, wanted.name.as_str())?;
            let mine = upstream::remove_block(&mine, handler);
            let document = parse(&path, &mine)?;
            if handler_table(&document, file.version, handler).is_none() {
                continue;
            }
            let foreign = parse(&path, &block::foreign(&path, &mine)?)?;
            if !is_ours(&mine) && handler_table(&foreign, file.version, handler).is_some() {
                return Err(ConfigError::Taken { path, handler: handler.to_owned() });
            }
            // What is ours in a rendered file is what its template said at the last start.
            if self.layout == Layout::Rendered && path == self.main {
                continue;
            }
            let dropin = path.rsplit('/').next().and_then(|f| f.strip_prefix("portolan-"));
            let other = block::blocks(&mine)
                .into_iter()
                .next()
                .or_else(|| dropin.and_then(|f| f.strip_suffix(".toml")).map(str::to_owned));
            let other = other.unwrap_or_default();
            return Err(ConfigError::OthersHandler { handler: handler.to_owned(), other });
        }
        self.refuse_in_templates(wanted)
    }

    /// A template is no TOML, but what is ours in it is: a handler that is there twice would be a table that is
    /// there twice, with which containerd does not start.
    fn refuse_in_templates(&self, wanted: &Wanted) -> Result<(), ConfigError> {
        if self.layout != Layout::Rendered {
            return Ok(());
        }
        let handler = wanted.handler.as_str();
        for path in self.templates() {
            let Some(text) = self.read(&path)? else { continue };
            let says = |other: &String| {
                let own = block::inner(&path, &text, other).and_then(|own| parse(&path, own).ok());
                own.is_some_and(|own| {
                    let table = |version| handler_table(&own, version, handler).is_some();
                    table(Version::V2) || table(Version::V3)
                })
            };
            let mut others = block::blocks(&text).into_iter();
            if let Some(other) = others.find(|other| other != wanted.name.as_str() && says(other)) {
                return Err(ConfigError::OthersHandler { handler: handler.to_owned(), other });
            }
        }
        Ok(())
    }
}

/// Whether a file says something of the shim.
fn says_ours(file: &Loaded, wanted: &Wanted) -> bool {
    let (name, handler) = (wanted.name.as_str(), wanted.handler.as_str());
    is_dropin(&file.text, name, &file.path)
        || block::blocks(&file.text).iter().any(|block| block == name)
        || upstream::remove_block(&file.text, handler) != file.text
}
