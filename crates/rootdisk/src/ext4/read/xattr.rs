//! Extended attributes: in the inode, in a block, or each in an inode of its own.

use super::field::{byte, le16, le32};
use super::inode::EA_INODE;
use super::{Filesystem, Inode, ReadAt, ReadError};
use crate::tree::Xattr;

const MAGIC: u32 = 0xea02_0000;
/// What precedes the entries in a block.
const BLOCK_HEADER: usize = 32;
const IN_INODE_HEADER: usize = 4;
const ENTRY: usize = 16;
/// The kernel takes no larger value.
const MAX_VALUE: u32 = 64 * 1024;
/// For all values of one file together; with values in inodes a block could name 16 MiB.
const MAX_TOTAL: usize = 16 * 1024 * 1024;

const POSIX_ACL_ACCESS: u8 = 2;
const POSIX_ACL_DEFAULT: u8 = 3;
const SYSTEM: u8 = 7;
/// An attribute that is no attribute: where data that lies in the inode goes on.
pub(super) const INLINE_REST: (u8, &[u8]) = (SYSTEM, b"data");

/// An entry as it is on the disk.
struct Raw<'a> {
    namespace: u8,
    name: &'a [u8],
    value: Value<'a>,
}

enum Value<'a> {
    Here(&'a [u8]),
    InInode { number: u32, size: u32 },
}

impl<R: ReadAt> Filesystem<R> {
    /// All extended attributes, sorted by name, as the kernel would show them to root.
    ///
    /// ACLs are in the form in which programs exchange them, which is not that of the disk.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>, ReadError> {
        let block = self.xattr_block(inode)?;
        let mut total = 0;
        let mut found: Vec<Xattr> = Vec::new();
        for raw in all(inode, block.as_deref())? {
            if (raw.namespace, raw.name) == INLINE_REST {
                continue;
            }
            let mut name = prefix(raw.namespace)
                .ok_or_else(|| inode.damaged("an attribute's namespace is unknown"))?
                .as_bytes()
                .to_vec();
            name.extend_from_slice(raw.name);
            let mut value = self.value(inode, &raw.value)?;
            total += value.len();
            if total > MAX_TOTAL {
                return Err(inode.damaged("its attributes are larger than 16 MiB"));
            }
            if matches!(raw.namespace, POSIX_ACL_ACCESS | POSIX_ACL_DEFAULT) {
                value = acl(&value).ok_or_else(|| inode.damaged("its ACL cannot be read"))?;
            }
            found.push(Xattr { name: name.into(), value: value.into() });
        }
        // The inode's own come first and the sort is stable: they win, as in the kernel.
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|later, first| later.name == first.name);
        Ok(found)
    }

    /// An attribute the file system keeps for itself.
    pub(super) fn internal_xattr(
        &self,
        inode: &Inode,
        wanted: (u8, &[u8]),
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let found = in_inode(inode)?.into_iter().find(|raw| (raw.namespace, raw.name) == wanted);
        found.map(|raw| self.value(inode, &raw.value)).transpose()
    }

    fn xattr_block(&self, inode: &Inode) -> Result<Option<Vec<u8>>, ReadError> {
        match inode.xattr_block {
            0 => Ok(None),
            block => self.block(block).map(Some),
        }
    }

    fn value(&self, inode: &Inode, value: &Value<'_>) -> Result<Vec<u8>, ReadError> {
        match *value {
            Value::Here(bytes) => Ok(bytes.to_vec()),
            Value::InInode { number, size } => {
                let holder = self.inode(number)?;
                if !holder.has(EA_INODE) || holder.size != u64::from(size) || size > MAX_VALUE {
                    return Err(inode.damaged("an attribute's value is not where it says"));
                }
                self.small(&holder, u64::from(MAX_VALUE))
            }
        }
    }
}

fn all<'a>(inode: &'a Inode, block: Option<&'a [u8]>) -> Result<Vec<Raw<'a>>, ReadError> {
    let mut entries = in_inode(inode)?;
    if let Some(block) = block {
        if le32(block, 0) != MAGIC || le32(block, 8) != 1 {
            return Err(inode.damaged("its block of attributes is none"));
        }
        let area = block.get(BLOCK_HEADER..).unwrap_or_default();
        entries.extend(parse(area, block).map_err(|what| inode.damaged(what))?);
    }
    Ok(entries)
}

fn in_inode(inode: &Inode) -> Result<Vec<Raw<'_>>, ReadError> {
    if le32(&inode.tail, 0) != MAGIC {
        return Ok(Vec::new());
    }
    let area = inode.tail.get(IN_INODE_HEADER..).unwrap_or_default();
    parse(area, area).map_err(|what| inode.damaged(what))
}

/// Entries from the start of `area` to four zeros, their values somewhere in `values`.
fn parse<'a>(area: &'a [u8], values: &'a [u8]) -> Result<Vec<Raw<'a>>, &'static str> {
    let mut entries = Vec::new();
    let mut left = values.len();
    let mut at = 0;
    while le32(area, at) != 0 {
        let entry = area.get(at..at + ENTRY).ok_or("an attribute is cut")?;
        let name_length = usize::from(byte(entry, 0));
        let end = at + ENTRY + name_length;
        let name = area.get(at + ENTRY..end).ok_or("an attribute's name is cut")?;
        let (number, size) = (le32(entry, 4), le32(entry, 8));
        let value = if number != 0 {
            Value::InInode { number, size }
        } else {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            // Values that share bytes could make a small block stand for a large amount.
            left = left.checked_sub(size).ok_or("attributes are larger than their block")?;
            let start = if size == 0 { 0 } else { usize::from(le16(entry, 2)) };
            Value::Here(values.get(start..start + size).ok_or("an attribute's value is cut")?)
        };
        entries.push(Raw { namespace: byte(entry, 1), name, value });
        at = end.next_multiple_of(4);
    }
    Ok(entries)
}

fn prefix(namespace: u8) -> Option<&'static str> {
    Some(match namespace {
        1 => "user.",
        POSIX_ACL_ACCESS => "system.posix_acl_access",
        POSIX_ACL_DEFAULT => "system.posix_acl_default",
        4 => "trusted.",
        6 => "security.",
        SYSTEM => "system.",
        8 => "system.richacl",
        _ => return None,
    })
}

/// From the form on the disk, where only named users and groups have an id, to the exchanged one,
/// where every entry has.
fn acl(disk: &[u8]) -> Option<Vec<u8>> {
    const ON_DISK: u32 = 1;
    const EXCHANGED: u32 = 2;
    const UNNAMED: u32 = u32::MAX;
    if disk.len() < 4 || le32(disk, 0) != ON_DISK {
        return None;
    }
    let mut wire = EXCHANGED.to_le_bytes().to_vec();
    let mut rest = &disk[4..];
    while !rest.is_empty() {
        let (tag_and_permission, after) = rest.split_at_checked(4)?;
        wire.extend_from_slice(tag_and_permission);
        rest = after;
        match le16(tag_and_permission, 0) {
            // A named user, a named group.
            0x2 | 0x8 => {
                let (id, after) = rest.split_at_checked(4)?;
                wire.extend_from_slice(id);
                rest = after;
            }
            // The owner, the group, the mask, the others.
            0x1 | 0x4 | 0x10 | 0x20 => wire.extend_from_slice(&UNNAMED.to_le_bytes()),
            _ => return None,
        }
    }
    Some(wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_gets_an_id_for_every_entry() {
        let mut disk = vec![1, 0, 0, 0];
        disk.extend([1, 0, 6, 0]);
        disk.extend([2, 0, 4, 0, 0xe8, 3, 0, 0]);
        disk.extend([0x20, 0, 0, 0]);
        let mut wire = vec![2, 0, 0, 0];
        wire.extend([1, 0, 6, 0, 255, 255, 255, 255]);
        wire.extend([2, 0, 4, 0, 0xe8, 3, 0, 0]);
        wire.extend([0x20, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(acl(&disk), Some(wire));
        for cut in 0..disk.len() {
            let whole = [4, 8, 16].contains(&cut);
            assert_eq!(acl(&disk[..cut]).is_some(), whole, "{cut}");
        }
        assert_eq!(acl(&[1, 0, 0, 0, 3, 0, 0, 0]), None);
    }

    #[test]
    fn values_that_share_bytes_are_refused() {
        let mut area = vec![0; 64];
        for at in [0, 20] {
            area[at] = 1; // length of the name
            area[at + 1] = 1; // user.
            area[at + 2] = 24; // place of the value
            area[at + 8] = 40; // its size
            area[at + 16] = b'a';
        }
        assert_eq!(parse(&area, &area).err(), Some("attributes are larger than their block"));
    }
}
