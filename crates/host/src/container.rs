//! Whether the files below a root are a container image's rather than the host's.
//!
//! In a container `/proc` and `/sys` mostly tell of the host, but `/etc`, `/boot`, `/lib/modules`
//! are the image's, and the network devices are the container's own. A marker such as
//! `/.dockerenv` proves nothing: it is easily copied and easily missing. What counts is:
//!
//! * the first process's own root (`/proc/1/mountinfo`): an overlay of layers that a container
//!   engine keeps, or the share that Kata gives its guests;
//! * on this machine only: a process namespace that is not the first one, or a root that is not
//!   the first process's.
//!
//! Whoever names a root (`--host`) says that the files in it are the host's; then only the first
//! of these can contradict.

use crate::root::{NotRead, Root};

/// A node with hundreds of pods has thousands of mounts of some 300 bytes.
const LIMIT: u64 = 8 << 20;

/// The number that the kernel gives to the first process namespace; part of its interface, since
/// it never changed.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Where engines keep the layers that a container's root is made of.
const ENGINES: [&str; 5] =
    ["/docker/", "/containerd/", "/containers/storage/", "/buildkit/", "io.containerd."];

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Why the files of the root are not the host's, if they are not.
    pub(crate) image_files: Option<String>,
    /// The files that lxcfs shows in place of the kernel's: they tell a container's limits.
    pub(crate) overlaid: Vec<String>,
    /// What a reader of the facts should know.
    pub(crate) warnings: Vec<String>,
}

/// Looks at the root, and at this process too if it is `here`.
pub(crate) fn evidence(root: &Root, here: bool) -> Evidence {
    let mut unread = Vec::new();
    let mut mounts = |path: &str| match root.text(path, LIMIT) {
        Ok(mounts) => mounts,
        Err(why) => {
            root.note(path, &why);
            if let NotRead::Unreadable(_) = why {
                unread.push(why.about(path));
            }
            String::new()
        }
    };
    let first = mounts("/proc/1/mountinfo");
    let mut evidence = from_mounts(&first);
    if here {
        let own = mounts("/proc/thread-self/mountinfo");
        evidence.overlaid = from_mounts(&own).overlaid;
        let foreign = other_namespace().or_else(|| other_root(&first, &own));
        evidence.image_files = evidence.image_files.or(foreign);
    }
    if root.text("/proc/version", 4096).is_ok_and(|version| is_gvisor(&version)) {
        let gvisor = "this is gVisor: the facts are about the kernel that it imitates";
        evidence.warnings.push(gvisor.to_owned());
        let foreign = || "the root is a container's in gVisor".to_owned();
        evidence.image_files.get_or_insert_with(foreign);
    }
    for why in unread {
        let unsure = "whether the root is a container's is not known from it";
        evidence.warnings.push(format!("{why}: {unsure}"));
    }
    if let Some(why) = &evidence.image_files {
        evidence.warnings.push(format!(
            "{why}: files of the image are not taken for the host's; mount the host's root and \
             name it with --host"
        ));
    }
    evidence
}

/// A line of `mountinfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mount<'a> {
    device: &'a str,
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    source: &'a str,
    options: &'a str,
}

fn mount(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (device, root, point) = (before.next()?, before.next()?, before.next()?);
    let mut after = after.splitn(3, ' ');
    let (kind, source) = (after.next()?, after.next()?);
    Some(Mount { device, root, point, kind, source, options: after.next().unwrap_or_default() })
}

/// The mount that is seen at `/`: the last one covers those before it.
fn root_mount(mountinfo: &str) -> Option<Mount<'_>> {
    mountinfo.lines().rev().filter_map(mount).find(|mount| mount.point == "/")
}

fn from_mounts(mountinfo: &str) -> Evidence {
    let image_files = root_mount(mountinfo).and_then(|root| {
        let layers = root.kind == "overlay" && ENGINES.iter().any(|e| root.options.contains(e));
        let kata = matches!(root.kind, "virtiofs" | "9p") && root.source == "kataShared";
        match () {
            () if layers => Some("the root is a container's, made of an engine's layers"),
            () if kata => Some("the root is a container's in a Kata guest"),
            () => None,
        }
    });
    let overlaid = mountinfo.lines().filter_map(mount).filter(|mount| mount.kind == "fuse.lxcfs");
    Evidence {
        image_files: image_files.map(str::to_owned),
        overlaid: overlaid.map(|mount| mount.point.to_owned()).collect(),
        warnings: Vec::new(),
    }
}

fn other_namespace() -> Option<String> {
    let namespace = rustix::fs::stat("/proc/self/ns/pid").ok()?;
    (namespace.st_ino != FIRST_PID_NAMESPACE).then(|| {
        "this process runs in a process namespace of its own, as in a container".to_owned()
    })
}

/// With the host's processes in sight, the first one's root is the host's.
fn other_root(first: &str, own: &str) -> Option<String> {
    let differs = match (rustix::fs::stat("/proc/1/root"), rustix::fs::stat("/")) {
        (Ok(host), Ok(own)) => (host.st_dev, host.st_ino) != (own.st_dev, own.st_ino),
        // Only root may look through that link, but everybody may read what is mounted there.
        _ => {
            let place = |mount: Mount<'_>| (mount.device.to_owned(), mount.root.to_owned());
            let (host, own) = (root_mount(first)?, root_mount(own)?);
            place(host) != place(own)
        }
    };
    differs.then(|| "this process has another root than the machine's first one".to_owned())
}

/// gVisor's kernel has always told this one build.
fn is_gvisor(version: &str) -> bool {
    version.contains("#1 SMP Sun Jan 10 15:06:54 PST 2016")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
        90 22 0:50 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n";

    #[test]
    fn a_root_of_layers_is_a_containers() {
        let none = from_mounts(HOST);
        assert_eq!(none, Evidence::default());
        for options in [
            "rw,lowerdir=/var/lib/docker/overlay2/l/A,upperdir=/var/lib/docker/overlay2/x/diff",
            "rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs",
            "rw,lowerdir=/var/lib/containers/storage/overlay/l/A",
        ] {
            let text = format!("800 700 0:60 / / rw,relatime - overlay overlay {options}\n");
            assert!(from_mounts(&text).image_files.is_some(), "{options}");
        }
        let kata = "1 0 0:20 /x/rootfs / rw - virtiofs kataShared rw\n";
        assert!(from_mounts(kata).image_files.unwrap().contains("Kata"));
        // A live system and a router have overlays too.
        let live = "1 0 0:20 / / rw - overlay overlay rw,lowerdir=/run/live/rootfs/filesystem\n";
        assert_eq!(from_mounts(live).image_files, None);
        for rubbish in ["", "\n\n", "1 2 3", "1 2 3 / / rw -", " - ", "1 2 3 / / rw - overlay"] {
            assert_eq!(from_mounts(rubbish), Evidence::default(), "{rubbish}");
        }
    }

    #[test]
    fn the_last_mount_at_the_root_is_seen() {
        let text = format!("{HOST}9 1 0:9 / / rw - overlay o lowerdir=/x/containers/storage/l\n");
        assert!(from_mounts(&text).image_files.is_some());
    }

    #[test]
    fn lxcfs_is_seen() {
        let text = "1 0 0:20 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw,user_id=0\n";
        assert_eq!(from_mounts(text).overlaid, ["/proc/meminfo"]);
    }

    #[test]
    fn gvisor_tells_one_build() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let version = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n";
        std::fs::write(dir.path().join("proc/version"), version).unwrap();
        let found = evidence(&Root::open(dir.path()).unwrap(), false);
        assert!(found.image_files.unwrap().contains("gVisor"));
        assert_eq!(found.warnings.len(), 2);
        assert!(is_gvisor("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"));
        assert!(!is_gvisor("Linux version 6.1.0-18-amd64 (debian-kernel@lists.debian.org)"));
    }
}
