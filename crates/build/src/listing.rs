//! The names in a directory, for walks that keep what is still to come on a list of their own: directories in one
//! another may be more than there are frames on the stack of a thread.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// So many names may a path have: as many as in a layer that is unpacked (`max_depth` of its limits), so that what is
/// packed here can be read elsewhere.
pub(crate) const MAX_DEPTH: usize = 1024;

/// Why a directory has no list.
pub(crate) enum Unlisted {
    /// It cannot be read.
    Io { path: PathBuf, source: io::Error },
    /// A name that is no text.
    NotText(PathBuf),
}

/// The paths below `root` of what is in `inside`, the last one first: so they go on a stack.
pub(crate) fn last_first(root: &Path, inside: &str) -> Result<Vec<String>, Unlisted> {
    let dir = root.join(inside);
    let io = |source| Unlisted::Io { path: dir.clone(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).map_err(io)? {
        names.push(entry.map_err(io)?.file_name());
    }
    names.sort_by(|a, b| b.as_bytes().cmp(a.as_bytes()));
    let path = |name: std::ffi::OsString| match name.to_str() {
        None => Err(Unlisted::NotText(dir.join(name))),
        Some(name) if inside.is_empty() => Ok(name.to_owned()),
        Some(name) => Ok(format!("{inside}/{name}")),
    };
    names.into_iter().map(path).collect()
}

/// Whether a path has more names than it may.
pub(crate) fn is_too_deep(path: &str) -> bool {
    path.split('/').count() > MAX_DEPTH
}

#[cfg(test)]
mod tests {
    use portolan_rootdisk::limits::Limits;

    use super::*;

    #[test]
    fn what_is_packed_is_no_deeper_than_what_is_unpacked() {
        assert_eq!(MAX_DEPTH, usize::try_from(Limits::default().max_depth).unwrap());
        let path = vec!["a"; MAX_DEPTH].join("/");
        assert!(!is_too_deep(&path));
        assert!(is_too_deep(&format!("{path}/a")));
    }
}
