//! Extended attributes: in the inode while there is room, then in one block of their own, which
//! files with the same attributes share.

use std::borrow::Cow;
use std::collections::HashMap;

use super::acl::{self, NotAnAcl};
use super::format::{in_block, put16, put32};
use super::inode::XATTR_ROOM;
use crate::tree::{BLOCK, Kind, Xattr};

const MAGIC: u32 = 0xea02_0000;
/// Bytes of the header in a block; in an inode it is the magic alone.
const BLOCK_HEADER: usize = 32;
/// Bytes of an entry before its name.
const ENTRY: usize = 16;
/// Four zeros end the entries.
const END: usize = 4;
/// Files that may share a block; the kernel takes no more.
const MAX_SHARED: u32 = 1024;

const USER: u8 = 1;
const ACL_ACCESS: u8 = 2;
const ACL_DEFAULT: u8 = 3;
const TRUSTED: u8 = 4;
const SECURITY: u8 = 6;

/// An attribute as ext4 has it. The order is that of a block: the kernel searches it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    namespace: u8,
    name: &'a [u8],
    value: Cow<'a, [u8]>,
}

impl Attribute<'_> {
    fn order(&self) -> (u8, usize, &[u8]) {
        (self.namespace, self.name.len(), self.name)
    }

    /// Bytes of the entry and of the value.
    fn size(&self) -> usize {
        ENTRY + self.name.len().next_multiple_of(4) + self.value.len().next_multiple_of(4)
    }

    /// What is read most comes first into the inode: capabilities at every start of a program,
    /// lists at every access, what users put there when they ask for it.
    fn distance(&self) -> u8 {
        match self.namespace {
            SECURITY => 0,
            ACL_ACCESS | ACL_DEFAULT => 1,
            TRUSTED => 2,
            _ => 3,
        }
    }
}

/// Why attributes cannot be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadXattrs {
    /// Together they need as many bytes.
    TooLarge(usize),
    Acl,
}

impl From<NotAnAcl> for BadXattrs {
    fn from(_: NotAnAcl) -> Self {
        Self::Acl
    }
}

/// A file's attributes, each where it goes.
#[derive(Debug, Default)]
pub(super) struct Placed<'a> {
    pub(super) in_inode: Vec<Attribute<'a>>,
    pub(super) in_block: Vec<Attribute<'a>>,
    /// How many have no place in ext4 and were left out.
    pub(super) dropped: u32,
}

/// Decides where each attribute goes.
pub(super) fn place<'x>(xattrs: &'x [Xattr], kind: &Kind) -> Result<Placed<'x>, BadXattrs> {
    let mut placed = Placed::default();
    let mut attributes = Vec::with_capacity(xattrs.len());
    for xattr in xattrs {
        match convert(xattr)?.filter(|attribute| has_place(attribute.namespace, kind)) {
            Some(attribute) => attributes.push(attribute),
            None => placed.dropped += 1,
        }
    }
    attributes.sort_by(|a, b| (a.distance(), a.order()).cmp(&(b.distance(), b.order())));
    let needed = attributes.iter().map(Attribute::size).sum::<usize>();
    let (mut inode_room, mut block_room) = (XATTR_ROOM - 4 - END, BLOCK - BLOCK_HEADER - END);
    for attribute in attributes {
        let size = attribute.size();
        if size <= inode_room {
            inode_room -= size;
            placed.in_inode.push(attribute);
        } else if size <= block_room {
            block_room -= size;
            placed.in_block.push(attribute);
        } else {
            return Err(BadXattrs::TooLarge(needed));
        }
    }
    placed.in_inode.sort_by(|a, b| a.order().cmp(&b.order()));
    placed.in_block.sort_by(|a, b| a.order().cmp(&b.order()));
    Ok(placed)
}

/// Whether Linux itself would set such an attribute on such a file. One that it would not is worse
/// than useless: it makes an overlay fail to copy the file up.
fn has_place(namespace: u8, kind: &Kind) -> bool {
    match namespace {
        USER => matches!(kind, Kind::File(_) | Kind::Directory(_)),
        ACL_ACCESS => !matches!(kind, Kind::Symlink(_)),
        ACL_DEFAULT => matches!(kind, Kind::Directory(_)),
        _ => true,
    }
}

/// The attribute in ext4's words. None for a namespace that Linux does not have (`com.apple.…` from
/// a Mac).
fn convert(xattr: &Xattr) -> Result<Option<Attribute<'_>>, BadXattrs> {
    if let Some(namespace) = match &*xattr.name {
        b"system.posix_acl_access" => Some(ACL_ACCESS),
        b"system.posix_acl_default" => Some(ACL_DEFAULT),
        _ => None,
    } {
        let list = acl::to_disk(&xattr.value)?;
        return Ok(list.map(|list| Attribute { namespace, name: b"", value: list.into() }));
    }
    let known = [(USER, &b"user."[..]), (TRUSTED, b"trusted."), (SECURITY, b"security.")];
    let found = known.into_iter().find_map(|(namespace, prefix)| {
        Some((namespace, xattr.name.strip_prefix(prefix).filter(|name| !name.is_empty())?))
    });
    match found {
        Some((_, name)) if name.len() > 255 => Err(BadXattrs::TooLarge(name.len())),
        Some((namespace, name)) if !name.contains(&0) => {
            Ok(Some(Attribute { namespace, name, value: Cow::Borrowed(&xattr.value) }))
        }
        _ => Ok(None),
    }
}

/// Writes attributes into the end of an inode.
pub(super) fn put_in_inode(attributes: &[Attribute<'_>], out: &mut [u8]) {
    put32(out, 0, MAGIC);
    // Hashes are only kept in blocks, where they find a block to share.
    put_entries(attributes, 0, |_| 0, &mut out[4..]);
}

/// Writes attributes into a block.
pub(super) fn put_in_block(attributes: &[Attribute<'_>], references: u32, out: &mut [u8]) {
    put32(out, 0, MAGIC);
    put32(out, 4, references);
    put32(out, 8, 1);
    let hashes = attributes.iter().map(hash);
    put32(out, 12, hashes.fold(0u32, |all, one| all.rotate_left(16) ^ one));
    put_entries(attributes, BLOCK_HEADER, hash, out);
}

/// Entries from `at` forward, values from the end backward; offsets count from the start of `out`.
fn put_entries(
    attributes: &[Attribute<'_>],
    mut at: usize,
    hash: impl Fn(&Attribute<'_>) -> u32,
    out: &mut [u8],
) {
    let mut value_at = out.len();
    for attribute in attributes {
        let (name, value) = (attribute.name, &*attribute.value);
        out[at] = u8::try_from(name.len()).expect("checked when it was converted");
        out[at + 1] = attribute.namespace;
        if !value.is_empty() {
            value_at -= value.len().next_multiple_of(4);
            put16(out, at + 2, in_block(value_at));
            out[value_at..value_at + value.len()].copy_from_slice(value);
        }
        put32(out, at + 8, u32::from(in_block(value.len())));
        put32(out, at + 12, hash(attribute));
        at += ENTRY;
        out[at..at + name.len()].copy_from_slice(name);
        at += name.len().next_multiple_of(4);
    }
}

/// `e_hash`: the name's bytes, then the value's words, which zeros fill up.
fn hash(attribute: &Attribute<'_>) -> u32 {
    let name =
        attribute.name.iter().fold(0u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
    attribute.value.chunks(4).fold(name, |hash, bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// The blocks that files share, found by content while inodes are gone through once.
#[derive(Default)]
pub(super) struct SharedBlocks {
    by_content: HashMap<[u8; 32], usize>,
    /// In the order of the disk: the first node that has it, and how many have it.
    pub(super) blocks: Vec<(crate::tree::NodeId, u32)>,
}

impl SharedBlocks {
    /// Which block holds these attributes of `node`, counted from the first.
    pub(super) fn find(
        &mut self,
        attributes: &[Attribute<'_>],
        node: crate::tree::NodeId,
    ) -> usize {
        let mut bytes = [0; BLOCK];
        put_in_block(attributes, 0, &mut bytes);
        let fresh = self.blocks.len();
        let found = self.by_content.entry(*blake3::hash(&bytes).as_bytes()).or_insert(fresh);
        match self.blocks.get_mut(*found) {
            Some((_, references)) if *references < MAX_SHARED => *references += 1,
            _ => {
                *found = fresh;
                self.blocks.push((node, 1));
            }
        }
        *found
    }
}
