//! The images that are compared: each rule of layers, each kind of entry.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::Result;
use portolan_e2e::{Entry, Layer, Tree};

/// Puts right what umoci does wrong.
type Correction = Box<dyn Fn(&mut Tree)>;

/// One image, and where umoci is not to be followed, with the reason.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) layers: Vec<Layer>,
    pub(crate) umoci_is_wrong: Vec<(String, &'static str, Correction)>,
    /// What umoci says when it cannot unpack the image at all; tar itself is then asked.
    pub(crate) umoci_refuses: Option<&'static str>,
}

impl Case {
    pub(crate) fn new(name: &str, layers: Vec<Layer>) -> Self {
        Self { name: name.to_owned(), layers, umoci_is_wrong: Vec::new(), umoci_refuses: None }
    }

    fn wrong(mut self, path: &str, why: &'static str, right: impl Fn(&mut Tree) + 'static) -> Self {
        self.umoci_is_wrong.push((path.to_owned(), why, Box::new(right)));
        self
    }

    /// A folder that no layer has: umoci gives it the time of the unpacking, which would make
    /// every build another one. Ours is of 1970.
    pub(crate) fn clock_of(self, path: &str) -> Self {
        let name = path.as_bytes().to_vec();
        let why = "a folder that is in no layer has the time of the clock";
        self.wrong(path, why, move |tree| {
            if let Some(node) = tree.get_mut(&name) {
                node.mtime = (0, 0);
            }
        })
    }
}

fn base() -> Layer {
    Layer::new().with(Entry::dir("./"))
}

/// Everything an entry may be.
pub(crate) fn entries() -> Vec<Case> {
    let (pattern, deep) = (pattern(), format!("deep/{}", vec!["d".repeat(100); 12].join("/")));
    let mut kinds = base()
        .with(Entry::dir("kinds/").mode(0o2750).owner(12, 34))
        .with(Entry::file("kinds/empty", ""))
        .with(Entry::file("kinds/one", "1").mode(0o600))
        .with(Entry::file("kinds/block", &pattern[..4096]).mode(0o444))
        .with(Entry::file("kinds/large", &pattern))
        .with(Entry::file("kinds/setuid", "s").mode(0o4755))
        .with(Entry::dir("kinds/sticky/").mode(0o1777))
        .with(Entry::special("kinds/char", '3', (1, 3)))
        .with(Entry::special("kinds/block-device", '4', (259, 70_000)))
        .with(Entry::special("kinds/fifo", '6', (0, 0)))
        .with(Entry::hardlink("kinds/link", "kinds/large"));
    for length in [1, 59, 60, 61, 100, 3000, 4000] {
        let name = format!("kinds/to-{length}");
        kinds = kinds.with(Entry::symlink(&name, &"t".repeat(length)));
    }
    let small = [7; 20];
    let (middle, large) = ([8; 600], [9; 3000]);
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let attributes = base()
        .with(Entry::file("small", "").xattr("user.small", &small))
        .with(Entry::file("middle", "").xattr("user.middle", &middle))
        .with(Entry::file("large", "").xattr("user.large", &large).xattr("user.also", &small))
        .with(Entry::file("capable", "").mode(0o755).xattr("security.capability", &capability))
        .with(Entry::dir("dir/").xattr("user.dir", b"on a directory"))
        .with(Entry::file("ids", "").owner(4_000_000_000, 3_999_999_999))
        .with(Entry::file("old", "").mtime(-86_400, 0))
        .with(Entry::file("older", "").mtime(-2_000_000_000, 250_000_000))
        .with(Entry::file("late", "").mtime(6_000_000_000, 123_456_789));
    let mut names = base()
        .with(Entry::file(&"n".repeat(255), "255"))
        .with(Entry::file(b"not-\xff\xfe-utf8", "bytes"))
        .with(Entry::file("new\nline", "line"))
        .with(Entry::file("späß", "utf-8"));
    let mut path = String::new();
    for part in deep.split('/') {
        path = format!("{path}{part}/");
        names = names.with(Entry::dir(&path));
    }
    names = names.with(Entry::file(&format!("{deep}/file"), "deep"));
    let mut crowd = base().with(Entry::dir("crowd/"));
    for number in 0..4000 {
        crowd = crowd.with(Entry::file(&format!("crowd/file-{number:05}"), &number.to_string()));
    }
    vec![
        Case::new("kinds", vec![kinds]),
        Case::new("attributes", vec![attributes]),
        Case::new("names", vec![names]),
        Case::new("a crowded directory", vec![crowd]),
    ]
}

/// Everything that one layer does to those below.
pub(crate) fn rules() -> Vec<Case> {
    let mut cases = vec![whiteouts(), types(), links(), symlinked_parents()];
    cases.push(Case::new(
        "the same name twice",
        vec![
            base()
                .with(Entry::file("twice", "first").mode(0o600))
                .with(Entry::file("twice", "second").mtime(1_600_000_000, 0))
                .with(Entry::file("becomes-dir", ""))
                .with(Entry::dir("becomes-dir/"))
                .with(Entry::file("becomes-dir/inside", "in")),
        ],
    ));
    cases.push(
        Case::new(
            "missing parents",
            vec![Layer::new().with(Entry::file("no/parents/here", "found")), Layer::new()],
        )
        .clock_of("")
        .clock_of("no")
        .clock_of("no/parents"),
    );
    cases.push(Case::new(
        "names that point out",
        vec![
            base()
                .with(Entry::file("/absolute", "inside all the same"))
                .with(Entry::dir("sub/"))
                .with(Entry::symlink("out", "/"))
                .with(Entry::symlink("up", "../../../../.."))
                .with(Entry::file("out/through-root", "stays"))
                .with(Entry::file("up/through-parents", "stays, too")),
        ],
    ));
    cases
}

fn whiteouts() -> Case {
    let mut lower = base().with(Entry::dir("opaque/")).with(Entry::dir("gone/"));
    for name in ["kept", "deleted", "opaque/a", "opaque/b", "gone/a", "again"] {
        lower = lower.with(Entry::file(name, name));
    }
    lower = lower
        .with(Entry::dir("opaque/sub/"))
        .with(Entry::file("opaque/sub/c", "c"))
        .with(Entry::file("one-name", "two names"))
        .with(Entry::hardlink("other-name", "one-name"));
    let upper = base()
        .with(Entry::file(".wh.deleted", ""))
        .with(Entry::file(".wh.gone", ""))
        .with(Entry::file(".wh.one-name", ""))
        .with(Entry::file(".wh.never-was", ""))
        .with(Entry::file(".wh.again", ""))
        .with(Entry::file("again", "anew"))
        // What its own layer put there survives an opaque mark, wherever the mark stands.
        .with(Entry::dir("opaque/"))
        .with(Entry::file("opaque/before", "before"))
        .with(Entry::file("opaque/.wh..wh..opq", ""))
        .with(Entry::file("opaque/after", "after"));
    Case::new("whiteouts", vec![lower, upper])
}

fn types() -> Case {
    let lower = base()
        .with(Entry::file("file-to-dir", "f"))
        .with(Entry::dir("dir-to-file/"))
        .with(Entry::file("dir-to-file/inside", "i"))
        .with(Entry::dir("dir-to-link/"))
        .with(Entry::file("dir-to-link/inside", "i"))
        .with(Entry::symlink("link-to-file", "file-to-dir"))
        .with(Entry::dir("target/"))
        .with(Entry::symlink("link-to-dir", "target"))
        .with(Entry::dir("dir-to-dir/").mode(0o700))
        .with(Entry::file("dir-to-dir/kept", "kept"));
    let upper = base()
        .with(Entry::dir("file-to-dir/"))
        .with(Entry::file("file-to-dir/inside", "new"))
        .with(Entry::file("dir-to-file", "now a file"))
        .with(Entry::symlink("dir-to-link", "target"))
        .with(Entry::file("link-to-file", "now a file"))
        .with(Entry::dir("link-to-dir/"))
        .with(Entry::file("link-to-dir/inside", "new"))
        .with(Entry::dir("dir-to-dir/").mode(0o755).mtime(1_500_000_000, 0));
    Case::new("changes of type", vec![lower, upper])
}

fn links() -> Case {
    let lower = base()
        .with(Entry::dir("a/"))
        .with(Entry::file("a/file", "shared").mode(0o640))
        .with(Entry::dir("b/"))
        .with(Entry::hardlink("b/same", "a/file"))
        .with(Entry::file("replaced", "old"))
        .with(Entry::hardlink("keeps-old", "replaced"))
        .with(Entry::symlink("soft", "a/file"))
        .with(Entry::hardlink("hard-to-soft", "soft"));
    let upper = base()
        .with(Entry::hardlink("from-above", "a/file"))
        .with(Entry::file("replaced", "new"))
        .with(Entry::hardlink("to-new", "replaced"));
    Case::new("hard links", vec![lower, upper])
}

fn symlinked_parents() -> Case {
    let lower = base()
        .with(Entry::dir("usr/"))
        .with(Entry::dir("usr/lib/"))
        .with(Entry::symlink("lib", "usr/lib"))
        .with(Entry::symlink("absolute", "/usr/lib"))
        .with(Entry::file("usr/lib/old", "old"));
    let upper = base()
        .with(Entry::file("lib/through", "relative"))
        .with(Entry::file("absolute/through-too", "absolute"))
        .with(Entry::file("lib/.wh.old", ""))
        // Else its time would be that of the unpacking.
        .with(Entry::dir("usr/lib/"));
    Case::new("parents that are links", vec![lower, upper])
}

/// Bytes that are not the same in any two blocks.
fn pattern() -> Vec<u8> {
    (0..700_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// A tree on disk for a packer to pack.
pub(crate) fn plant(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("sub/dir"))?;
    fs::write(root.join("sub/file"), pattern())?;
    fs::hard_link(root.join("sub/file"), root.join("hard"))?;
    symlink("sub/file", root.join("soft"))?;
    fs::set_permissions(root.join("sub/dir"), fs::Permissions::from_mode(0o1777))?;
    fs::write(root.join(format!("long-{}", "x".repeat(200))), "a long name")?;
    symlink("y".repeat(300), root.join("long-target"))?;
    let sparse = fs::File::create(root.join("sparse"))?;
    for at in [1 << 20, 5 << 20, (9 << 20) + 100] {
        sparse.write_all_at(b"island", at)?;
    }
    sparse.set_len(12 << 20)?;
    let note = root.join("sub/file");
    rustix::fs::setxattr(note, "user.note", b"kept", rustix::fs::XattrFlags::empty())?;
    Ok(())
}
