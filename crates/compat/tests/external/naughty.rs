//! A program that does whatever it is told.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Built once for all tests of a file. None where there is no C compiler that links statically.
pub(crate) fn naughty() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("naughty");
        // So that tests of other crates find it, too.
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../compat/tests/external/naughty.c");
        let built = Command::new("cc")
            .args(["-static", "-O1", "-pthread", "-o"])
            .arg(&path)
            .arg(source)
            .status();
        built.is_ok_and(|status| status.success()).then_some((dir, path))
    });
    built.as_ref().map(|(_, path)| path.as_path())
}
