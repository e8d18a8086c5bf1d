//! Plugins that people installed: `<dir>/sha256-<artifact>/plugins/<name>` for one artifact,
//! `<dir>/plugins/<name>` for all.
//!
//! Every step is opened below the last and looked at while open, so nothing on the way can be
//! swapped. What is fetched is kept elsewhere (see `store`): a program that a stranger attached
//! must never pass for one that somebody installed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use portolan_core::Digest;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::trust::{self, Distrust, Kind};

/// Where plugins are unless said otherwise.
pub const DEFAULT_DIRECTORY: &str = "/opt/oci/image-compatibility";

/// Why an installed plugin is not used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// What.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// Others could have written it.
    #[error("{} is not used", path.display())]
    Untrusted {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: Distrust,
    },
}

/// The installed plugin called `name`, open and believed; none if there is none.
pub(super) fn find(
    directory: &Path,
    artifact: Option<&Digest>,
    name: &str,
) -> Result<Option<File>, DirectoryError> {
    let own = artifact.map(|digest| format!("{}-{}", digest.algorithm(), digest.hex()));
    for steps in [own.as_deref().map(|own| vec![own, "plugins"]), Some(vec!["plugins"])] {
        let Some(steps) = steps else { continue };
        if let Some(file) = open(directory, &steps, name)? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn open(directory: &Path, steps: &[&str], name: &str) -> Result<Option<File>, DirectoryError> {
    let mut path = directory.to_owned();
    let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The first may be a link: it is the caller's own word.
    let Some(mut here) = one(CWD, directory, folder, Kind::Directory, &path)? else {
        return Ok(None);
    };
    for step in steps {
        path.push(step);
        let flags = folder | OFlags::NOFOLLOW;
        let Some(next) = one(&here, Path::new(step), flags, Kind::Directory, &path)? else {
            return Ok(None);
        };
        here = next;
    }
    path.push(name);
    // Names come from specs. The reader lets none with a slash through; here it would matter.
    if name.contains('/') || matches!(name, "" | "." | "..") {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(one(&here, Path::new(name), flags, Kind::File, &path)?.map(File::from))
}

fn one(
    below: impl std::os::fd::AsFd,
    step: &Path,
    flags: OFlags,
    kind: Kind,
    path: &Path,
) -> Result<Option<std::os::fd::OwnedFd>, DirectoryError> {
    let failed =
        |errno: Errno| DirectoryError::Open { path: path.to_owned(), source: errno.into() };
    let distrust = |source| DirectoryError::Untrusted { path: path.to_owned(), source };
    let opened = match openat(below, step, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(None),
        // What a link, and a file in a directory's place, are answered with.
        Err(Errno::LOOP) => return Err(distrust(Distrust::Kind("a regular file but a link"))),
        Err(Errno::NOTDIR) => return Err(distrust(Distrust::Kind("a directory"))),
        Err(errno) => return Err(failed(errno)),
    };
    trust::check(&opened, kind).map_err(failed)?.map_err(distrust)?;
    Ok(Some(opened))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn text(found: Option<File>) -> String {
        let mut text = String::new();
        found.expect("there is one").read_to_string(&mut text).unwrap();
        text
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory with a generic and an artifact's own plugin, whatever the umask.
    fn installed(artifact: &Digest) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let own_dir = dir.path().join(format!("sha256-{}", artifact.hex()));
        let generic = dir.path().join("plugins");
        let own = own_dir.join("plugins");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir(&generic).unwrap();
        fs::write(own.join("x"), "own").unwrap();
        fs::write(generic.join("x"), "generic").unwrap();
        for path in [dir.path(), &own_dir, &own, &generic, &own.join("x"), &generic.join("x")] {
            chmod(path, 0o755);
        }
        (dir, own, generic)
    }

    #[test]
    fn the_artifacts_own_directory_comes_before_the_one_for_all() {
        let artifact = Digest::sha256(b"artifact");
        let (dir, own, _) = installed(&artifact);
        let find = |artifact: Option<&Digest>, name: &str| {
            super::find(dir.path(), artifact, name).unwrap()
        };
        assert_eq!(text(find(Some(&artifact), "x")), "own");
        assert_eq!(text(find(None, "x")), "generic");
        let another = Digest::sha256(b"another");
        assert_eq!(text(find(Some(&another), "x")), "generic");
        fs::remove_file(own.join("x")).unwrap();
        assert_eq!(text(find(Some(&artifact), "x")), "generic");
        for name in ["y", "", ".", "..", "../plugins/x", "/etc/passwd"] {
            assert!(find(Some(&artifact), name).is_none(), "{name}");
        }
        assert!(super::find(&dir.path().join("none"), None, "x").unwrap().is_none());
    }

    #[test]
    fn links_and_what_others_may_write_are_refused() {
        let artifact = Digest::sha256(b"artifact");
        let refused = |change: &dyn Fn(&Path, &Path)| {
            let (dir, own, generic) = installed(&artifact);
            change(&own, &generic);
            let error = find(dir.path(), Some(&artifact), "x").unwrap_err();
            assert!(matches!(error, DirectoryError::Untrusted { .. }), "{error}");
            std::error::Error::source(&error).unwrap().to_string()
        };
        let linked = refused(&|own, generic| {
            fs::remove_file(own.join("x")).unwrap();
            symlink(generic.join("x"), own.join("x")).unwrap();
        });
        assert!(linked.contains("a link"), "{linked}");
        refused(&|own, generic| {
            fs::remove_dir_all(own).unwrap();
            symlink(generic, own).unwrap();
        });
        let open_to_all = refused(&|own, _| chmod(own, 0o777));
        assert!(open_to_all.contains("0777"), "{open_to_all}");
        refused(&|own, _| chmod(own.parent().unwrap(), 0o775));
        refused(&|own, _| chmod(&own.join("x"), 0o757));
        refused(&|own, _| {
            fs::remove_file(own.join("x")).unwrap();
            fs::create_dir(own.join("x")).unwrap();
        });
        refused(&|own, _| {
            fs::remove_file(own.join("x")).unwrap();
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(CWD, own.join("x"), fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        });
        if rustix::process::geteuid().is_root() {
            let foreign = refused(&|own, _| {
                std::os::unix::fs::chown(own.join("x"), Some(12_345), None).unwrap();
            });
            assert!(foreign.contains("12345"), "{foreign}");
        }
    }
}
