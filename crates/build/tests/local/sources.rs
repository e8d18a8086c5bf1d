//! Source artifacts.

use std::os::unix::fs::symlink;

use portolan_build::engine;
use portolan_build::source::{PackError, UnpackError, pack, unpack};
use portolan_core::manifest::Document;
use portolan_core::{Descriptor, Digest, Manifest, Reference, Target, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::client::{Client, CredentialStore, Settings};
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

/// By its own words the second link ends two directories deep; really it is two above the root.
const CHAIN: [(&str, &str); 2] = [("a/b/d", "../.."), ("x", "a/b/d/../../etc/passwd")];

#[test]
fn links_that_lead_out_through_others_are_refused() {
    let bench = tree();
    symlink(CHAIN[0].1, bench.source().join(CHAIN[0].0)).unwrap();
    assert!(packed(&bench).is_ok(), "the root itself is inside");
    symlink(CHAIN[1].1, bench.source().join(CHAIN[1].0)).unwrap();
    let error = packed(&bench).unwrap_err();
    assert!(error.to_string().contains("a/b/d/../../etc/passwd"), "{error}");
    let artifact = strangers(&bench, &CHAIN.map(|(path, link)| (path.as_bytes(), Some(link))));
    let target = bench.dir.path().join("target");
    let client = Client::new(Settings::default(), CredentialStore::anonymous()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let done = runtime.block_on(unpack(&artifact, &client, bench.dir.path(), &target));
    assert!(matches!(&done, Err(UnpackError::Escapes { path, .. }) if path == "x"), "{done:?}");
    assert!(!target.exists(), "nothing is written before all links are judged");
}

#[test]
fn a_name_in_a_source_that_is_a_link_out_is_not_built_from() {
    let bench = tree();
    symlink(bench.dir.path(), bench.source().join("rooted")).unwrap();
    symlink("a/b/../../..", bench.source().join("above")).unwrap();
    for path in ["rooted", "above", "a/../.."] {
        let error = engine::inside(&bench.source(), path.as_ref()).unwrap_err();
        let said = portolan_core::causes::chain(&error);
        assert!(said.contains(path) && said.contains("leads out"), "{said}");
        assert_eq!(error.class(), Some(portolan_registry::ErrorClass::BadInput));
    }
    let found = engine::inside(&bench.source(), "dir".as_ref()).unwrap();
    assert!(found.ends_with("a/b"), "{found:?}");
    assert!(engine::inside(&bench.source(), "not-there".as_ref()).is_ok());
    // The same where the source is an artifact: `..` is no way out of it.
    let artifact = strangers(&bench, &[(b"Containerfile", None)]);
    let mut request = bench.request(&["linux/amd64"]);
    request.origin = engine::Origin::Artifact(Box::new(artifact));
    request.recipe.dir = "..".into();
    let error = bench.run(&request).unwrap_err();
    assert!(matches!(error, engine::EngineError::Outside(..)), "{error}");
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

#[test]
fn a_name_that_would_take_another_away_is_refused() {
    let bench = tree().write("a/.wh.b", "");
    let said = portolan_core::causes::chain(&packed(&bench).unwrap_err());
    assert!(said.contains("a/.wh.b"), "{said}");
    let said = Bench::new("FROM scratch\nCOPY .wh.x /\n").write(".wh.x", "").refused();
    assert!(said.contains("takes another file away"), "{said}");
}

/// An artifact that a stranger made: links and empty files, under names that ours never have.
fn strangers(bench: &Bench, names: &[(&[u8], Option<&str>)]) -> Reference {
    let layout = Layout::create(&bench.dir.path().join("strange")).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    for (path, link) in names {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path);
        header.set_mode(0o644);
        header.set_size(0);
        if let Some(link) = link {
            header.set_entry_type(tar::EntryType::Symlink);
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_cksum();
        archive.append(&header, std::io::empty()).unwrap();
    }
    let tar = archive.into_inner().unwrap();
    let config =
        serde_json::json!({"rootfs": {"type": "layers", "diff_ids": [Digest::sha256(&tar)]}});
    let config = config.to_string();
    layout.put_blob(&tar).unwrap();
    layout.put_blob(config.as_bytes()).unwrap();
    let layer = Descriptor::of("application/vnd.oci.image.layer.v1.tar", &tar);
    let config = Descriptor::of(media_type::OCI_CONFIG, config.as_bytes());
    let manifest = Manifest::new(config, vec![layer]).to_vec();
    let tag = "s".parse().unwrap();
    layout.put_manifest(media_type::OCI_MANIFEST, &manifest, Some(&tag)).unwrap();
    format!("oci:{}:s", layout.dir().display()).parse().unwrap()
}

#[test]
fn a_strangers_artifact_writes_nothing_outside() {
    for (path, link) in [
        (&b"out"[..], Some("/etc/passwd")),
        (b"a/out", Some("../../x")),
        (b"../escaped", None),
        (b"a/../../escaped", None),
    ] {
        let bench = tree();
        let artifact = strangers(&bench, &[(path, link)]);
        let (temp, target) = (bench.dir.path(), bench.dir.path().join("deep/target"));
        std::fs::create_dir(bench.dir.path().join("deep")).unwrap();
        let client = Client::new(Settings::default(), CredentialStore::anonymous()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let done = runtime.block_on(unpack(&artifact, &client, temp, &target));
        match link {
            Some(_) => assert!(matches!(done, Err(UnpackError::Escapes { .. })), "{done:?}"),
            // Such a name is refused, or means one below the root, as to whoever unpacks images.
            None => drop(done),
        }
        for outside in ["escaped", "deep/escaped", "x"] {
            assert!(!bench.dir.path().join(outside).exists(), "{outside}");
        }
    }
}

/// A directory with so many in one another, and a file in the last.
fn deep(names: usize) -> Bench {
    let text = "FROM scratch AS one\nCOPY . /\nFROM scratch\nCOPY --from=one / /\n";
    Bench::new(text).write(&format!("{}f", "a/".repeat(names - 1)), "x")
}

/// On the threads that the program does it on, whose stacks are small.
fn packed_elsewhere(bench: &Bench) -> Result<(), PackError> {
    let layout = Layout::create(&bench.dir.path().join("artifact")).unwrap();
    let source = bench.source();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let work = runtime.spawn_blocking(move || pack(&source, &layout).map(|_| ()));
    runtime.block_on(work).unwrap()
}

#[test]
fn directories_in_one_another_are_packed_and_copied_as_deep_as_they_are_unpacked() {
    let bench = deep(1000);
    packed_elsewhere(&bench).unwrap();
    let image = bench.build();
    let found = image.layers.iter().all(|layer| layer.iter().any(|name| name.path.len() == 1999));
    assert!(found && image.layers.len() == 1);
}

#[test]
fn directories_that_nobody_could_unpack_are_refused_by_name() {
    let bench = deep(1100);
    let error = packed_elsewhere(&bench).unwrap_err();
    assert_eq!(error.class(), ErrorClass::BadInput);
    let said = error.to_string();
    assert!(said.contains("a/a/a") && said.contains("1024 names deep"), "{said}");
    let outcome = bench.run(&bench.request(&["linux/amd64"])).unwrap();
    assert_eq!(outcome.class, Some(ErrorClass::BadInput));
    let said = &outcome.status.conditions[0].message;
    assert!(said.contains("1024 names deep"), "{said}");
}
