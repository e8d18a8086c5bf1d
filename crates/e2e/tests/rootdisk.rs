//! Our disks as the kernel reads them, beside what umoci unpacks: the same tree, to the last bit.

mod corpus;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use corpus::Case;
use portolan_e2e::{
    Layer, Mount, RegistryKind, Testbed, Tree, differences, json, ok, ours, portolan, read_tree,
    run, tool, write_image,
};
use serde_json::json;

/// On the disk of the testbed, not in memory: trees have attributes that not every file system
/// in memory keeps.
fn folder() -> tempfile::TempDir {
    let run = Testbed::get().logs.parent().expect("the logs are in the run folder");
    tempfile::Builder::new().prefix("rootdisk-").tempdir_in(run).expect("a temporary folder")
}

fn build(reference: &str, disk: &Path, flags: &[&str]) {
    ok(portolan().args(["rootdisk", "build", reference, "--output"]).arg(disk).args(flags));
}

/// What the tools of ext4's own developers say: clean, shown, and how small it could be.
#[track_caller]
fn check(disk: &Path) -> Result<()> {
    ok(Command::new(tool("e2fsck")).arg("-fn").arg(disk));
    let shown = ok(Command::new(tool("dumpe2fs")).arg(disk));
    assert!(shown.contains("Filesystem state:         clean"), "{shown}");
    let smallest = ok(Command::new(tool("resize2fs")).arg("-P").arg(disk));
    let smallest: u64 = smallest.trim().rsplit(' ').next().context("a number")?.parse()?;
    let blocks = std::fs::metadata(disk)?.len() / 4096;
    assert!(smallest > 0 && smallest <= blocks, "{smallest} of {blocks}");
    Ok(())
}

/// What umoci unpacks, or tar where umoci refuses as the case says.
fn unpacked(case: &Case, layout: &Path, to: &Path) -> Result<Tree> {
    let image = format!("{}:1", layout.display());
    let umoci = run(Command::new(tool("umoci")).args(["unpack", "--image", &image]).arg(to))?;
    let Some(refusal) = case.umoci_refuses else {
        anyhow::ensure!(umoci.code == Some(0), "{umoci}");
        return read_tree(&to.join("rootfs"));
    };
    anyhow::ensure!(umoci.code != Some(0) && umoci.stderr.contains(refusal), "{umoci}");
    let other = to.with_extension("tar");
    std::fs::create_dir(&other)?;
    for layer in &case.layers {
        let tar = layout.with_extension("layer");
        std::fs::write(&tar, layer.tar())?;
        let flags = ["--extract", "--preserve-permissions", "--same-owner", "--numeric-owner"];
        ok(Command::new("tar").args(flags).arg("--file").arg(&tar).arg("-C").arg(&other));
    }
    read_tree(&other)
}

/// Builds, checks, mounts, unpacks and compares. What the case forgives must be there to be
/// forgiven, or the reason given for it is no longer true.
fn compare(case: &Case) -> Result<()> {
    let dir = folder();
    let layout = dir.path().join("image");
    let reference = write_image(&layout, &case.layers, json!({}))?;
    let disk = dir.path().join("disk.ext4");
    build(&reference, &disk, &[]);
    check(&disk)?;
    let mount = Mount::read_only(&disk)?;
    let found = read_tree(mount.path())?;
    let mut theirs = unpacked(case, &layout, &dir.path().join("bundle"))?;
    for (path, why, right) in &case.umoci_is_wrong {
        let before = theirs.clone();
        right(&mut theirs);
        if before == theirs {
            bail!("{}: umoci is right about {path} now: {why}", case.name);
        }
    }
    let lines = differences(&found, &theirs);
    if !lines.is_empty() {
        bail!("{}: {} differences\n{}", case.name, lines.len(), lines.join("\n"));
    }
    Ok(())
}

#[track_caller]
fn compare_all(cases: &[Case]) {
    let wrong: Vec<String> =
        cases.iter().filter_map(|case| compare(case).err()).map(|e| format!("{e:#}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_tree_is_umocis_for_every_kind_of_entry() {
    compare_all(&corpus::entries());
}

#[test]
fn the_tree_is_umocis_for_every_rule_of_layers() {
    compare_all(&corpus::rules());
}

#[test]
fn the_tree_is_umocis_in_whatever_format_tar_packs() {
    let dir = folder();
    let tree = dir.path().join("tree");
    corpus::plant(&tree).unwrap();
    let attributes = ["--xattrs", "--xattrs-include=*"];
    // What a format cannot say is left out: names of any length, holes, attributes.
    let formats = [
        ("ustar", &["--exclude=./long*"][..]),
        ("gnu", &[]),
        ("oldgnu", &["--sparse"]),
        ("gnu", &["--sparse"]),
        ("pax", &[&["--sparse"][..], &attributes].concat()),
        ("pax", &[&["--sparse", "--sparse-version=0.0"][..], &attributes].concat()),
        ("pax", &[&["--sparse", "--sparse-version=0.1"][..], &attributes].concat()),
    ];
    let cases: Vec<Case> = formats
        .iter()
        .map(|(format, flags)| {
            let format = format!("--format={format}");
            let flags = [&["--numeric-owner", &format][..], flags].concat();
            let mut case = Case::new(&flags.join(" "), vec![packed(&tree, &flags, &["."])]);
            if flags.contains(&"--sparse") && format.ends_with("gnu") {
                // It does not know the sparse files of GNU's own format.
                case.umoci_refuses = Some("unknown typeflag '\\x53'");
            }
            case
        })
        .collect();
    compare_all(&cases);
}

#[test]
fn the_tree_is_umocis_for_files_of_this_machine() {
    let wanted = ["usr/share/zoneinfo", "etc/alternatives", "usr/share/perl", "usr/lib/python3"];
    let there: Vec<&str> =
        wanted.into_iter().filter(|path| Path::new("/").join(path).exists()).collect();
    assert!(!there.is_empty(), "none of {wanted:?}");
    let layers = there
        .iter()
        .map(|path| packed(Path::new("/"), &["--numeric-owner", "--format=pax"], &[path]))
        .collect();
    // The folders above what is packed are in no layer.
    let mut case = Case::new("this machine", layers);
    for parent in ["", "usr", "usr/share", "usr/lib", "etc"] {
        let within = |path: &str| path.starts_with(parent) && path.len() > parent.len();
        if there.iter().any(|path| within(path)) {
            case = case.clock_of(parent);
        }
    }
    compare_all(&[case]);
}

/// A layer packed by tar itself.
fn packed(from: &Path, flags: &[&str], paths: &[&str]) -> Layer {
    let out = Command::new("tar")
        .args(["--create", "--sort=name"])
        .args(flags)
        .arg("--directory")
        .arg(from)
        .args(paths)
        .output()
        .expect("tar starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Layer::from_tar(out.stdout)
}

/// An image with something of everything, in a registry.
fn in_registry() -> Result<(portolan_e2e::Registry, String)> {
    let registry = RegistryKind::Embedded.start()?;
    let dir = folder();
    let layers: Vec<Layer> =
        corpus::entries().into_iter().chain(corpus::rules()).flat_map(|case| case.layers).collect();
    let from = write_image(&dir.path().join("image"), &layers, json!({}))?;
    let reference = format!("{}/everything:1", registry.address);
    ours(&["image", "copy", &from, &reference]);
    Ok((registry, reference))
}

#[test]
fn threads_and_the_page_cache_do_not_change_a_byte() {
    let (_registry, reference) = in_registry().unwrap();
    let dir = folder();
    let first = dir.path().join("first.ext4");
    build(&reference, &first, &["--threads", "1"]);
    check(&first).unwrap();
    for (number, flags) in
        [&["--threads", "2"][..], &["--threads", "9"], &["--threads", "3", "--buffered"], &[]]
            .iter()
            .enumerate()
    {
        let other = dir.path().join(format!("{number}.ext4"));
        build(&reference, &other, flags);
        ok(Command::new("cmp").arg(&first).arg(&other));
    }
}

#[test]
fn a_user_without_privileges_makes_the_same_disk() {
    let (_registry, reference) = in_registry().unwrap();
    let dir = folder();
    let mine = dir.path().join("root.ext4");
    build(&reference, &mine, &[]);

    // Where anyone may go, which the folder of the program itself need not be.
    let open = tempfile::tempdir().unwrap();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(open.path(), 0o777);
    let program = open.path().join("portolan");
    // By another process: what a test has open for writing, programs that other tests start inherit.
    ok(Command::new("cp").arg(portolan().get_program()).arg(&program));
    allow(&program, 0o755);
    let theirs = open.path().join("nobody.ext4");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    ok(Command::new("setpriv")
        .args(nobody)
        .arg("--bounding-set=-all")
        .arg(&program)
        .args(["rootdisk", "build", &reference, "--output"])
        .arg(&theirs)
        .env("HOME", open.path())
        .current_dir(open.path()));
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&theirs).unwrap());
    assert_eq!(owner, 65534);
    ok(Command::new("cmp").arg(&mine).arg(&theirs));
}

#[test]
fn a_disk_is_never_written_and_serves_as_the_lower_of_an_overlay() {
    let dir = folder();
    let case = corpus::rules().remove(0);
    let reference = write_image(&dir.path().join("image"), &case.layers, json!({})).unwrap();
    let disk = dir.path().join("disk.ext4");
    build(&reference, &disk, &[]);
    let sum = || ok(Command::new("sha256sum").arg(&disk));
    let before = sum();

    // Asked to be written to, the kernel refuses.
    let eager = Mount::writable(&disk);
    if let Ok(mount) = &eager {
        assert!(std::fs::write(mount.join("new"), "").is_err(), "a read-only disk was written to");
    }
    drop(eager);

    let lower = Mount::read_only(&disk).unwrap();
    let above = dir.path().join("above");
    let overlay = Mount::overlay(lower.path(), &above).unwrap();
    let under = read_tree(lower.path()).unwrap();
    let seen = read_tree(overlay.path()).unwrap();
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&under), names(&seen));
    // Written, changed and deleted above; untouched below.
    std::fs::write(overlay.join("new"), "new").unwrap();
    let victim = under
        .iter()
        .find(|(_, node)| node.mode & 0o170_000 == 0o100_000)
        .map(|(name, _)| String::from_utf8(name.clone()).unwrap())
        .expect("a file");
    std::fs::remove_file(overlay.join(&victim)).unwrap();
    assert!(!overlay.join(&victim).exists() && lower.join(&victim).exists());
    drop(overlay);
    drop(lower);
    assert_eq!(before, sum(), "the disk has changed");
}

#[test]
fn our_reader_sees_what_the_kernel_sees() {
    let dir = folder();
    let layers: Vec<Layer> = corpus::entries().into_iter().flat_map(|case| case.layers).collect();
    let reference = write_image(&dir.path().join("image"), &layers, json!({})).unwrap();
    let disk = dir.path().join("disk.ext4");
    let flags = ["--output", disk.to_str().unwrap(), "-o", "json"];
    let built = ours(&[&["rootdisk", "build", &reference][..], &flags].concat());
    let metadata = json(&built);
    assert!(metadata["resolved_digest"].as_str().is_some_and(|d| d.starts_with("sha256:")));

    let mount = Mount::read_only(&disk).unwrap();
    let shown = disk.to_str().unwrap();
    let list = run(portolan().args(["rootdisk", "inspect", shown, "--ls", "/"])).unwrap();
    assert_eq!(list.code, Some(0), "{list}");
    let mut read = 0;
    for (name, node) in read_tree(mount.path()).unwrap() {
        let Ok(name) = String::from_utf8(name) else { continue };
        let path = mount.join(&name);
        if node.mode & 0o170_000 == 0o100_000 && node.size < 1 << 20 && read < 20 {
            let out = portolan()
                .args(["rootdisk", "inspect", shown, "--cat", &format!("/{name}")])
                .output()
                .unwrap();
            assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
            assert!(out.stdout == std::fs::read(&path).unwrap(), "{name}");
            read += 1;
        }
    }
    assert_eq!(read, 20);

    let to: PathBuf = dir.path().join("extracted");
    let extract = ["rootdisk", "extract", shown, to.to_str().unwrap()];
    ours(&extract);
    let lines = differences(&read_tree(&to).unwrap(), &read_tree(mount.path()).unwrap());
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
