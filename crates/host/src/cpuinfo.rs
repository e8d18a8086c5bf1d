//! `/proc/cpuinfo`, which each architecture writes in its own way.

use std::collections::BTreeSet;

use crate::fact::Fact;
use crate::root::Root;

const PATH: &str = "/proc/cpuinfo";

/// A machine of a thousand processors writes about 2 MiB.
const LIMIT: u64 = 16 << 20;

/// The lines `key : value`, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuInfo(Vec<(String, String)>);

pub(crate) fn read(root: &Root) -> Option<Fact<CpuInfo>> {
    let text = root.read_text(PATH, LIMIT)?;
    // A sandbox may leave an empty file: that says nothing.
    (!text.is_empty()).then(|| Fact::from_file(CpuInfo::parse(&text), PATH))
}

impl CpuInfo {
    /// Takes whatever has the form `key : value`.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self(lines.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
    }

    /// The values of `key`, in any case, one for each processor that has it.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| v.as_str())
    }

    /// The words that every `key` line has; none where there is no such line. A processor that
    /// lacks a word takes it from all, since a program may be moved there at any time.
    pub fn common_words(&self, key: &str) -> Option<BTreeSet<&str>> {
        self.values(key)
            .map(|line| -> BTreeSet<&str> { line.split_whitespace().collect() })
            .reduce(|all, line| all.intersection(&line).copied().collect())
    }

    /// The model name on 32-bit ARM. Old kernels write it once, as `Processor`, beside the
    /// numbered `processor` lines.
    pub fn arm_model(&self) -> Option<&str> {
        let old =
            self.0.iter().find(|(key, _)| key == "Processor").map(|(_, value)| value.as_str());
        self.values("model name").next().or(old)
    }
}
