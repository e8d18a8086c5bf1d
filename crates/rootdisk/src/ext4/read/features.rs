//! Feature bits and their names, which are those of `dumpe2fs`.

use super::ReadError;

/// What a file system uses beyond plain ext2, by name; an unknown bit is `0x…`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// May be ignored by who does not know them.
    pub compatible: Vec<String>,
    /// Must be known to read.
    pub incompatible: Vec<String>,
    /// Must be known to write.
    pub read_only_compatible: Vec<String>,
}

impl Features {
    /// Whether a feature of this name is on.
    pub fn has(&self, name: &str) -> bool {
        [&self.compatible, &self.incompatible, &self.read_only_compatible]
            .into_iter()
            .flatten()
            .any(|feature| feature == name)
    }
}

pub(super) const NEEDS_RECOVERY: u32 = 0x4;
pub(super) const META_BG: u32 = 0x10;
pub(super) const SIXTY_FOUR_BIT: u32 = 0x80;
pub(super) const LARGE_DIR: u32 = 0x4000;
pub(super) const FILETYPE: u32 = 0x2;
pub(super) const SPARSE_SUPER: u32 = 0x1;
pub(super) const SPARSE_SUPER2: u32 = 0x200;

const COMPATIBLE: &[(u32, &str)] = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (0x4, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (0x20, "dir_index"),
    (0x40, "lazy_bg"),
    (0x80, "exclude_inode"),
    (0x100, "snapshot_bitmap"),
    (SPARSE_SUPER2, "sparse_super2"),
    (0x400, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPATIBLE: &[(u32, &str)] = &[
    (0x1, "compression"),
    (FILETYPE, "filetype"),
    (NEEDS_RECOVERY, "needs_recovery"),
    (0x8, "journal_dev"),
    (META_BG, "meta_bg"),
    (0x40, "extent"),
    (SIXTY_FOUR_BIT, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (LARGE_DIR, "large_dir"),
    (0x8000, "inline_data"),
    (0x10000, "encrypt"),
    (0x20000, "casefold"),
];

const READ_ONLY_COMPATIBLE: &[(u32, &str)] = &[
    (SPARSE_SUPER, "sparse_super"),
    (0x2, "large_file"),
    (0x4, "btree_dir"),
    (0x8, "huge_file"),
    (0x10, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x80, "snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x400, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (0x10000, "orphan_present"),
];

/// What this reader understands. A journal that was not replayed is among it: the caller is told
/// by [`Superblock::needs_recovery`](super::Superblock::needs_recovery).
const READ: u32 = FILETYPE
    | NEEDS_RECOVERY
    | META_BG
    | 0x40
    | SIXTY_FOUR_BIT
    | 0x100
    | 0x200
    | 0x400
    | 0x2000
    | LARGE_DIR
    | 0x8000
    | 0x20000;

pub(super) fn named(compatible: u32, incompatible: u32, read_only_compatible: u32) -> Features {
    Features {
        compatible: names(compatible, COMPATIBLE),
        incompatible: names(incompatible, INCOMPATIBLE),
        read_only_compatible: names(read_only_compatible, READ_ONLY_COMPATIBLE),
    }
}

fn names(bits: u32, known: &[(u32, &str)]) -> Vec<String> {
    (0..32)
        .map(|shift| 1_u32 << shift)
        .filter(|bit| bits & bit != 0)
        .map(|bit| match known.iter().find(|(known, _)| *known == bit) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("{bit:#x}"),
        })
        .collect()
}

/// Refuses what cannot be read without being understood.
pub(super) fn check(incompatible: u32) -> Result<(), ReadError> {
    match incompatible & !READ {
        0 => Ok(()),
        unread => Err(ReadError::Unsupported { features: names(unread, INCOMPATIBLE).join(", ") }),
    }
}
