//! Images of programs that are installed on this machine: the programs, the libraries that their
//! loader would take, and folders that they cannot do without. Small, and made in seconds.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::image::Contents;

/// What is gathered.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// Programs of this machine; each gets its own path in the image.
    pub(crate) programs: Vec<PathBuf>,
    /// Folders of this machine, whole.
    pub(crate) folders: &'a [&'a str],
    /// Texts that are written for the image.
    pub(crate) texts: &'a [(&'a str, &'a str)],
    /// Links: path and target.
    pub(crate) links: &'a [(&'a str, &'a str)],
}

/// Everything that the image holds.
pub(crate) fn gather(wanted: &Wanted<'_>) -> Result<Contents> {
    let mut contents = Contents::default();
    let mut programs = wanted.programs.clone();
    for folder in wanted.folders {
        walk(Path::new(folder), &mut contents, &mut programs)?;
    }
    let mut seen: BTreeSet<PathBuf> =
        contents.files.iter().map(|(path, _)| PathBuf::from(path)).collect();
    for program in &programs {
        let mut paths = libraries(program)?;
        paths.push(program.clone());
        for path in paths {
            if seen.insert(path.clone()) {
                contents.files.push((text(&path)?, read(&path)?));
            }
        }
    }
    let own = wanted.texts.iter();
    contents.files.extend(own.map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())));
    let links = wanted.links.iter();
    contents.links.extend(links.map(|(path, to)| ((*path).to_owned(), (*to).to_owned())));
    contents.files.sort();
    contents.links.sort();
    Ok(contents)
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is no text", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Adds a folder; what is executable in it brings its libraries.
fn walk(dir: &Path, contents: &mut Contents, programs: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            walk(&path, contents, programs)?;
        } else if metadata.is_symlink() {
            contents.links.push((text(&path)?, text(&fs::read_link(&path)?)?));
        } else if metadata.is_file() {
            let bytes = read(&path)?;
            let program = metadata.mode() & 0o111 != 0 && bytes.starts_with(b"\x7fELF");
            match program {
                true => programs.push(path),
                false => contents.files.push((text(&path)?, bytes)),
            }
        }
    }
    Ok(())
}

/// What the loader would load for a program, and the loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let out = Command::new("ldd").arg(program).output().context("start ldd")?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if said.contains("not a dynamic executable") || said.contains("statically linked") {
        return Ok(Vec::new());
    }
    if !out.status.success() {
        bail!("ldd {}: {said}", program.display());
    }
    Ok(loaded(&said))
}

/// The paths in what ldd prints.
fn loaded(said: &str) -> Vec<PathBuf> {
    let lines = said.lines().map(str::trim);
    let paths = lines.filter_map(|line| {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        let path = path.split(' ').next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_ldd_names() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(loaded(said), expected.map(PathBuf::from));
    }

    #[test]
    fn a_program_brings_its_libraries_and_a_folder_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("text"), "t").unwrap();
        std::os::unix::fs::symlink("text", inner.join("link")).unwrap();
        let folder = inner.to_str().unwrap();
        let wanted = Wanted {
            programs: vec![PathBuf::from("/bin/sh")],
            folders: &[folder],
            texts: &[("/etc/own", "o")],
            links: &[("/bin/alias", "sh")],
        };
        let contents = gather(&wanted).unwrap();
        let has = |path: &str| contents.files.iter().any(|(name, _)| name == path);
        assert!(has("/bin/sh") && has("/etc/own") && has(&format!("{folder}/text")));
        assert!(contents.files.iter().any(|(name, _)| name.contains("libc")));
        assert!(contents.links.contains(&(format!("{folder}/link"), "text".to_owned())));
    }
}
