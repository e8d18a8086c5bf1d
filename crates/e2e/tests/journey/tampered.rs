//! What somebody made who can push and has an index signed: the same program with another word in it, for this
//! machine's platform, among the images that were built. The index is signed; the child that would run is not.

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{architecture, digest, hello_source, ok, ours, portolan, resolved};

use crate::site::{Image, PLATFORMS, Site};

pub(crate) struct Tampered {
    /// As the cluster names it.
    repository: String,
    pub(crate) index: String,
    pub(crate) child: String,
}

impl Tampered {
    pub(crate) fn new(site: &Site, image: &Image) -> Result<Self> {
        let dir = site.dir.path().join("tampered");
        ok(std::process::Command::new("cp").arg("-r").arg(hello_source()).arg(&dir));
        let program = dir.join("bin").join(architecture()).join("hello");
        std::fs::write(&program, other_word(&std::fs::read(&program)?)?)?;
        let (platform, other) = match architecture() {
            "arm64" => (PLATFORMS[1], PLATFORMS[0]),
            _ => (PLATFORMS[0], PLATFORMS[1]),
        };
        let repository = image.here.trim_end_matches(":1");
        let (alone, all) = (format!("{repository}:alone"), format!("{repository}:tampered"));
        let mut build = portolan();
        build.args(["build", "run", "--engine", "local", "--no-source", "--platform", platform]);
        ok(build.args(["--output", &alone, "--dir"]).arg(&dir));
        let good = format!("{repository}@{}", resolved(&image.here, other));
        ours(&["image", "index", "create", &all, &alone, &good]);
        // Not `--recursive`: nobody who has the key saw what is in it.
        site.key.sign(&all, &[]);
        let child = resolved(&all, platform);
        ensure!(child != image.resolved, "it is another image");
        Ok(Self { repository: image.repository.clone(), index: digest(&all), child })
    }

    /// The index by its digest.
    pub(crate) fn index_reference(&self) -> String {
        format!("{}@{}", self.repository, self.index)
    }
}

/// The program, which says something else.
fn other_word(program: &[u8]) -> Result<Vec<u8>> {
    let (word, other) = (b"hello", b"howdy");
    let at = program.windows(word.len()).position(|window| window == word);
    let at = at.context("the program has its greeting")?;
    let mut program = program.to_vec();
    program[at..at + other.len()].copy_from_slice(other);
    Ok(program)
}
