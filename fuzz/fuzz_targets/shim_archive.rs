//! A shim's archive is a stranger's: any bytes end in one program or a reason, within the bounds.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use portolan_shim::node::archive::{ArchiveError, Bounds, Take, read};

/// Small, so that a bomb is met within one input.
const MOST: usize = 1 << 20;

struct Count(usize);

impl Take for Count {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.0 += bytes.len();
        if self.0 > MOST {
            return Err(ArchiveError::TooLarge { what: "the program", limit: MOST as u64 });
        }
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let bounds = Bounds { unpacked: MOST as u64, program: MOST as u64, ratio: 100, entries: 64 };
    let mut taken = Count(0);
    if read(&mut Cursor::new(bytes), "containerd-shim-x", &bounds, &mut taken).is_ok() {
        assert!(taken.0 <= MOST);
    }
});
