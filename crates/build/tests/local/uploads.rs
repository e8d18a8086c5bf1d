//! Sources that somebody sends.

use std::io::{Cursor, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use portolan_build::engine::Origin;
use portolan_build::source::{
    Announced, IGNORE_FILE, PackError, ReceiveError, pack_upload, receive,
};
use portolan_core::{Digest, Target};
use portolan_registry::layout::Layout;

use crate::{Bench, set_mode};

/// What is announced, and the bytes that are sent.
fn packed(bench: &Bench) -> Result<(Announced, Vec<u8>), PackError> {
    let layout = Layout::create(&bench.dir.path().join("artifact")).unwrap();
    let announced = Announced::from(&pack_upload(&bench.source(), &layout)?);
    let mut bytes = Vec::new();
    layout.open_blob(&announced.digest).unwrap().0.read_to_end(&mut bytes).unwrap();
    Ok((announced, bytes))
}

async fn arrive(announced: &Announced, bytes: Vec<u8>, to: &Path) -> Result<(), ReceiveError> {
    std::fs::create_dir_all(to).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let received = receive(Cursor::new(bytes), announced, temp.path(), to).await;
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "nothing stays behind");
    received
}

#[test]
fn what_a_cluster_would_not_be_sent_is_not_built_from_here_either() {
    let bench = Bench::new("FROM scratch\nCOPY . /src\n")
        .write(IGNORE_FILE, "*.log\n/secrets/\n")
        .write("deep/a.log", "x")
        .write("deep/kept", "kept")
        .write("secrets/key", "x");
    let mut request = bench.request(&["linux/amd64"]);
    request.origin = Origin::Sent { root: bench.source(), stored: true };
    let outcome = bench.run(&request).unwrap();
    assert!(outcome.succeeded, "{:#?}", outcome.status);
    let image = bench.image("1-linux-amd64");
    let names = image.paths();
    let has = |path: &str| names.contains(&path);
    assert!(has("src/deep/kept") && has("src/Containerfile"), "{names:?}");
    assert!(!has("src/deep/a.log") && !has("src/secrets/key"), "{names:?}");
    // What is stored beside the image is what would have been sent.
    let layout = Layout::create(&bench.dir.path().join("artifact")).unwrap();
    let sent = pack_upload(&bench.source(), &layout).unwrap().manifest.digest;
    let (stored, _) = bench.layout().manifest(&Target::Tag("1-src".parse().unwrap())).unwrap();
    assert_eq!(stored.digest, sent);
    // A recipe of its own name in a folder is found where the rest is.
    let bench = bench.write("deep/Other", "FROM scratch\nCOPY a.log /\n");
    let mut request = bench.request(&["linux/amd64"]);
    request.origin = Origin::Sent { root: bench.source(), stored: false };
    request.recipe.dir = bench.source().join("deep");
    request.recipe.file = Some(bench.source().join("deep/Other"));
    let outcome = bench.run(&request).unwrap();
    assert!(!outcome.succeeded, "a.log would not be there");
    assert!(outcome.status.conditions[0].message.contains("a.log"), "{:?}", outcome.status);
}

#[tokio::test]
async fn a_source_arrives_as_it_was_sent_without_what_is_ignored() {
    let bench = Bench::new("FROM scratch")
        .write(IGNORE_FILE, "*.log\n/target/\n!keep.log\n")
        .write("deep/a.log", "x")
        .write("deep/keep.log", "kept")
        .write("target/debug/x", "x")
        .write("deep/target/y", "y")
        .write(".git/HEAD", "ref")
        .write("run", "#!");
    set_mode(&bench.source().join("run"), 0o750);
    symlink("deep/keep.log", bench.source().join("link")).unwrap();
    let (announced, bytes) = packed(&bench).unwrap();
    assert_eq!(packed(&bench).unwrap().0, announced, "the same tree is the same upload");
    let to = bench.dir.path().join("to");
    arrive(&announced, bytes, &to).await.unwrap();
    let text = |name: &str| std::fs::read_to_string(to.join(name)).unwrap();
    assert_eq!(text("deep/keep.log"), "kept");
    assert_eq!(text("deep/target/y"), "y");
    assert_eq!(text(".git/HEAD"), "ref");
    assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("deep/keep.log"));
    assert_eq!(to.join("run").metadata().unwrap().permissions().mode() & 0o777, 0o750);
    assert!(!to.join("deep/a.log").exists() && !to.join("target").exists());
    let names = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name());
    let hidden: Vec<_> = names.filter(|n| n.to_string_lossy().starts_with(".portolan")).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}

#[tokio::test]
async fn what_was_not_announced_is_not_unpacked() {
    let bench = Bench::new("FROM scratch").write("a", "1");
    let (announced, bytes) = packed(&bench).unwrap();
    let other = Digest::sha256(b"other");
    let mut changed = bytes.clone();
    changed[20] ^= 1;
    let short = bytes[..bytes.len() - 1].to_vec();
    let huge = Announced { size: u64::MAX, ..announced.clone() };
    let wrong = Announced { diff_id: other, ..announced.clone() };
    for (case, announced, bytes) in [
        ("short", &announced, short),
        ("changed", &announced, changed),
        ("huge", &huge, bytes.clone()),
        ("another tar", &wrong, bytes.clone()),
    ] {
        let to = bench.dir.path().join(case);
        arrive(announced, bytes, &to).await.expect_err(case);
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), 0, "{case}");
    }
    let full = bench.source();
    let error = arrive(&announced, bytes.clone(), &full).await.unwrap_err();
    assert!(matches!(error, ReceiveError::NotEmpty(_)), "{error}");
    // What comes behind is not waited for: not every connection tells its end.
    let more = [bytes, vec![7; 100]].concat();
    arrive(&announced, more, &bench.dir.path().join("more")).await.unwrap();
}

#[tokio::test]
async fn a_source_that_leads_out_is_not_received() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, "link", "../../outside").unwrap();
    let tar = tar.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    let bytes = gzip.finish().unwrap();
    let announced = Announced {
        digest: Digest::sha256(&bytes),
        size: bytes.len() as u64,
        diff_id: Digest::sha256(&tar),
    };
    let error = arrive(&announced, bytes, &dir.path().join("to")).await.unwrap_err();
    assert!(error.to_string().contains("outside of it"), "{error}");
}

#[test]
fn a_pattern_that_means_nothing_is_told_with_its_line() {
    let bench = Bench::new("FROM scratch").write(IGNORE_FILE, "ok\n[z-a]\n");
    let error = packed(&bench).unwrap_err().to_string();
    assert!(error.contains(IGNORE_FILE) && error.contains("line 2"), "{error}");
}
