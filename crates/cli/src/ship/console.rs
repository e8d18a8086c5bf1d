//! A guest's console, shown line by line as it comes.

use std::time::Instant;

use portolan_agent::vmm::console::FirstLine;

use super::log::Screens;
use super::report::Booted;

/// A line without end is shown in pieces of this length.
const MAX_LINE: usize = 16 * 1024;

/// What came so far.
pub(super) struct Console<'a> {
    began: Instant,
    screens: &'a Screens,
    line: Vec<u8>,
    scanner: FirstLine,
    first: Option<(String, f64)>,
}

impl<'a> Console<'a> {
    pub(super) fn new(began: Instant, screens: &'a Screens) -> Self {
        Self { began, screens, line: Vec::new(), scanner: FirstLine::default(), first: None }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if let Some(line) = self.scanner.push(bytes) {
            self.first = Some((line, self.began.elapsed().as_secs_f64()));
        }
        for byte in bytes {
            if *byte == b'\n' || self.line.len() >= MAX_LINE {
                self.finish();
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
    }

    /// Shows what has no end yet.
    pub(super) fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if !line.is_empty() {
            self.screens.tell(&format!("| {line}"));
        }
    }

    pub(super) fn booted(&self, vmm: &str, end: String) -> Booted {
        Booted {
            vmm: vmm.to_owned(),
            first_line: self.first.as_ref().map(|(line, _)| line.clone()),
            seconds_to_first_line: self.first.as_ref().map(|(_, seconds)| *seconds),
            end,
        }
    }
}
