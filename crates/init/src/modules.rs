//! Kernel modules, in the order the agent found they need each other.

use std::fs::File;
use std::io;

use crate::step::{Failed, Step as _};

/// The kernel unpacks the module itself (Linux 5.17 and later, where its configuration says so).
const MODULE_INIT_COMPRESSED_FILE: i32 = 4;

pub(crate) fn load(paths: &[String]) -> Result<(), Failed> {
    for path in paths {
        let flags = if path.ends_with(".ko") { 0 } else { MODULE_INIT_COMPRESSED_FILE };
        let file = File::open(path).step("open kernel module", path)?;
        match rustix::system::finit_module(&file, c"", flags) {
            // Already there: the module of another name that this one is a part of.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(cause) => Err(io::Error::from(cause)).step("load kernel module", path)?,
        }
    }
    Ok(())
}
