use std::fs;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;

use super::*;

/// A root, looked at with the kernel's walk and with our own.
fn both(dir: &TempDir, look: impl Fn(&Root)) {
    for kernel_walks in [true, false] {
        let root = Root::open(dir.path()).unwrap();
        root.kernel_walks.set(kernel_walks);
        look(&root);
    }
}

fn tree() -> TempDir {
    let outer = tempfile::tempdir().unwrap();
    fs::create_dir_all(outer.path().join("sys/bus/pci/devices")).unwrap();
    let device = outer.path().join("sys/devices/pci0/0000:00:01.0");
    fs::create_dir_all(&device).unwrap();
    fs::write(device.join("vendor"), "0x8086\n").unwrap();
    symlink("../vendor", device.join("escape")).unwrap();
    symlink("../../../devices/pci0/0000:00:01.0", outer.path().join("sys/bus/pci/devices/a"))
        .unwrap();
    symlink("/sys/devices/pci0/0000:00:01.0", outer.path().join("sys/bus/pci/devices/b")).unwrap();
    symlink("/../../../../etc", outer.path().join("sys/bus/pci/devices/c")).unwrap();
    symlink("d", outer.path().join("sys/bus/pci/devices/d")).unwrap();
    outer
}

#[test]
fn directories_are_as_safe_as_files() {
    both(&tree(), |root| {
        let devices = root.dir("/sys/bus/pci/devices").unwrap();
        assert_eq!(devices.names().unwrap(), ["a", "b", "c", "d"]);
        for name in ["a", "b"] {
            let device = devices.dir(name).unwrap();
            assert_eq!(device.text("vendor").unwrap(), "0x8086");
            assert_eq!(device.text("nothing"), Err(NotRead::Missing));
            assert!(device.has("vendor").unwrap());
            assert!(!device.has("nothing").unwrap());
        }
        // It leads out of the root, where there is nothing.
        assert_eq!(devices.dir("c").unwrap_err(), NotRead::Missing);
        assert!(matches!(devices.dir("d").unwrap_err(), NotRead::Unreadable(_)));
        assert_eq!(root.dir("/sys/bus/usb").unwrap_err(), NotRead::Missing);
        let file = root.dir("/sys/devices/pci0/0000:00:01.0/vendor").unwrap_err();
        assert_eq!(file, NotRead::Missing);
        assert_eq!(root.dir("/").unwrap().names().unwrap(), ["sys"]);
        assert_eq!(root.dir("/sys/../..").unwrap().names().unwrap(), ["sys"]);
    });
}

#[test]
fn what_is_too_long_is_not_cut_but_refused() {
    both(&tree(), |root| {
        let path = "/sys/devices/pci0/0000:00:01.0/vendor";
        assert_eq!(root.text(path, 7).unwrap(), "0x8086");
        let error = root.text(path, 6).unwrap_err().about(path);
        assert!(error.contains("longer than 6 bytes"), "{error}");
        // The older way takes what it gets.
        assert_eq!(root.read(path, 2).unwrap(), b"0x");
    });
}

#[test]
fn pipes_and_directories_are_no_files() {
    let dir = tree();
    let fifo = dir.path().join("sys/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    both(&dir, |root| {
        for path in ["/sys/fifo", "/sys/bus"] {
            let error = root.load(path, 10).unwrap_err().about(path);
            assert!(error.contains("not an ordinary file"), "{error}");
        }
        let sys = root.dir("/sys").unwrap();
        assert!(matches!(sys.text("fifo"), Err(NotRead::Unreadable(_))));
        assert_eq!(sys.dir("fifo").unwrap_err(), NotRead::Missing);
        assert_eq!(root.exists("/sys/fifo"), Some(true));
        assert_eq!(root.exists("/sys/none"), Some(false));
    });
}

#[test]
fn a_directory_without_end_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..4 {
        fs::write(dir.path().join(n.to_string()), "").unwrap();
    }
    let root = Root::open(dir.path()).unwrap();
    let dir = root.dir("/").unwrap();
    assert_eq!(dir.names_within(4).unwrap().len(), 4);
    let error = dir.names_within(3).unwrap_err().about("/");
    assert!(error.contains("more than 3 entries"), "{error}");
}

/// Every kernel with a network has this file, and its driver has no speed to tell.
#[test]
fn what_a_driver_does_not_tell_is_not_absent() {
    let root = Root::open(Path::new("/")).unwrap();
    let told = root.text("/sys/class/net/lo/speed", VALUE);
    assert_eq!(told, Err(NotRead::Unreadable(NOT_NOW.to_owned())));
}
