//! Disks with a hash tree.

use std::process::Command;

use portolan_rootdisk::build::BuildOptions;
use portolan_rootdisk::checksum;

use crate::ext4_support::{fsck, run, text, tool};
use crate::images::{GZIP, Image, PLAIN, noise, same, threads};
use crate::support::tarball::{Item, Tarball};

#[test]
fn a_hash_tree_covers_the_disk_and_is_the_same_every_time() {
    let layer = |seed| Tarball::of([Item::file(format!("f{seed}"), noise(3_000_000, seed))]);
    let image = Image::default().with(GZIP, &layer(1)).with(PLAIN, &layer(2));
    let dir = tempfile::tempdir().unwrap();
    let mut root_hashes = Vec::new();
    for count in [1, 3] {
        let options = BuildOptions { verity: true, min_bytes: 300 << 20, ..threads(count) };
        let built = image.build(dir.path(), options).unwrap();
        let disk = dir.path().join(format!("{count}.ext4"));
        built.disk.rename(&disk).unwrap();
        let metadata = built.metadata;
        assert_eq!(metadata.checksum, checksum::of_file(&disk).unwrap());
        assert_eq!(metadata.size_bytes, std::fs::metadata(&disk).unwrap().len());
        let verity = metadata.verity.unwrap();
        assert_eq!(verity.hash_offset, 300 << 20);
        fsck(&disk);
        if let Some(veritysetup) = tool("veritysetup") {
            let mut command = Command::new(veritysetup);
            command.arg("verify").args([&disk, &disk]).arg(&verity.root_hash);
            let output = run(command.arg(format!("--hash-offset={}", verity.hash_offset)));
            assert!(output.status.success(), "{}", text(&output));
        }
        root_hashes.push(verity.root_hash);
    }
    assert_eq!(root_hashes[0], root_hashes[1]);
    let (one, two) = (dir.path().join("1.ext4"), dir.path().join("3.ext4"));
    assert!(same(&one, &two));
}
