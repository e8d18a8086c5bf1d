//! The files of one machine in its instance's folder, and what is in them.
//!
//! The agent writes orders and reads reports; the shim reads orders and writes reports. Both may be
//! killed at any point, so a file counts only with the `run` it was written for.

use std::path::Path;

use jiff::Timestamp;
use portolan_registry::durable::{self, DurableError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Locked by the shim and its VMM as long as one of them lives, and by the agent while it changes
/// the other files. Never replaced: a lock is on a file, not on a name.
pub const LOCK: &str = "machine.lock";
/// What the shim is to do.
pub const ORDERS: &str = "machine.json";
/// The machine in Firecracker's words.
pub const DESCRIPTION: &str = "vm.json";
/// Who runs.
pub const RUNNING: &str = "running.json";
/// The guest has started the workload.
pub const BOOTED: &str = "booted";
/// How it ended.
pub const ENDED: &str = "ended.json";
/// What the guest wrote to its console last; what came before is in the second.
pub const CONSOLE: &str = "console.log";
/// The older half of the console.
pub const CONSOLE_OLD: &str = "console.log.1";
/// What the VMM wrote itself.
pub const VMM_LOG: &str = "vmm.log";
/// The older half of it.
pub const VMM_LOG_OLD: &str = "vmm.log.1";
/// A named pipe into the VMM's log.
pub const VMM_PIPE: &str = "vmm.pipe";
/// Firecracker's API, or QEMU's monitor.
pub const SOCKET: &str = "vmm.sock";
/// The initramfs of this start. It holds the workload's environment.
pub const INITRAMFS: &str = "initramfs.img";
/// The scratch disk.
pub const SCRATCH: &str = "scratch.ext4";

/// Everything that belongs to one run and goes before the next.
pub const OF_A_RUN: &[&str] = &[
    ORDERS,
    DESCRIPTION,
    RUNNING,
    BOOTED,
    ENDED,
    CONSOLE,
    CONSOLE_OLD,
    VMM_LOG,
    VMM_LOG_OLD,
    VMM_PIPE,
    SOCKET,
    INITRAMFS,
    SCRATCH,
];

/// No report has a KiB.
const MAX_BYTES: u64 = 1 << 20;

/// What the shim is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// This start, among all starts of all instances.
    pub run: String,
    /// What the guest's init puts in its lines.
    pub token: String,
    /// The VMM.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// How much of the console is kept.
    pub console_max_bytes: u64,
}

/// A process, named so that another one with its number is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessName {
    /// Its number.
    pub pid: i32,
    /// When it began, in ticks since the machine booted.
    pub start: u64,
}

/// Who runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningReport {
    /// Which start.
    pub run: String,
    /// The shim.
    pub shim: ProcessName,
    /// The VMM.
    pub vmm: ProcessName,
}

/// How a machine ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReport {
    /// Which start.
    pub run: String,
    /// When.
    pub at: Timestamp,
    /// How the VMM ended, in words; the guest's end is another matter.
    pub vmm: String,
    /// What the guest said last of its workload.
    pub workload: Option<WorkloadEnd>,
}

/// How a workload ended, as the guest's init told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadEnd {
    /// By itself, with this status.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// It was never started: what the guest could not do.
    Failed(String),
}

/// Reads a report. Nothing there, nothing readable and nothing understood are the same: not told.
pub fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Option<T> {
    let bytes = durable::read_bounded(&dir.join(name), MAX_BYTES).ok().flatten()?;
    serde_json::from_slice(&bytes).ok()
}

/// Writes a report or an order, all or nothing.
pub fn write<T: Serialize>(dir: &Path, name: &str, value: &T) -> Result<(), DurableError> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("plain values are JSON");
    bytes.push(b'\n');
    durable::replace(dir, &dir.join(name), &bytes)
}
