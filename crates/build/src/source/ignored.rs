//! What somebody does not send: `.shpignore` in a directory, which is written as `.gitignore` is.

use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use portolan_registry::durable;

use super::PackError;

/// The file at the top of a directory that names what stays behind.
pub const IGNORE_FILE: &str = ".shpignore";
/// The largest such file.
const MAX_BYTES: u64 = 1024 * 1024;

/// Patterns; none where there is no file.
#[derive(Debug, Default)]
pub(crate) struct Ignored(Option<Gitignore>);

impl Ignored {
    /// Reads the file of a directory, if it has one.
    pub(crate) fn read(dir: &Path) -> Result<Self, PackError> {
        let file = dir.join(IGNORE_FILE);
        let wrong = |why: String| PackError::Ignore { path: file.clone(), why };
        let read = durable::read_bounded(&file, MAX_BYTES);
        let Some(bytes) = read.map_err(|error| wrong(portolan_core::causes::chain(&error)))? else {
            return Ok(Self::default());
        };
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        let mut patterns = GitignoreBuilder::new(dir);
        for (at, line) in text.lines().enumerate() {
            let added = patterns.add_line(None, line);
            added.map_err(|error| wrong(format!("line {}: {error}", at + 1)))?;
        }
        let patterns = patterns.build().map_err(|error| wrong(error.to_string()))?;
        Ok(Self(Some(patterns)))
    }

    /// Whether a path from the top stays behind. What is below such a directory is not asked for.
    pub(super) fn excludes(&self, path: &str, is_dir: bool) -> bool {
        self.0.as_ref().is_some_and(|patterns| patterns.matched(path, is_dir).is_ignore())
    }
}
