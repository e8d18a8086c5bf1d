//! The end of the machine, and the button that asks for it.

use std::fs::File;
use std::io::Read as _;

use rustix::system::{RebootCommand, reboot};

use crate::config::End;

/// Writes out what is to be kept and switches the machine off. Returns only where the kernel
/// refuses, and then process 1 ends, which makes the kernel panic and the machine stop as well.
pub(crate) fn off(end: End) {
    rustix::fs::sync();
    let _ = reboot(match end {
        End::PowerOff => RebootCommand::PowerOff,
        End::Restart => RebootCommand::Restart,
    });
}

/// Waits for the power button on the input device `name`, and calls `pressed` each time.
///
/// QEMU's `system_powerdown` is such a press. Ends with the device.
pub(crate) fn watch_button(mut device: File, pressed: impl Fn()) {
    let mut event = [0; EVENT_BYTES];
    while device.read_exact(&mut event).is_ok() {
        if is_power_key(&event) {
            pressed();
        }
    }
}

/// `struct input_event` with 64-bit times: two times of 8, type and code of 2, value of 4 bytes.
const EVENT_BYTES: usize = 24;

fn is_power_key(event: &[u8; EVENT_BYTES]) -> bool {
    const EV_KEY: u16 = 1;
    const KEY_POWER: u16 = 116;
    let half = |at: usize| u16::from_ne_bytes([event[at], event[at + 1]]);
    let value = i32::from_ne_bytes([event[20], event[21], event[22], event[23]]);
    half(16) == EV_KEY && half(18) == KEY_POWER && value == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn only_the_press_of_the_power_key_counts() {
        let event = |kind: u16, code: u16, value: i32| {
            let mut bytes = [0; EVENT_BYTES];
            bytes[16..18].copy_from_slice(&kind.to_ne_bytes());
            bytes[18..20].copy_from_slice(&code.to_ne_bytes());
            bytes[20..].copy_from_slice(&value.to_ne_bytes());
            bytes
        };
        let all = [event(1, 116, 1), event(0, 0, 0), event(1, 116, 0), event(1, 30, 1)].concat();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("event0");
        std::fs::write(&path, all).unwrap();
        let count = AtomicU32::new(0);
        watch_button(File::open(path).unwrap(), || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
