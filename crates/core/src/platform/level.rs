//! How far a processor goes beyond the first of its architecture, decided from facts that the
//! caller read: flag names, capability names, lines of `/proc/cpuinfo`.
//!
//! Levels are cumulative: detection stops at the first that lacks something. What is not seen is
//! not assumed, so an old kernel that does not know a name makes the level lower, never higher.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Platform;

/// A level of one architecture. Within an architecture a greater level is a better one, and
/// [`Level::includes`] says whether it also runs what the other needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// x86-64-v1, v2, v3, v4, as the System V psABI defines them.
    Amd64(u32),
    /// ARMv5 … ARMv8 in 32 bits; also v3 and v4, which nothing newer claims to include.
    Arm(u8),
    /// ARMv8.n and ARMv9.n.
    Arm64 {
        /// 8 or 9.
        major: u8,
        /// What follows the point.
        minor: u8,
    },
    /// POWER8, POWER9, …
    Ppc64le(u8),
    /// RVA20U64, RVA22U64, RVA23U64, by their year.
    Riscv64(u8),
}

/// What detection found, and what the next level would have needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Detection {
    /// The best level whose needs are all there; none if not even the first's are.
    pub level: Option<Level>,
    /// The next level; none at the top.
    pub next: Option<NextLevel>,
}

/// A level that was not reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextLevel {
    /// Which.
    pub level: Level,
    /// The names it needs and this processor lacks.
    pub missing: Vec<&'static str>,
}

impl From<Level> for Detection {
    /// A level that was read off a name, with nothing to say about the next.
    fn from(level: Level) -> Self {
        Self { level: Some(level), next: None }
    }
}

impl Platform {
    /// The same with `level` as variant. The baseline of an architecture is written without one,
    /// as images for it are.
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        let baseline = Level::baseline(level.architecture()) == Some(level);
        let variant = if baseline { None } else { Some(level.to_string()) };
        Self { architecture: level.architecture().to_owned(), variant, ..self }
    }
}

/// A variant that is no level of its architecture, as far as is known here. It may be a mistake, or of a processor that is
/// newer than this program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no level {found:?} is known: {known}; it is taken as it is written")]
pub struct UnknownLevel {
    /// As it was written.
    pub found: String,
    /// What there is.
    pub known: &'static str,
}

impl Platform {
    /// Whether the variant is none that is known, of an architecture that has levels.
    pub fn unknown_level(&self) -> Option<UnknownLevel> {
        let normal = self.normalised();
        let level = Level::of(&normal);
        let known = match (normal.architecture.as_str(), level) {
            ("amd64", Some(Level::Amd64(1..=4)))
            | ("arm" | "arm64" | "riscv64", Some(_))
            | ("ppc64le", Some(Level::Ppc64le(8..=11))) => return None,
            ("amd64", _) => "amd64 has v1 to v4",
            ("arm", _) => "arm has v5 to v8",
            ("arm64", _) => "arm64 has v8 to v8.9 and v9 to v9.7",
            ("ppc64le", _) => "ppc64le has power8 to power11",
            ("riscv64", _) => "riscv64 has rva20u64, rva22u64 and rva23u64",
            _ => return None,
        };
        let variant = self.variant.as_deref().unwrap_or_default();
        Some(UnknownLevel { found: format!("{}/{variant}", self.architecture), known })
    }
}

impl Level {
    /// The level that `platform` names. No variant is the baseline of the architecture; none for
    /// architectures without levels and for variants that have no place in the order.
    pub fn of(platform: &Platform) -> Option<Self> {
        let platform = platform.normalised();
        let variant = platform.variant.as_deref().unwrap_or_default();
        let numbered = |prefix: &str| variant.strip_prefix(prefix).and_then(canonical_number);
        match platform.architecture.as_str() {
            "amd64" if variant.is_empty() => Some(Self::Amd64(1)),
            "amd64" => numbered("v").filter(|n| *n > 0).map(Self::Amd64),
            "arm" => numbered("v").filter(|n| (3..=8).contains(n)).and_then(narrow).map(Self::Arm),
            "arm64" => arm64_version(variant).map(|(major, minor)| Self::Arm64 { major, minor }),
            "ppc64le" if variant.is_empty() => Some(Self::Ppc64le(8)),
            "ppc64le" => numbered("power").filter(|n| *n >= 8).and_then(narrow).map(Self::Ppc64le),
            "riscv64" => match variant {
                "" | "rva20u64" => Some(Self::Riscv64(20)),
                "rva22u64" => Some(Self::Riscv64(22)),
                "rva23u64" => Some(Self::Riscv64(23)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The level that every host of this architecture has, if that can be said: `arm` without a
    /// variant is v7 by convention, which an older host is not.
    pub(crate) fn baseline(architecture: &str) -> Option<Self> {
        match architecture {
            "amd64" => Some(Self::Amd64(1)),
            "arm64" => Some(Self::Arm64 { major: 8, minor: 0 }),
            "ppc64le" => Some(Self::Ppc64le(8)),
            "riscv64" => Some(Self::Riscv64(20)),
            _ => None,
        }
    }

    /// Whether a processor of this level also runs what is built for `other`.
    pub fn includes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Amd64(host), Self::Amd64(image)) => host >= image,
            (Self::Arm(host), Self::Arm(image)) => host == image || (image >= 5 && host >= image),
            (
                Self::Arm64 { major: host, minor },
                Self::Arm64 { major: image, minor: image_minor },
            ) => match (host, image) {
                // v9.0 grew out of v8.5 and took over each later v8 as it came.
                (9, 8) => image_minor <= (minor + 5).min(9),
                _ => host == image && minor >= image_minor,
            },
            (Self::Ppc64le(host), Self::Ppc64le(image))
            | (Self::Riscv64(host), Self::Riscv64(image)) => host >= image,
            _ => false,
        }
    }

    /// The architecture whose level this is.
    pub fn architecture(self) -> &'static str {
        match self {
            Self::Amd64(_) => "amd64",
            Self::Arm(_) => "arm",
            Self::Arm64 { .. } => "arm64",
            Self::Ppc64le(_) => "ppc64le",
            Self::Riscv64(_) => "riscv64",
        }
    }
}

/// As a variant is written: `v3`, `v8.4`, `power9`, `rva22u64`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amd64(n) => write!(f, "v{n}"),
            Self::Arm(n) => write!(f, "v{n}"),
            Self::Arm64 { major, minor: 0 } => write!(f, "v{major}"),
            Self::Arm64 { major, minor } => write!(f, "v{major}.{minor}"),
            Self::Ppc64le(n) => write!(f, "power{n}"),
            Self::Riscv64(year) => write!(f, "rva{year}u64"),
        }
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn narrow(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}

/// A number as we would print it: `v03` and `v+3` are other names.
fn canonical_number(digits: &str) -> Option<u32> {
    digits.parse().ok().filter(|number: &u32| number.to_string() == digits)
}

/// The version an arm64 variant names: v8 to v8.9 and v9 to v9.7 exist, none is v8.
pub(super) fn arm64_version(variant: &str) -> Option<(u8, u8)> {
    if variant.is_empty() {
        return Some((8, 0));
    }
    let version = variant.strip_prefix('v')?;
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    let minor = canonical_number(minor).and_then(narrow)?;
    match (major, minor) {
        ("8", 0..=9) => Some((8, minor)),
        ("9", 0..=7) => Some((9, minor)),
        _ => None,
    }
}

/// The needs of x86-64-v1 … v4 under the names of `/proc/cpuinfo`: SSE3 is `pni` there and LZCNT
/// is `abm`. OSXSAVE has no name; the kernel clears `avx` where it does not save its registers.
const AMD64: [&[&str]; 4] = [
    &["cmov", "cx8", "fpu", "fxsr", "lm", "mmx", "sse", "sse2", "syscall"],
    &["cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"],
    &["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"],
    &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
];

/// The needs of ARMv8.0 … v8.9 under the names of the kernel's hardware capabilities, as far as
/// a program can see them. FP16 is optional in v8.2 and not asked.
const ARM64_V8: [&[&str]; 10] = [
    &["asimd", "fp"],
    &["asimdrdm", "atomics", "crc32"],
    &["dcpop"],
    &["fcma", "jscvt", "lrcpc", "paca", "pacg"],
    &["asimddp", "dit", "flagm", "ilrcpc", "uscat"],
    &["bti", "dcpodp", "flagm2", "frint", "sb"],
    &["bf16", "ecv", "i8mm"],
    &["wfxt"],
    &["hbc", "mops"],
    &["cssc"],
];

/// What ARMv9.0 needs beyond v8.5, and v9.4 beyond v8.9. Later ones cannot be told apart by the
/// capabilities and are never detected; a person may still name them.
const ARM64_V9: &[&str] = &["asimdhp", "fphp", "sve2"];
const ARM64_V9_4: &[&str] = &["sve2p1"];

/// The user-mode extensions each RISC-V profile makes mandatory and Linux can name. Properties
/// of the memory system that no name exists for are left out of the first, which is what every
/// distribution demands; from the second on every name must be there.
const RISCV64: [(u8, &[&str]); 3] = [
    (20, &["i", "m", "a", "f", "d", "c"]),
    (
        22,
        &[
            "zba",
            "zbb",
            "zbs",
            "zfhmin",
            "zicbom",
            "zicbop",
            "zicboz",
            "zihintpause",
            "zihpm",
            "zkt",
        ],
    ),
    (
        23,
        &[
            "supm",
            "v",
            "zawrs",
            "zcb",
            "zcmop",
            "zfa",
            "zicond",
            "zihintntl",
            "zimop",
            "zvbb",
            "zvfhmin",
            "zvkt",
        ],
    ),
];

/// The x86-64 level from the `flags` line, given as a question.
pub fn amd64(has: impl Fn(&str) -> bool) -> Detection {
    climb((1..).map(Level::Amd64).zip(AMD64), &has)
}

/// The arm64 level from hardware capability names (`Features` line or the auxiliary vector).
pub fn arm64(has: impl Fn(&str) -> bool) -> Detection {
    let v8 = climb((0..).map(|minor| Level::Arm64 { major: 8, minor }).zip(ARM64_V8), &has);
    let Some(Level::Arm64 { minor: reached @ 5.., .. }) = v8.level else { return v8 };
    let v9 = |minor| Level::Arm64 { major: 9, minor };
    let missing = lacking(ARM64_V9, &has);
    if !missing.is_empty() {
        // Two roads lead on from here; the one along v8 is named as long as it lasts.
        let next = v8.next.or_else(|| Some(NextLevel { level: v9(0), missing }));
        return Detection { level: v8.level, next };
    }
    let minor = (reached - 5).min(3);
    if reached < 9 {
        let next = v8.next.map(|next| NextLevel { level: v9(minor + 1), ..next });
        return Detection { level: Some(v9(minor)), next };
    }
    let missing = lacking(ARM64_V9_4, &has);
    if missing.is_empty() {
        Detection::from(v9(4))
    } else {
        Detection { level: Some(v9(3)), next: Some(NextLevel { level: v9(4), missing }) }
    }
}

/// The RISC-V profile from one `isa` line, such as `rv64imafdc_zicsr_zba`.
pub fn riscv64(isa: &str) -> Detection {
    let isa = isa.trim().to_ascii_lowercase();
    let mut parts = isa.split('_');
    let letters = parts.next().and_then(|first| first.strip_prefix("rv64")).unwrap_or_default();
    let letters = letters.replace('g', "imafd");
    let long: Vec<&str> = parts.collect();
    let has = |name: &str| match name.len() {
        1 => letters.contains(name) || long.contains(&name),
        _ => long.contains(&name),
    };
    climb(RISCV64.into_iter().map(|(year, needs)| (Level::Riscv64(year), needs)), &has)
}

/// The POWER level from the `cpu` line, such as `POWER9 (architected), altivec supported`.
pub fn ppc64le(cpu: &str) -> Option<Level> {
    let name = cpu.trim().to_ascii_lowercase();
    let digits = name.strip_prefix("power")?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    canonical_number(&digits[..end]).filter(|n| *n >= 8).and_then(narrow).map(Level::Ppc64le)
}

/// The 32-bit ARM level from the `CPU architecture` line and, if there is one, the model name.
///
/// A Raspberry Pi 1 says 7 although its core is ARMv6; its model name tells.
pub fn arm(cpu_architecture: &str, model_name: Option<&str>) -> Option<Level> {
    let prefix = "armv6-compatible";
    let is_v6 = model_name.is_some_and(|model| {
        model.trim().get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
    });
    Some(Level::Arm(match cpu_architecture.trim().to_ascii_lowercase().as_str() {
        "7" if is_v6 => 6,
        "8" | "aarch64" => 8,
        "7" | "7m" | "?(12)" | "?(13)" | "?(14)" | "?(15)" | "?(16)" | "?(17)" => 7,
        "6" | "6tej" => 6,
        "5" | "5t" | "5te" | "5tej" => 5,
        "4" | "4t" => 4,
        "3" => 3,
        _ => return None,
    }))
}

/// The 32-bit ARM level from what `uname -m` says: `aarch64`, `armv7l`, `armv6l`, …
pub fn arm_machine(machine: &str) -> Option<Level> {
    match machine.to_ascii_lowercase().as_str() {
        "aarch64" => Some(Level::Arm(8)),
        machine => match machine.strip_prefix("armv")?.bytes().next()? {
            version @ b'3'..=b'8' => Some(Level::Arm(version - b'0')),
            _ => None,
        },
    }
}

/// Goes up `steps` as long as everything is there.
fn climb<'a>(
    steps: impl Iterator<Item = (Level, &'a [&'static str])>,
    has: &impl Fn(&str) -> bool,
) -> Detection {
    let mut level = None;
    for (step, needs) in steps {
        let missing = lacking(needs, has);
        if !missing.is_empty() {
            return Detection { level, next: Some(NextLevel { level: step, missing }) };
        }
        level = Some(step);
    }
    Detection { level, next: None }
}

fn lacking(needs: &[&'static str], has: &impl Fn(&str) -> bool) -> Vec<&'static str> {
    needs.iter().copied().filter(|name| !has(name)).collect()
}
