//! Trees to disks, judged by e2fsck, debugfs and a reader that is not ours.

mod ext4_support;

use ext4_support::{Builder, fsck};
use portolan_rootdisk::tree::{Kind, Tree};

#[test]
fn a_small_tree_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let mut builder = Builder::new();
    builder.file(Tree::ROOT, b"hello", b"world\n");
    let etc = builder.directory(Tree::ROOT, b"etc");
    builder.add(etc, b"link", Kind::Symlink(b"../hello"[..].into()));
    builder.add(etc, b"long", Kind::Symlink([b'x'; 100][..].into()));
    builder.write(&disk);
    fsck(&disk);
}
