//! Where parts are kept, and how one gets there without ever being half there.
//!
//! `$XDG_CACHE_HOME/portolan/testbed` (or `~/.cache/…`) holds `parts/<name>-<version>-<recipe>/`,
//! one folder per way of making a part, so that a fresh clone finds what another has built and a
//! changed recipe never meets an old result.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use portolan_core::{Algorithm, Hasher};

use super::command::say;

/// The testbed's folder in the user's cache.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(crate) fn of_user() -> Result<Self> {
        let base = choose_base(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
            .context("neither XDG_CACHE_HOME nor HOME is an absolute path: set one of them")?;
        Ok(Self { root: base.join("portolan").join("testbed") })
    }

    /// The folder of the one cluster that may run for this user.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Where other chores keep the programs they install.
    pub(crate) fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// Where fuzzing keeps its corpora.
    pub(crate) fn fuzz(&self) -> PathBuf {
        self.root.join("fuzz")
    }

    /// The logs of the last cluster that was taken down.
    pub(crate) fn kept_logs(&self) -> PathBuf {
        self.root.join("logs-of-last-run")
    }

    /// The folder of a part, made by `make` if no earlier run has: `make` fills an empty folder,
    /// which gets its name only when `make` succeeds.
    pub(crate) fn part(
        &self,
        name: &str,
        version: &str,
        recipe: &Recipe,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let full = format!("{name}-{version}-{}", recipe.short());
        let ready = self.root.join("parts").join(&full);
        if ready.is_dir() {
            return Ok(ready);
        }
        // Two runs that want the same part: the second waits and finds it done.
        let _lock = self.lock(&full)?;
        if ready.is_dir() {
            return Ok(ready);
        }
        let staging = self.root.join("staging").join(&full);
        // Ours alone under the lock, so what is here is from a run that was interrupted.
        remove_dir(&staging)?;
        fs::create_dir_all(&staging).with_context(|| format!("create {}", staging.display()))?;
        make(&staging)?;
        fs::create_dir_all(self.root.join("parts"))?;
        fs::rename(&staging, &ready)
            .with_context(|| format!("rename {} to {}", staging.display(), ready.display()))?;
        Ok(ready)
    }

    /// Waits for, and holds until dropped, the lock of that name.
    pub(crate) fn lock(&self, name: &str) -> Result<File> {
        let dir = self.root.join("locks");
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let path = dir.join(name);
        let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
        if file.try_lock().is_err() {
            say(&format!("waiting for another run that holds {}", path.display()));
            file.lock().with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(file)
    }
}

fn choose_base(
    xdg: Option<std::ffi::OsString>,
    home: Option<std::ffi::OsString>,
) -> Option<PathBuf> {
    // The XDG specification: a relative value is to be ignored.
    let absolute = |value: Option<std::ffi::OsString>| {
        value.map(PathBuf::from).filter(|path| path.is_absolute())
    };
    absolute(xdg).or_else(|| absolute(home).map(|home| home.join(".cache")))
}

/// Everything that decides what a part's bytes will be.
#[derive(Debug)]
pub(crate) struct Recipe(Hasher);

impl Default for Recipe {
    fn default() -> Self {
        Self(Hasher::new(Algorithm::Sha256))
    }
}

impl Recipe {
    /// One labelled ingredient. Lengths are hashed too, so that no two lists of ingredients
    /// run together into the same bytes.
    pub(crate) fn with(mut self, label: &str, value: &[u8]) -> Self {
        for piece in [label.as_bytes(), value] {
            self.0.update(&(piece.len() as u64).to_le_bytes());
            self.0.update(piece);
        }
        self
    }

    /// A file's bytes under its own name.
    pub(crate) fn with_file(self, path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let label = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(self.with(&label, &bytes))
    }

    /// Twelve hexadecimal digits: enough to tell the recipes of one part apart.
    fn short(&self) -> String {
        self.0.clone().finish().short()
    }
}

/// Removes a folder that may not be there.
pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => bail!("remove {}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(recipe: Recipe) -> String {
        recipe.short()
    }

    #[test]
    fn a_recipe_is_stable_and_tells_its_ingredients_apart() {
        let one = || Recipe::default().with("version", b"v1").with("set", b"a=b");
        assert_eq!(short(one()), short(one()));
        assert_ne!(
            short(one()),
            short(Recipe::default().with("version", b"v2").with("set", b"a=b"))
        );
        assert_ne!(
            short(Recipe::default().with("a", b"bc")),
            short(Recipe::default().with("ab", b"c"))
        );
    }

    #[test]
    fn the_base_is_xdg_then_home() {
        let os = |text: &str| Some(std::ffi::OsString::from(text));
        assert_eq!(choose_base(os("/x"), os("/h")), Some(PathBuf::from("/x")));
        assert_eq!(choose_base(os("relative"), os("/h")), Some(PathBuf::from("/h/.cache")));
        assert_eq!(choose_base(None, None), None);
    }

    #[test]
    fn an_interrupted_part_is_made_again_and_a_finished_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache { root: dir.path().to_owned() };
        let recipe = || Recipe::default().with("version", b"1");
        let failed = cache.part("p", "1", &recipe(), |to| {
            fs::write(to.join("half"), "")?;
            bail!("interrupted")
        });
        assert!(failed.is_err());
        let made = cache.part("p", "1", &recipe(), |to| Ok(fs::write(to.join("p"), "whole")?));
        let made = made.unwrap();
        assert!(!made.join("half").exists());
        let again = cache.part("p", "1", &recipe(), |_| bail!("must not be called")).unwrap();
        assert_eq!(fs::read_to_string(again.join("p")).unwrap(), "whole");
    }
}
