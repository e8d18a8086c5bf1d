//! A program of ours as an image, for pods of the cluster.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Entry, Layer, Testbed, portolan, run, write_image};

/// An image of a program and the libraries that it names, in the cluster's registry. `to` is where
/// it is in the image, `more` what else is; `dir` is worked in.
pub fn program_image(
    program: &Path,
    to: &str,
    more: &[(&str, &Path)],
    config: Value,
    (dir, repository): (&Path, &str),
) -> Result<String> {
    let stripped = dir.join("stripped");
    // What a debugger wants is most of the file.
    succeed(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
    let listed = run(Command::new("ldd").arg(&stripped))?;
    let mut layer = Layer::new();
    let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    for library in libraries(&listed.stdout) {
        let bytes = read(Path::new(library))?;
        layer = layer.with(Entry::file(library.trim_start_matches('/'), &bytes).mode(0o755));
    }
    for (name, file) in more.iter().copied().chain([(to, stripped.as_path())]) {
        layer = layer.with(Entry::file(name, &read(file)?).mode(0o755));
    }
    let image = write_image(&dir.join("image"), &[layer], config)?;
    let registry = &Testbed::get().registry;
    let pushed = format!("{}/{repository}:1", registry.loopback);
    succeed(portolan().args(["image", "copy", &image, &pushed]))?;
    Ok(format!("{}/{repository}@{}", registry.cluster, crate::digest(&pushed)))
}

/// The absolute paths in what `ldd` prints: `name => PATH (address)`, and the loader alone.
fn libraries(listed: &str) -> Vec<&str> {
    let words = listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.collect()
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = run(command)?;
    ensure!(output.code == Some(0), "{output}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_a_library_too_and_what_has_no_file_is_none() {
        let listed = "\tlinux-vdso.so.1 (0x7ffc)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f00)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x7f01)\n";
        assert_eq!(
            libraries(listed),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
    }
}
