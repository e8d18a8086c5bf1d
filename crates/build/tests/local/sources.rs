//! Source artifacts.

use std::os::unix::fs::symlink;

use portolan_build::source::{PackError, pack};
use portolan_core::manifest::Document;
use portolan_core::{Digest, Target};
use portolan_registry::layout::Layout;

use crate::{Bench, Name, blob, names, set_mode};

fn packed(bench: &Bench) -> Result<(Digest, Vec<Name>), PackError> {
    let layout = Layout::create(&bench.dir.path().join("artifact")).unwrap();
    let packed = pack(&bench.source(), &layout)?;
    let digest = packed.manifest.digest;
    let (_, bytes) = layout.manifest(&Target::Digest(digest)).unwrap();
    let Ok(Document::Manifest(manifest)) = Document::parse(&bytes, None) else { panic!() };
    Ok((digest, names(&blob(&layout, &manifest.layers[0].digest))))
}

fn tree() -> Bench {
    let bench = Bench::new("FROM scratch")
        .write(".git/HEAD", "ref")
        .write("a/run", "#!")
        .write("a/b/c", "x");
    set_mode(&bench.source().join("a/run"), 0o750);
    symlink("../run", bench.source().join("a/b/up")).unwrap();
    symlink("a/b", bench.source().join("dir")).unwrap();
    bench
}

#[test]
fn links_modes_and_git_are_kept() {
    let (_, names) = packed(&tree()).unwrap();
    let name = |path: &str| {
        names.iter().find(|name| name.path == path).unwrap_or_else(|| panic!("{path}"))
    };
    assert_eq!(name(".git/HEAD").content, "ref");
    assert_eq!(name("a/run").mode, 0o750);
    assert_eq!(name("a/b/up").content, "../run");
    assert_eq!(name("dir").content, "a/b");
    assert!(names.iter().all(|name| name.owner == (0, 0)));
    let order: Vec<_> = names.iter().map(|name| name.path.trim_end_matches('/')).collect();
    assert_eq!(
        order,
        [".git", ".git/HEAD", "Containerfile", "a", "a/b", "a/b/c", "a/b/up", "a/run", "dir"]
    );
}

#[test]
fn the_same_tree_gives_the_same_digest() {
    let bench = tree();
    let first = packed(&bench).unwrap().0;
    assert_eq!(packed(&bench).unwrap().0, first);
    set_mode(&bench.source().join("a/run"), 0o755);
    assert_ne!(packed(&bench).unwrap().0, first);
}

#[test]
fn what_leads_out_of_a_source_is_refused() {
    for target in ["/etc/passwd", "../../x", "b/../../../x"] {
        let bench = tree();
        symlink(target, bench.source().join("a/out")).unwrap();
        let error = packed(&bench).unwrap_err();
        assert!(matches!(error, PackError::Escapes { .. }), "{error}");
        assert!(error.to_string().contains(target), "{error}");
    }
    let bench = tree();
    symlink("../Containerfile", bench.source().join("a/in")).unwrap();
    assert!(packed(&bench).is_ok());
}

#[test]
fn pipes_are_refused_and_sockets_are_told() {
    let bench = tree();
    let _socket = std::os::unix::net::UnixListener::bind(bench.source().join("sock")).unwrap();
    let layout = Layout::create(&bench.dir.path().join("artifact")).unwrap();
    assert_eq!(pack(&bench.source(), &layout).unwrap().skipped, [std::path::Path::new("sock")]);
    let pipe = bench.source().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = pack(&bench.source(), &layout).unwrap_err();
    assert!(matches!(error, PackError::Special { kind: "pipe", .. }), "{error}");
}
