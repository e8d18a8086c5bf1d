//! What a node says of an operation: one JSON document, small enough for the termination message
//! of a container. The node side writes it, the controller reads it; a person reads it too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A kubelet keeps 4096 bytes of a termination message; what is longer is cut and reads as nothing.
pub const MAX_BYTES: usize = 4096;

/// And so many of a whole pod, by equal shares for its containers, whether or not they say anything.
const MAX_POD_BYTES: usize = 12 << 10;

/// So many shims at most are installed as one: what is said of all of them has to fit.
pub const MAX_PARTS: usize = 8;

/// What a kubelet keeps of one container's words where a pod installs so many shims: each has a downloader, all have one
/// provisioner, and somebody may have put a container of his own beside them.
#[must_use]
pub const fn room(parts: usize) -> usize {
    let parts = if parts > MAX_PARTS { MAX_PARTS } else { parts };
    let share = MAX_POD_BYTES / (parts + 2);
    if share < MAX_BYTES { share } else { MAX_BYTES }
}

/// What was asked of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// Fetch alone: the stage that needs no privilege.
    Fetch,
    /// Put a binary in its place and make the runtime know it.
    Install,
    /// Take all of it away.
    Uninstall,
    /// Look whether it still agrees, change nothing.
    Verify,
}

/// How far an operation came, in the order of an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// The archive is downloaded and hashed.
    Fetch,
    /// One file is taken out of it and held against this machine.
    Extract,
    /// The kind of node, its runtime and its configuration are found.
    Detect,
    /// The binary is put under its own digest.
    Place,
    /// The runtime's configuration names it.
    Configure,
    /// The runtime is started again.
    Restart,
    /// The runtime says that it knows the handler.
    Ready,
    /// All is as asked.
    Done,
}

/// Why an operation failed, in words that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The location is no http or https URL, or policy forbids plain http.
    LocationNotAllowed,
    /// No digest was given and policy asks for one.
    DigestRequired,
    /// The server said no for good (404, 410, 401, 403 …).
    NotDownloadable,
    /// Connections, time-outs, 5xx: it may pass.
    DownloadFailed,
    /// More bytes than allowed.
    TooLarge,
    /// The archive is not the one that was asked for.
    DigestMismatch,
    /// Not an archive, or one with something in it that is refused.
    ArchiveRefused,
    /// The archive has no such binary, or more than one.
    BinaryNotFound,
    /// Not a program of this machine's architecture.
    WrongArchitecture,
    /// The kind of node is not known, or its file system cannot take a binary.
    NodeNotSupported,
    /// The runtime's configuration cannot be read, or says already what we would say.
    ConfigRefused,
    /// The runtime did not take the configuration; all is as before.
    RolledBack,
    /// The runtime did not take the configuration, and neither the one from before.
    RuntimeDown,
    /// Another installer held the lock all the time.
    Locked,
    /// Disk full, read-only, permissions; or the runtime, or who starts it again, does not answer, and nothing was changed.
    HostTrouble,
    /// What is installed is not what was asked for (of a look).
    Drifted,
    /// Flags or environment that make no sense.
    BadRequest,
}

impl Reason {
    /// Whether the same request would fail the same way again: no retry until it changes. What was rolled back is
    /// among it: every try starts the runtime again, under the pods of others.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        !matches!(
            self,
            Self::DownloadFailed
                | Self::RuntimeDown
                | Self::Locked
                | Self::HostTrouble
                | Self::Drifted
        )
    }
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What was asked.
    pub operation: Operation,
    /// The last phase that was begun.
    pub phase: Phase,
    /// Absent where it went well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// For a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// SHA-256 of what was downloaded, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_sha256: Option<String>,
    /// SHA-256 of the binary in its place, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_sha256: Option<String>,
    /// The kind of node, by the name of its preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distro: Option<String>,
    /// What the runtime says of its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_version: Option<String>,
    /// Whether anything was changed.
    #[serde(default)]
    pub changed: bool,
    /// Whether the runtime was started again.
    #[serde(default)]
    pub restarted: bool,
    /// It failed, and what the runtime goes by is what it was, and it was not started again: what was there can be used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_before: bool,
    /// Milliseconds, by phase.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub took_ms: BTreeMap<Phase, u64>,
    /// What deserves a look and is no failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Each of several shims that were asked for as one; none where it was one alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// How one of several shims fared.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// The shim's name.
    pub name: String,
    /// Absent where it went well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// For a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// It failed with the others and not by itself: the report's message is its own, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
    /// SHA-256 of what was downloaded, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_sha256: Option<String>,
    /// SHA-256 of the binary in its place, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_sha256: Option<String>,
}

impl Report {
    /// Whether it went well.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        self.reason.is_none()
    }

    /// The document, cut in its texts where it would not fit into so many bytes (see [`room`]).
    #[must_use]
    pub fn to_message(&self, limit: usize) -> String {
        let mut report = self.clone();
        loop {
            let text = serde_json::to_string(&report).expect("strings, numbers and names only");
            if text.len() <= limit || !report.cut() {
                return text;
            }
        }
    }

    /// Warnings first, then what the node has written down as well, and times: messages say why it failed. At last names and
    /// reasons are all that is left; false where nothing else is.
    fn cut(&mut self) -> bool {
        if self.warnings.pop().is_some() {
            return true;
        }
        let digests = |part: &mut Part| {
            let archive = part.archive_sha256.take();
            part.binary_sha256.take().or(archive)
        };
        let digests = self.parts.iter_mut().filter_map(digests).count();
        if digests > 0 || !std::mem::take(&mut self.took_ms).is_empty() {
            return true;
        }
        let parts = self.parts.iter_mut().map(|part| &mut part.message);
        let texts = parts.chain([&mut self.message]).chain(&mut self.runtime_version);
        let longest = texts.max_by_key(|text| text.len()).filter(|text| !text.is_empty());
        if let Some(text) = longest {
            text.truncate(text.floor_char_boundary(text.len() * 3 / 4));
            return true;
        }
        let (distro, version) = (self.distro.take(), self.runtime_version.take());
        let (archive, binary) = (self.archive_sha256.take(), self.binary_sha256.take());
        distro.or(version).or(archive).or(binary).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            operation: Operation::Install,
            phase: Phase::Restart,
            reason: Some(Reason::RolledBack),
            message: "containerd did not come back".into(),
            archive_sha256: None,
            binary_sha256: Some("ab".repeat(32)),
            distro: Some("k3s".into()),
            runtime_version: None,
            changed: false,
            restarted: true,
            as_before: false,
            took_ms: BTreeMap::from([(Phase::Fetch, 12)]),
            warnings: vec!["plain http".into()],
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_report_reads_back() {
        let text = report().to_message(room(1));
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
        assert!(text.contains(r#""tookMs":{"fetch":12}"#), "{text}");
    }

    #[test]
    fn a_long_report_is_cut_where_it_may_be_and_reads_back() {
        let warnings = vec!["\u{1F9ED}".repeat(900); 3];
        let long = Report { message: "\u{e4}".repeat(9000), warnings, ..report() };
        let text = long.to_message(room(1));
        assert!(text.len() <= MAX_BYTES);
        let read: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(read.reason, Some(Reason::RolledBack));
        assert!(read.message.len() > 1000 && read.warnings.is_empty());
    }

    /// A kubelet divides 12288 bytes by the containers of the pod; one of them may be somebody else's.
    #[test]
    fn what_a_container_may_say_is_its_share_of_the_pod() {
        let rooms = [1, 2, 3, 5, 8, 99].map(room);
        assert_eq!(rooms, [4096, 3072, 2457, 1755, 1228, 1228]);
    }

    /// Whatever is long, and however long: there is an end, and names and reasons are left.
    #[test]
    fn what_cannot_be_cut_any_more_ends_with_reasons_alone() {
        let long = Report { runtime_version: Some("v".repeat(1 << 20)), ..report() };
        let read: Report = serde_json::from_str(&long.to_message(room(1))).unwrap();
        assert_eq!((read.message, read.reason), (report().message, Some(Reason::RolledBack)));
        let bare = long.to_message(0);
        let least = r#"{"operation":"install","phase":"restart","reason":"RolledBack","changed":false,"restarted":true}"#;
        assert_eq!(bare, least);
    }

    #[test]
    fn as_many_shims_as_may_be_with_the_longest_of_names_fit() {
        let part = |at: usize| Part {
            name: format!("{at}{}", "n".repeat(62)),
            reason: Some(Reason::LocationNotAllowed),
            message: "\u{e4}\"".repeat(2000),
            together: true,
            archive_sha256: Some("ab".repeat(32)),
            binary_sha256: Some("cd".repeat(32)),
        };
        let took_ms = [Phase::Fetch, Phase::Extract, Phase::Detect, Phase::Place, Phase::Configure];
        let long = Report {
            phase: Phase::Configure,
            reason: Some(Reason::LocationNotAllowed),
            archive_sha256: Some("ab".repeat(32)),
            runtime_version: Some("containerd v2.0.1".into()),
            changed: false,
            restarted: false,
            as_before: true,
            took_ms: took_ms.map(|phase| (phase, u64::MAX)).into(),
            parts: (0..MAX_PARTS).map(part).collect(),
            ..report()
        };
        let text = long.to_message(room(MAX_PARTS));
        assert!(text.len() <= 12288 / (MAX_PARTS + 2), "{}", text.len());
        let read: Report = serde_json::from_str(&text).unwrap();
        assert!(read.as_before && read.reason == long.reason);
        let kept = |part: &Part| (part.name.clone(), part.reason, part.together);
        assert!(read.parts.iter().map(kept).eq(long.parts.iter().map(kept)), "{text}");
        // Names that people give leave room for why each of them failed.
        let usual = |at: usize| Part { name: format!("spin-v{at}"), together: false, ..part(at) };
        let usual = Report { parts: (0..MAX_PARTS).map(usual).collect(), ..report() };
        let read: Report = serde_json::from_str(&usual.to_message(room(MAX_PARTS))).unwrap();
        assert!(read.parts.iter().all(|part| part.message.len() > 20), "{read:?}");
        assert!(!read.message.is_empty());
        let short =
            Report { parts: vec![Part { name: "a".into(), ..Part::default() }], ..report() };
        assert!(short.to_message(room(1)).ends_with(r#""parts":[{"name":"a"}]}"#));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_cannot_is_not() {
        assert!(!Reason::DownloadFailed.is_permanent());
        assert!(Reason::DigestMismatch.is_permanent());
        assert!(Reason::RolledBack.is_permanent(), "each try starts the runtime again");
    }
}
