//! Any bytes are a disk or an error: everything on it is read in bounded time and memory.
//!
//! The seeds are file systems that `mke2fs -d` made with 96 inodes in 400 KiB, packed by the rule
//! of `sparse`; `a_seed_is_a_sound_disk` in `crates/rootdisk/tests/ext4_hostile.rs` says what is in them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portolan_rootdisk::ext4::read::{FileKind, Filesystem};

#[path = "../../crates/rootdisk/tests/common/sparse.rs"]
mod sparse;

fuzz_target!(|bytes: &[u8]| {
    look(bytes);
    look(&sparse::unpack(bytes));
});

fn look(disk: &[u8]) {
    let Ok(fs) = Filesystem::open(disk) else { return };
    let Ok(root) = fs.root() else { return };
    let _ = fs.lookup_following(b"etc/deep/abs");
    let Ok(walk) = fs.walk(&root) else { return };
    for entry in walk.map_while(Result::ok) {
        let _ = fs.xattrs(&entry.inode);
        match entry.inode.kind {
            FileKind::File => {
                let mut given = 0;
                let _ = fs.read_file(&entry.inode, 0..64 * 1024, &mut |_, bytes| {
                    given += bytes.len();
                    Ok(())
                });
                assert!(given <= disk.len(), "more than the disk has");
            }
            FileKind::Symlink => drop(fs.read_link(&entry.inode)),
            _ => {}
        }
    }
}
