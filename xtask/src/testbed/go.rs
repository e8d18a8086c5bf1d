//! Go programs and folders of Go modules, each built by a small module of ours that pins it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::cache::Recipe;

/// Smaller files, and no paths of the machine that built them.
const FLAGS: &[&str] = &["-mod=readonly", "-trimpath", "-buildvcs=false"];

/// The folder `xtask/testbed/<module>` of this checkout.
pub(crate) fn module_dir(module: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed").join(module)
}

/// go.mod and go.sum, and whatever programs of our own lie beside them.
pub(crate) fn recipe(recipe: Recipe, module: &str) -> Result<Recipe> {
    let dir = module_dir(module);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "go" || ext == "mod" || ext == "sum") {
            files.push(path);
        }
    }
    files.sort();
    files.iter().try_fold(recipe.with("flags", FLAGS.join(" ").as_bytes()), |recipe, file| {
        recipe.with_file(file)
    })
}

/// `go build` of one main package to the file `to`.
pub(crate) fn build(module: &str, package: &str, set: &[&str], to: &Path) -> Result<()> {
    build_at(&module_dir(module), package, set, to)
}

/// The same inside a copy of the source of the Go module `of`, which is gone afterwards.
pub(crate) fn build_in_source(module: &str, of: &str, package: &str, to: &Path) -> Result<()> {
    let copy = tempfile::tempdir().context("make a folder for the source")?;
    let from = source(module, of)?;
    copy_tree(&from, copy.path()).with_context(|| format!("copy {}", from.display()))?;
    build_at(copy.path(), package, &[], to)
}

fn build_at(dir: &Path, package: &str, set: &[&str], to: &Path) -> Result<()> {
    let linker = set.iter().fold("-s -w".to_owned(), |all, one| format!("{all} -X {one}"));
    let mut command = go(dir);
    command.arg("build").args(FLAGS).args(["-ldflags", &linker]).arg("-o").arg(to).arg(package);
    run(command).map(drop)
}

/// Where the source of the Go module `of` is, which is downloaded and compared with go.sum.
fn source(module: &str, of: &str) -> Result<PathBuf> {
    let mut download = go(&module_dir(module));
    download.args(["mod", "download", "-json", of]);
    let told: serde_json::Value = serde_json::from_str(&run(download)?)?;
    let dir = told["Dir"].as_str().with_context(|| format!("go tells no folder for {of}"))?;
    Ok(dir.into())
}

/// Copies `folder` of the source of the Go module `of`.
pub(crate) fn copy_folder(module: &str, of: &str, folder: &str, to: &Path) -> Result<()> {
    let from = source(module, of)?.join(folder);
    copy_tree(&from, to).with_context(|| format!("copy {}", from.display()))
}

fn go(dir: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(dir);
    // Static, so that the same file runs on the host and in an image of its own. The other two
    // keep a developer's own settings from changing what is built.
    command.env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOWORK", "off");
    command
}

fn run(mut command: Command) -> Result<String> {
    let shown = format!("{command:?}");
    let out = command.output().with_context(|| {
        format!("start {shown}: is Go installed? go.mod in xtask/testbed names the version")
    })?;
    if !out.status.success() {
        bail!("{shown} failed ({}):\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            // Read and write, not copy: files of the module cache are read-only.
            std::fs::write(&target, std::fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
