//! POSIX access control lists: tar and the system calls have one form, ext4 keeps another.

const WIRE_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;

/// In the order in which the kernel wants them.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The list is not one that the kernel would have taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAnAcl;

/// The list as ext4 keeps it: version 1, and ids only where an entry needs one. None for a list
/// without entries, which to the kernel means that there is no list.
pub(super) fn to_disk(wire: &[u8]) -> Result<Option<Vec<u8>>, NotAnAcl> {
    let (version, entries) = wire.split_first_chunk::<4>().ok_or(NotAnAcl)?;
    if u32::from_le_bytes(*version) != WIRE_VERSION || entries.len() % 8 != 0 {
        return Err(NotAnAcl);
    }
    if entries.is_empty() {
        return Ok(None);
    }
    let mut disk = DISK_VERSION.to_le_bytes().to_vec();
    let mut seen = 0u16;
    for entry in entries.chunks_exact(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        let named = match tag {
            USER | GROUP => true,
            USER_OBJ | GROUP_OBJ | MASK | OTHER => false,
            _ => return Err(NotAnAcl),
        };
        // Tags rise; only those that carry an id may come again.
        if seen >= tag << 1 || (!named && seen & tag != 0) || permissions > 7 {
            return Err(NotAnAcl);
        }
        seen |= tag;
        disk.extend_from_slice(if named { entry } else { &entry[..4] });
    }
    let complete = seen & (USER_OBJ | GROUP_OBJ | OTHER) == USER_OBJ | GROUP_OBJ | OTHER;
    let masked = seen & (USER | GROUP) == 0 || seen & MASK != 0;
    if complete && masked { Ok(Some(disk)) } else { Err(NotAnAcl) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut wire = WIRE_VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            wire.extend(tag.to_le_bytes());
            wire.extend(permissions.to_le_bytes());
            wire.extend(id.to_le_bytes());
        }
        wire
    }

    const NONE: u32 = u32::MAX;

    #[test]
    fn a_list_loses_the_ids_that_say_nothing() {
        let list =
            [(1, 6, NONE), (2, 4, 1000), (2, 4, 1001), (4, 4, NONE), (16, 4, NONE), (32, 0, NONE)];
        let disk = to_disk(&wire(&list)).unwrap().unwrap();
        assert_eq!(disk.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(disk[..8], [1, 0, 0, 0, 1, 0, 6, 0]);
        assert_eq!(disk[8..16], [2, 0, 4, 0, 0xe8, 3, 0, 0]);
    }

    #[test]
    fn no_entries_are_no_list() {
        assert_eq!(to_disk(&wire(&[])), Ok(None));
    }

    #[test]
    fn lists_the_kernel_would_refuse_are_refused() {
        let minimal = [(1, 6, NONE), (4, 4, NONE), (32, 0, NONE)];
        assert!(to_disk(&wire(&minimal)).is_ok());
        for bad in [
            &[(1, 6, NONE), (4, 4, NONE)][..],
            &[(4, 4, NONE), (1, 6, NONE), (32, 0, NONE)],
            &[(1, 6, NONE), (1, 6, NONE), (4, 4, NONE), (32, 0, NONE)],
            &[(1, 6, NONE), (2, 6, 5), (4, 4, NONE), (32, 0, NONE)],
            &[(1, 8, NONE), (4, 4, NONE), (32, 0, NONE)],
            &[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE), (64, 0, NONE)],
            &[(0, 6, NONE), (1, 6, NONE), (4, 4, NONE), (32, 0, NONE)],
        ] {
            assert_eq!(to_disk(&wire(bad)), Err(NotAnAcl), "{bad:?}");
        }
        assert_eq!(to_disk(b"\x02\0\0"), Err(NotAnAcl));
        assert_eq!(to_disk(b"\x01\0\0\0\x01\0\x06\0"), Err(NotAnAcl));
        assert_eq!(to_disk(b"\x02\0\0\0\x01\0\x06\0"), Err(NotAnAcl));
    }
}
