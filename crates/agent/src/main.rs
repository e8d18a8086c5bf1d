//! `portolan-agent`: fetch, verify, cache, boot.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: a machine's shim has no threads, no runtime and no log.
    if let Some(code) = portolan_agent::vmm::shim::run_if_asked() {
        return code;
    }
    ExitCode::SUCCESS
}
