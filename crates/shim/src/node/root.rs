//! Paths of a host, as they are below its root: links lead where they lead on the host, never out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use portolan_registry::durable::{self, DurableError};

/// As many links as Linux follows in one path.
const MAX_LINKS: usize = 40;

/// The root directory of a host: `/`, where it is mounted, or a tree of files.
#[derive(Debug, Clone)]
pub struct HostRoot {
    dir: PathBuf,
    /// Files as they are going to be, by their paths on the host; none is: not there.
    ahead: BTreeMap<String, Option<String>>,
}

impl HostRoot {
    /// The host whose root is `dir`.
    ///
    /// # Errors
    /// It is no directory, or cannot be looked into.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let dir = dir.canonicalize()?;
        let ahead = BTreeMap::new();
        if dir.is_dir() {
            Ok(Self { dir, ahead })
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// Where it is here.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it is the root that this process has, too.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.dir == Path::new("/")
    }

    /// Where the host's `path` is here. Links are followed inside the root, also the last one; what
    /// is not there is taken as it is written.
    ///
    /// # Errors
    /// Links that go round in circles, or that cannot be read.
    pub fn locate(&self, path: &str) -> io::Result<PathBuf> {
        let mut here = self.dir.clone();
        let mut todo = parts(Path::new(path));
        let mut links = 0;
        while let Some(part) = todo.pop() {
            if part == ".." {
                if here != self.dir {
                    here.pop();
                }
                continue;
            }
            let next = here.join(&part);
            match fs::symlink_metadata(&next) {
                Ok(metadata) if metadata.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(io::Error::other("too many links follow each other"));
                    }
                    let target = fs::read_link(&next)?;
                    if target.is_absolute() {
                        here.clone_from(&self.dir);
                    }
                    todo.extend(parts(&target));
                }
                Ok(_) => here = next,
                Err(e) if e.kind() == io::ErrorKind::NotFound => here = next,
                Err(e) => return Err(e),
            }
        }
        Ok(here)
    }

    /// Whether there is something at the host's `path`.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.locate(path).is_ok_and(|here| here.exists())
    }

    /// Whether there is a file at the host's `path` that root alone can change, or put another in place of.
    #[must_use]
    pub fn is_roots_alone(&self, path: &str) -> bool {
        let Ok(here) = self.locate(path) else { return false };
        let roots = |path: &Path| {
            fs::metadata(path).is_ok_and(|m| {
                // In a sticky directory, nobody renames what is root's.
                let sticky = m.is_dir() && m.mode() & 0o1000 != 0;
                m.uid() == 0 && (m.mode() & 0o022 == 0 || sticky)
            })
        };
        let above = here.ancestors().take_while(|dir| dir.starts_with(&self.dir));
        here.is_file() && above.into_iter().all(roots)
    }

    /// The host as it is going to be when this file says that; none is: not there.
    pub(crate) fn expect(&mut self, path: &str, text: Option<&str>) {
        self.ahead.insert(plain(path), text.map(str::to_owned));
    }

    /// The names of what is in the host's directory `dir`.
    pub(crate) fn names(&self, dir: &str) -> BTreeSet<String> {
        let here = self.locate(if dir.is_empty() { "/" } else { dir });
        let entries = here.and_then(fs::read_dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: BTreeSet<String> = names.collect();
        let dir = plain(dir);
        for (path, text) in &self.ahead {
            let name = path.rsplit_once('/').filter(|(parent, _)| *parent == dir.as_str());
            match (name, text) {
                (Some((_, name)), Some(_)) => drop(names.insert(name.to_owned())),
                (Some((_, name)), None) => drop(names.remove(name)),
                (None, _) => {}
            }
        }
        names
    }

    /// The host's file at `path`, none where there is none.
    pub(crate) fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, DurableError> {
        if let Some(text) = self.ahead.get(&plain(path)) {
            return Ok(text.as_ref().map(|text| text.clone().into_bytes()));
        }
        let here = self
            .locate(path)
            .map_err(|e| DurableError::Unreadable { path: self.dir.join(path), source: e })?;
        match durable::read_bounded(&here, limit) {
            Err(DurableError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotADirectory =>
            {
                Ok(None)
            }
            read => read,
        }
    }
}

/// A path without what changes nothing: `/etc//containerd/./conf.d/` is `/etc/containerd/conf.d`, and the root is empty.
pub(crate) fn plain(path: &str) -> String {
    let parts = parts(Path::new(path));
    parts.iter().rev().flat_map(|part| ["/", part.as_str()]).collect()
}

/// The parts of a path, last first.
fn parts(path: &Path) -> Vec<String> {
    let part = |c: Component<'_>| match c {
        Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_owned()),
        _ => None,
    };
    let mut parts: Vec<String> = path.components().filter_map(part).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::open(dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("var/etc")).unwrap();
        symlink("/var/etc", dir.path().join("etc")).unwrap();
        symlink("../../../..", dir.path().join("var/up")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let at = |path: &str| root.locate(path).unwrap();
        assert_eq!(
            at("/etc/containerd/config.toml"),
            root.dir().join("var/etc/containerd/config.toml")
        );
        assert_eq!(at("/var/up/x"), root.dir().join("x"));
        assert_eq!(at("/../../x"), root.dir().join("x"));
        assert!(root.locate("/loop").is_err());
    }

    #[test]
    fn files_that_are_going_to_be_are_read_as_if_they_were() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(dir.path().join("d").join(name), name).unwrap();
        }
        let now = HostRoot::open(dir.path()).unwrap();
        let mut then = now.clone();
        then.expect("/d/a", Some("other"));
        then.expect("/d/b", None);
        then.expect("/d/new", Some("x"));
        then.expect("/e/elsewhere", Some("y"));
        let read =
            |root: &HostRoot, path: &str| root.read(path, 99).unwrap().map(String::from_utf8);
        assert_eq!(read(&then, "/d/a"), Some(Ok("other".into())));
        assert_eq!((read(&then, "/d/b"), read(&then, "/d/c")), (None, Some(Ok("c".into()))));
        assert_eq!(read(&then, "//d/./a"), Some(Ok("other".into())), "however it is spelled");
        for dir in ["/d", "//d/"] {
            let names: Vec<_> = then.names(dir).into_iter().collect();
            assert_eq!(names, ["a", "c", "new"]);
        }
        then.expect("/top", Some("z"));
        assert!(then.names("").contains("top") && then.names("/").contains("top"));
        assert_eq!(read(&now, "/d/a"), Some(Ok("a".into())));
        assert_eq!(now.names("/d").len(), 3);
    }
}
