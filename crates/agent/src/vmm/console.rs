//! What comes out of a guest: foreign bytes, without end if the guest wants so.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::files::WorkloadEnd;

/// A log that keeps the last half to whole of its bound: when the file is full it becomes the old
/// one, and the old one goes.
#[derive(Debug)]
pub struct BoundedLog {
    path: PathBuf,
    old: PathBuf,
    file: File,
    written: u64,
    half: u64,
}

impl BoundedLog {
    /// Begins with an empty file.
    pub fn create(path: &Path, old: &Path, max_bytes: u64) -> io::Result<Self> {
        let file = create(path)?;
        let half = (max_bytes / 2).max(1);
        Ok(Self { path: path.to_owned(), old: old.to_owned(), file, written: 0, half })
    }

    /// Appends. What does not fit into both halves is lost from the front.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.written >= self.half {
                std::fs::rename(&self.path, &self.old)?;
                self.file = create(&self.path)?;
                self.written = 0;
            }
            let room = usize::try_from(self.half - self.written).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.file.write_all(now)?;
            self.written += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }
}

fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // A workload's output is its owner's business.
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// What the guest's init said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// The workload has been started.
    Started,
    /// The machine boots; the answer to a probe.
    Boots,
    /// It is over.
    Ended(WorkloadEnd),
}

/// Finds the lines of the guest's init in what comes out of a console, in any cuts.
#[derive(Debug)]
pub struct Scanner {
    prefix: String,
    line: Vec<u8>,
    too_long: bool,
    /// The workload runs: from here on a line without the token may be its own.
    started: bool,
}

/// Longer than any line of our init (2,000 characters of at most 4 bytes).
const MAX_LINE: usize = 8192 + 128;

impl Scanner {
    /// For the init that was given this token.
    pub fn new(token: &str) -> Self {
        let prefix = format!("portolan-init[{token}]: ");
        Self { prefix, line: Vec::new(), too_long: false, started: false }
    }

    /// Takes the next bytes and calls `found` for each word in them.
    pub fn push(&mut self, bytes: &[u8], mut found: impl FnMut(Word)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            if self.line.len() + part.len() > MAX_LINE {
                self.too_long = true;
                self.line.clear();
            } else {
                self.line.extend_from_slice(part);
            }
            if ends {
                if !self.too_long
                    && let Some(word) = word(&self.prefix, &self.line, self.started)
                {
                    self.started |= word == Word::Started;
                    found(word);
                }
                self.too_long = false;
                self.line.clear();
            }
        }
    }
}

/// Finds the first line that a workload wrote, whoever started its machine: the one after init's
/// word that it is being started.
#[derive(Debug, Default)]
pub struct FirstLine {
    line: Vec<u8>,
    started: bool,
    found: bool,
}

impl FirstLine {
    /// Takes the next bytes; some at the end of the line. What is longer than lines are is told
    /// when that is known.
    pub fn push(&mut self, bytes: &[u8]) -> Option<String> {
        for byte in bytes.iter().copied().filter(|_| !self.found) {
            match byte {
                b'\n' => {
                    let line = String::from_utf8_lossy(&std::mem::take(&mut self.line))
                        .trim_end()
                        .to_owned();
                    let init = line.starts_with("portolan-init[");
                    if self.started && !init && !line.is_empty() {
                        self.found = true;
                        return Some(line);
                    }
                    self.started |= init && line.ends_with("]: workload started");
                }
                _ if self.line.len() < MAX_LINE => self.line.push(byte),
                _ => {}
            }
        }
        None
    }
}

fn word(prefix: &str, line: &[u8], started: bool) -> Option<Word> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let failed = |cause: &str| {
        // Foreign text that people will see in a terminal.
        let plain = cause.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Some(Word::Ended(WorkloadEnd::Failed(plain)))
    };
    // Before it has read its configuration, init knows no token; then nothing else runs either.
    let early = "portolan-init[]: failed: ";
    if let Some(cause) = line.strip_prefix(early).filter(|_| !started) {
        return failed(cause);
    }
    let text = line.strip_prefix(prefix)?;
    let number = |start: &str| text.strip_prefix(start).and_then(|number| number.parse().ok());
    if text == "workload started" {
        Some(Word::Started)
    } else if text == "this machine boots" {
        Some(Word::Boots)
    } else if let Some(status) = number("workload exited with status ") {
        Some(Word::Ended(WorkloadEnd::Exited(status)))
    } else if let Some(signal) = number("workload was killed by signal ") {
        Some(Word::Ended(WorkloadEnd::Killed(signal)))
    } else {
        failed(text.strip_prefix("failed: ")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_cannot_fill_the_hosts_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("c"), dir.path().join("c.1"));
        let mut log = BoundedLog::create(&path, &old, 1000).unwrap();
        let all: Vec<u8> = (0..100_000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for chunk in all.chunks(777) {
            log.write(chunk).unwrap();
            let kept = std::fs::metadata(&path).unwrap().len()
                + std::fs::metadata(&old).map_or(0, |file| file.len());
            assert!(kept <= 1000);
        }
        let kept = [std::fs::read(&old).unwrap(), std::fs::read(&path).unwrap()].concat();
        assert!(kept.len() >= 500);
        assert!(all.ends_with(&kept), "the last bytes are kept, in order");
    }

    #[test]
    fn words_are_found_in_any_cuts_and_only_with_the_token() {
        let text = b"[    1.0] kernel\r\n\nportolan-init[t]: workload started\nportolan-init[x]: workload exited with status 0\nhi\n\nportolan-init[t]: workload exited with status 7\n";
        for size in [1, 2, 7, 1000] {
            let mut scanner = Scanner::new("t");
            let mut words = Vec::new();
            for cut in text.chunks(size) {
                scanner.push(cut, |word| words.push(word));
            }
            assert_eq!(words, [Word::Started, Word::Ended(WorkloadEnd::Exited(7))], "{size}");
        }
    }

    #[test]
    fn the_first_line_of_a_workload_is_the_one_after_it_was_started() {
        let text =
            b"[ 1.0] kernel\n\nportolan-init[t]: workload started\n\nhello from linux\nmore\n";
        for size in [1, 3, 1000] {
            let mut first = FirstLine::default();
            let found: Vec<String> =
                text.chunks(size).filter_map(|part| first.push(part)).collect();
            assert_eq!(found, ["hello from linux"], "{size}");
        }
        let silent = b"\nportolan-init[t]: workload started\n\nportolan-init[t]: workload exited with status 0\n";
        assert_eq!(FirstLine::default().push(silent), None);
        let mut endless = FirstLine::default();
        endless.push(b"portolan-init[t]: workload started\n");
        assert_eq!(endless.push(&vec![b'x'; 3 * MAX_LINE]), None);
        assert_eq!(endless.push(b"\n").map(|line| line.len()), Some(MAX_LINE));
    }

    #[test]
    fn a_workload_cannot_tell_its_own_end_nor_what_a_terminal_does() {
        let early = b"portolan-init[]: failed: no \x1b[2J disk\n";
        let mut scanner = Scanner::new("t");
        let mut words = Vec::new();
        scanner.push(early, |word| words.push(word));
        assert_eq!(words, [Word::Ended(WorkloadEnd::Failed("no  [2J disk".into()))]);
        words.clear();
        scanner.push(b"portolan-init[t]: workload started\n", |word| words.push(word));
        scanner.push(early, |word| words.push(word));
        assert_eq!(words, [Word::Started], "from here on it is the workload that speaks");
    }

    #[test]
    fn a_line_without_end_takes_no_memory_and_hides_nothing_after_it() {
        let mut scanner = Scanner::new("t");
        let mut words = Vec::new();
        for _ in 0..1000 {
            scanner.push(&[b'x'; 4096], |word| words.push(word));
            assert!(scanner.line.capacity() <= 4 * MAX_LINE);
        }
        scanner
            .push(b"\nportolan-init[]: failed: could not read /x: no\n", |word| words.push(word));
        assert_eq!(words, [Word::Ended(WorkloadEnd::Failed("could not read /x: no".into()))]);
    }
}
