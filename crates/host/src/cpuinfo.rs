//! `/proc/cpuinfo`, which each architecture writes in its own way.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::fact::Fact;
use crate::root::{NotRead, Root};

pub(crate) const PATH: &str = "/proc/cpuinfo";

/// A machine of a thousand processors writes about 2 MiB.
const LIMIT: u64 = 16 << 20;

/// The lines `key : value`, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuInfo {
    text: String,
    /// Where keys and values are in the text: a hostile file has millions of short lines, and a
    /// text of its own for each would be many times as large as the file.
    lines: Vec<(Range<u32>, Range<u32>)>,
}

/// What it says, or why it says nothing.
pub(crate) fn load(root: &Root) -> Result<Fact<CpuInfo>, NotRead> {
    let text = root.text(PATH, LIMIT)?;
    // A sandbox may leave an empty file: that says as much as none.
    if text.is_empty() {
        return Err(NotRead::Missing);
    }
    Ok(Fact::from_file(CpuInfo::of(text), PATH))
}

impl CpuInfo {
    /// Takes whatever has the form `key : value`, of at most 4 GiB.
    pub fn parse(text: &str) -> Self {
        Self::of(text.to_owned())
    }

    fn of(text: String) -> Self {
        let place = |part: &str| {
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            Some(u32::try_from(start).ok()?..u32::try_from(start + part.len()).ok()?)
        };
        let lines = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            Some((place(key.trim())?, place(value.trim())?))
        });
        let lines = lines.collect();
        Self { text, lines }
    }

    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let part = |range: &Range<u32>| &self.text[range.start as usize..range.end as usize];
        self.lines.iter().map(move |(key, value)| (part(key), part(value)))
    }

    /// The values of `key`, in any case, one for each processor that has it.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.lines().filter(move |(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    /// The words that every `key` line has; none where there is no such line. A processor that
    /// lacks a word takes it from all, since a program may be moved there at any time.
    pub fn common_words(&self, key: &str) -> Option<BTreeSet<&str>> {
        let mut lines = self.values(key);
        let mut seen = lines.next()?;
        let mut all: BTreeSet<&str> = seen.split_whitespace().collect();
        for line in lines {
            // Mostly all processors are the same, and a machine may have a thousand.
            if line != seen {
                let words: BTreeSet<&str> = line.split_whitespace().collect();
                all.retain(|word| words.contains(word));
                seen = line;
            }
        }
        Some(all)
    }

    /// The model name on 32-bit ARM. Old kernels write it once, as `Processor`, beside the
    /// numbered `processor` lines.
    pub fn arm_model(&self) -> Option<&str> {
        let old = self.lines().find(|(key, _)| *key == "Processor").map(|(_, value)| value);
        self.values("model name").next().or(old)
    }
}
