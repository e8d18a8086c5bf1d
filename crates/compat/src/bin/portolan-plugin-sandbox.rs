//! The helper alone, for programs that use this library and cannot begin their own `main` with
//! `run_if_asked`. `portolan` and `portolan-agent` are their own helpers.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Only ever started with that argument.
    portolan_compat::external::sandbox::run_if_asked().unwrap_or_else(|| ExitCode::from(2))
}
