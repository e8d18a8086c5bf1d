//! From a path to an inode.

use std::ops::ControlFlow;

use super::map::Budget;
use super::{FileKind, Filesystem, Inode, ReadAt, ReadError};

/// As many symbolic links as the kernel follows.
const MAX_LINKS: usize = 40;
/// Names passed on the way, those in links included: each one may cost reading a directory.
const MAX_STEPS: usize = 10_000;

/// How often the way may pass all bytes of the disk: through links it may come to a directory again
/// and again, but not to a large one each time.
const MAX_PASSES: u64 = 100;

/// Which symbolic links on the way are followed. None ever leads out of the file system: an
/// absolute one begins at its root, and the parent of the root is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// None: a link before the last name is no directory.
    Never,
    /// All but one that is the path's last name.
    Parents,
    /// All.
    Always,
}

impl<R: ReadAt> Filesystem<R> {
    /// The inode of a path; no link is followed. Leading, doubled and trailing slashes mean
    /// nothing.
    pub fn lookup(&self, path: &[u8]) -> Result<Inode, ReadError> {
        self.find(path, Follow::Never)
    }

    /// The inode of a path, all links followed inside the file system.
    pub fn lookup_following(&self, path: &[u8]) -> Result<Inode, ReadError> {
        self.find(path, Follow::Always)
    }

    /// The inode of a path.
    pub fn find(&self, path: &[u8], follow: Follow) -> Result<Inode, ReadError> {
        let shown = || String::from_utf8_lossy(path).into_owned();
        // Names still to go, the next one last, and the directories from the root down.
        let mut names = components(path);
        let mut above: Vec<Inode> = Vec::new();
        let mut here = self.root()?;
        let (mut links, mut steps) = (0, 0);
        let mut budget = Budget::of(self.size.saturating_mul(MAX_PASSES));
        while let Some(name) = names.pop() {
            steps += 1;
            if steps > MAX_STEPS {
                return Err(ReadError::TooManyLinks { path: shown() });
            }
            if here.kind != FileKind::Directory {
                return Err(ReadError::NotADirectory { path: shown(), kind: here.kind });
            }
            if name == b".." {
                here = above.pop().unwrap_or(here);
                continue;
            }
            let number = self
                .entry(&here, &name, &mut budget)?
                .ok_or_else(|| ReadError::NotFound { path: shown() })?;
            let found = self.inode(number)?;
            let wanted = match follow {
                Follow::Never => false,
                Follow::Parents => !names.is_empty(),
                Follow::Always => true,
            };
            if found.kind != FileKind::Symlink || !wanted {
                above.push(std::mem::replace(&mut here, found));
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(ReadError::TooManyLinks { path: shown() });
            }
            let target = self.read_link(&found)?;
            if target.starts_with(b"/") && !above.is_empty() {
                above.truncate(1);
                here = above.pop().expect("the root is the first");
            }
            names.extend(components(&target));
        }
        Ok(here)
    }

    fn entry(
        &self,
        directory: &Inode,
        wanted: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<u32>, ReadError> {
        let mut found = None;
        self.each_entry(directory, budget, &mut |name, inode| {
            if name == wanted {
                found = Some(inode);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// The names of a path, the first one last.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').rev();
    names.filter(|name| !name.is_empty() && name != b".").map(<[u8]>::to_vec).collect()
}
