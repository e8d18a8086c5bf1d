//! Which disk is which: names like `vda` depend on the order a VMM presents its disks in, the UUID
//! in a file system's superblock does not.

/// Where the superblock of an ext4 file system begins and how much of it is looked at.
pub(crate) const OFFSET: u64 = 1024;
/// Up to the end of the UUID.
pub(crate) const LENGTH: usize = 120;

/// The UUID as 32 hex digits, if `bytes`, taken at [`OFFSET`], begin an ext4 superblock.
pub(crate) fn uuid(bytes: &[u8]) -> Option<String> {
    let magic = bytes.get(56..58)?;
    let uuid = bytes.get(104..LENGTH)?;
    (magic == [0x53, 0xef]).then(|| uuid.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_superblock_has_a_uuid() {
        let mut bytes = [0; LENGTH];
        assert_eq!(uuid(&bytes), None);
        bytes[56..58].copy_from_slice(&[0x53, 0xef]);
        bytes[104] = 0xab;
        assert_eq!(uuid(&bytes).unwrap(), format!("ab{}", "00".repeat(15)));
        assert_eq!(uuid(&bytes[..119]), None);
    }
}
