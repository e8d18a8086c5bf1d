//! The archive a kernel unpacks into its first file system: cpio in the "newc" form.
//!
//! Archives may follow one another in one file, later ones adding to earlier ones. The same entries
//! give the same bytes: no clock, no owner, no inode numbers of this machine.

/// The kernel looks for the next archive at a multiple of 4 bytes; 512 is what tools pad to.
const BLOCK: usize = 512;
/// Names longer than this are refused by the kernel (`PATH_MAX`).
const MAX_NAME: usize = 4095;
const TRAILER: &str = "TRAILER!!!";

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;

/// Why an entry cannot be in an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpioError {
    /// The form has 32 bits for a size.
    #[error("{name} has {size} bytes; an initramfs holds files of less than 4 GiB")]
    TooLarge {
        /// Which.
        name: String,
        /// Its size.
        size: usize,
    },
    /// The kernel would pass over it.
    #[error("a name of {0} bytes is too long for an initramfs")]
    NameTooLong(usize),
}

/// An archive in the making, in memory: an init and a few modules have a few MiB.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

struct Head<'a> {
    name: &'a str,
    mode: u32,
    links: u32,
    device: (u32, u32),
    size: u32,
}

impl Archive {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A directory. Parents come first.
    pub fn directory(&mut self, name: &str) -> Result<(), CpioError> {
        let mode = DIRECTORY | 0o755;
        self.entry(&Head { name, mode, links: 2, device: (0, 0), size: 0 })
    }

    /// A file that may be executed or only read.
    pub fn file(&mut self, name: &str, executable: bool, bytes: &[u8]) -> Result<(), CpioError> {
        let size = u32::try_from(bytes.len())
            .map_err(|_| CpioError::TooLarge { name: name.to_owned(), size: bytes.len() })?;
        let mode = REGULAR | if executable { 0o755 } else { 0o600 };
        self.entry(&Head { name, mode, links: 1, device: (0, 0), size })?;
        self.bytes.extend_from_slice(bytes);
        self.pad(4);
        Ok(())
    }

    /// A character device.
    pub fn character(&mut self, name: &str, device: (u32, u32)) -> Result<(), CpioError> {
        self.entry(&Head { name, mode: CHARACTER | 0o600, links: 1, device, size: 0 })
    }

    /// The archive, ended and padded so that another may follow.
    pub fn finish(mut self) -> Vec<u8> {
        // The trailer carries no number; 0 is what the kernel expects there.
        self.entries = 0;
        self.write_head(0, &Head { name: TRAILER, mode: 0, links: 1, device: (0, 0), size: 0 });
        self.pad(BLOCK);
        self.bytes
    }

    fn entry(&mut self, head: &Head<'_>) -> Result<(), CpioError> {
        if head.name.len() > MAX_NAME {
            return Err(CpioError::NameTooLong(head.name.len()));
        }
        self.entries += 1;
        self.write_head(self.entries, head);
        Ok(())
    }

    fn write_head(&mut self, inode: u32, head: &Head<'_>) {
        let name_size = u32::try_from(head.name.len() + 1).expect("names are short");
        let fields = [
            inode,
            head.mode,
            0, // uid
            0, // gid
            head.links,
            0, // mtime
            head.size,
            0, // device of the archived file
            0,
            head.device.0,
            head.device.1,
            name_size,
            0, // checksum, not used in this form
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(head.name.as_bytes());
        self.bytes.push(0);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let mut archive = Archive::new();
        archive.directory("dev").unwrap();
        archive.character("dev/console", (5, 1)).unwrap();
        archive.file("init", true, b"hello").unwrap();
        archive.finish()
    }

    /// A reader written from the form's description, not from the writer.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut at = 0;
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + n * 8..at + 14 + n * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[at + 110..at + 109 + name_size].to_vec()).unwrap();
            let data = (at + 110 + name_size).next_multiple_of(4);
            at = (data + size).next_multiple_of(4);
            if name == TRAILER {
                return found;
            }
            found.push((name, mode, bytes[data..data + size].to_vec()));
        }
    }

    #[test]
    fn what_was_put_in_can_be_read_back() {
        let bytes = archive();
        assert_eq!(bytes.len() % BLOCK, 0);
        let entries = read(&bytes);
        assert_eq!(entries[0], ("dev".to_owned(), 0o040_755, vec![]));
        assert_eq!(entries[1], ("dev/console".to_owned(), 0o020_600, vec![]));
        assert_eq!(entries[2], ("init".to_owned(), 0o100_755, b"hello".to_vec()));
    }

    #[test]
    fn the_same_entries_are_the_same_bytes() {
        assert_eq!(archive(), archive());
    }

    #[test]
    fn a_name_that_the_kernel_would_pass_over_is_refused() {
        let long = "x".repeat(MAX_NAME + 1);
        assert_eq!(Archive::new().directory(&long), Err(CpioError::NameTooLong(MAX_NAME + 1)));
    }
}
