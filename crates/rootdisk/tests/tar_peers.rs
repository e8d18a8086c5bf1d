//! What GNU tar writes, in each of its formats, is read as the files are.

#[path = "../../registry/tests/common/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use portolan_rootdisk::limits::{Budget, Limits};
use portolan_rootdisk::tar::{Head, HeadKind, Reader, Sink};
use skip::skip;

/// Files with their holes filled, by path.
#[derive(Default)]
struct Unpacked(BTreeMap<Vec<u8>, (Head, Vec<u8>)>, Vec<u8>);

impl Sink for Unpacked {
    type Error = Infallible;

    fn begin(&mut self, head: Head) -> Result<(), Infallible> {
        let size = match head.kind {
            HeadKind::File { size } => usize::try_from(size).expect("small"),
            _ => 0,
        };
        self.1 = head.path.0.to_vec();
        self.0.insert(self.1.clone(), (head, vec![0; size]));
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Infallible> {
        let (_, content) = self.0.get_mut(&self.1).expect("it began");
        let start = usize::try_from(offset).expect("small");
        content[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn gnu_tar(options: &[&str], dir: &Path) -> Option<Vec<u8>> {
    let output =
        Command::new("tar").arg("-C").arg(dir).args(options).args(["-cf", "-", "."]).output();
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

fn is_gnu() -> bool {
    let version = Command::new("tar").arg("--version").output();
    version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("GNU tar"))
}

/// Names of many lengths, links, times, holes.
fn make(dir: &Path, long_names: bool) {
    fs::create_dir_all(dir.join("sub/dir")).expect("made");
    let long = "n".repeat(180);
    let names = ["a", "sub/dir/b", &long, &format!("sub/{long}"), "tab\tand\nline"];
    for (number, name) in names.iter().enumerate().filter(|(_, n)| long_names || n.len() < 90) {
        let path = dir.join(name);
        fs::write(&path, vec![b'0' + u8::try_from(number).expect("few"); number * 700])
            .expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).expect("set");
        let file = File::options().write(true).open(&path).expect("open");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number as u64))
            .expect("set");
    }
    fs::hard_link(dir.join("a"), dir.join("hard")).expect("linked");
    std::os::unix::fs::symlink("sub/../a", dir.join("soft")).expect("linked");
    let sparse = File::create(dir.join("sparse")).expect("made");
    for piece in 0..40u64 {
        sparse.write_all_at(b"not a hole", piece * 131_072 + 5).expect("written");
    }
    sparse.set_len(40 * 131_072).expect("set");
}

#[track_caller]
fn compare(tar: &[u8], dir: &Path, what: &[&str]) {
    let budget = Arc::new(Budget::new(Limits::default()));
    let mut reader = Reader::new(budget, Unpacked::default());
    for piece in tar.chunks(10_007) {
        reader.push(piece).unwrap_or_else(|e| panic!("{what:?}: {e}"));
    }
    let (Unpacked(found, _), _) = reader.finish().unwrap_or_else(|e| panic!("{what:?}: {e}"));
    let mut open = vec![dir.to_owned()];
    let mut count = 0;
    while let Some(path) = open.pop() {
        let name = path.strip_prefix(dir).expect("below");
        let (head, content) = &found[name.as_os_str().as_encoded_bytes()];
        let meta = fs::symlink_metadata(&path).expect("there");
        count += 1;
        if meta.is_dir() {
            assert_eq!(head.kind, HeadKind::Directory, "{what:?} {name:?}");
            open.extend(fs::read_dir(&path).expect("listed").map(|e| e.expect("listed").path()));
            continue;
        }
        match &head.kind {
            HeadKind::Symlink(target) => {
                let said = fs::read_link(&path).expect("a link");
                assert_eq!(**target, *said.as_os_str().as_encoded_bytes());
                continue;
            }
            // Whichever name tar met first has the content.
            HeadKind::Hardlink(target) => {
                let other = fs::metadata(dir.join(String::from_utf8_lossy(&target.0).as_ref()));
                assert_eq!(other.expect("there").ino(), meta.ino(), "{what:?} {name:?}");
                continue;
            }
            HeadKind::File { .. } => {
                assert!(*content == fs::read(&path).expect("read"), "{what:?} {name:?}");
            }
            other => panic!("{what:?} {name:?}: {other:?}"),
        }
        let attributes = &head.attributes;
        assert_eq!(u32::from(attributes.mode), meta.mode() & 0o7777, "{what:?} {name:?}");
        assert_eq!((attributes.uid, attributes.gid), (meta.uid(), meta.gid()), "{what:?} {name:?}");
        assert_eq!(attributes.mtime.seconds, meta.mtime(), "{what:?} {name:?}");
    }
    assert_eq!(count, found.len(), "{what:?}");
}

#[test]
fn every_format_of_gnu_tar_is_read_as_the_files_are() {
    if !is_gnu() {
        return skip("GNU tar is not installed");
    }
    let dir = tempfile::tempdir().expect("a folder");
    make(dir.path(), true);
    let short = tempfile::tempdir().expect("a folder");
    make(short.path(), false);
    for (options, dir) in [
        (&["--format=gnu"][..], &dir),
        (&["--format=pax"], &dir),
        (&["--format=posix", "--xattrs"], &dir),
        (&["--format=oldgnu"], &dir),
        (&["--format=ustar"], &short),
        (&["--format=v7"], &short),
        (&["--format=gnu", "--sparse"], &dir),
        (&["--format=oldgnu", "--sparse"], &dir),
        (&["--format=pax", "--sparse", "--sparse-version=0.0"], &dir),
        (&["--format=pax", "--sparse", "--sparse-version=0.1"], &dir),
        (&["--format=pax", "--sparse", "--sparse-version=1.0"], &dir),
        (&["--format=gnu", "--blocking-factor=1"], &dir),
        (&["--format=pax", "--pax-option=globexthdr.name=g,comment=all"], &dir),
    ] {
        let tar = gnu_tar(options, dir.path()).expect("tar runs");
        compare(&tar, dir.path(), options);
    }
}

#[test]
fn owners_and_times_that_gnu_tar_writes() {
    if !is_gnu() {
        return skip("GNU tar is not installed");
    }
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("f"), b"x").expect("written");
    for (format, mtime, seconds) in [
        ("--format=gnu", "@-86400", -86_400),
        ("--format=pax", "@-86400.25", -86_401),
        ("--format=gnu", "@9000000000", 9_000_000_000),
        ("--format=pax", "@9000000000", 9_000_000_000),
    ] {
        let options =
            [format, "--owner=:4000000000", "--group=:3000000000", &format!("--mtime={mtime}")];
        let tar = gnu_tar(&options, dir.path()).expect("tar runs");
        let mut reader = Reader::new(Arc::new(Budget::new(Limits::default())), Unpacked::default());
        reader.push(&tar).expect("read");
        let (Unpacked(found, _), _) = reader.finish().expect("whole");
        let attributes = &found[&b"f"[..]].0.attributes;
        assert_eq!((attributes.uid, attributes.gid), (4_000_000_000, 3_000_000_000), "{options:?}");
        assert_eq!(attributes.mtime.seconds, seconds, "{options:?}");
    }
}
