//! What a node says of an operation: one JSON document, small enough for the termination message
//! of a container. The node side writes it, the controller reads it; a person reads it too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A kubelet keeps 4096 bytes of a termination message; what is longer is cut and reads as nothing.
pub const MAX_BYTES: usize = 4096;

/// So many shims at most are installed as one: what is said of all of them has to fit.
pub const MAX_PARTS: usize = 8;

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
    /// Disk full, read-only, permissions; or who starts the runtime again cannot be asked, and nothing was changed.
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

    /// The document, cut in its texts where it would not fit.
    #[must_use]
    pub fn to_message(&self) -> String {
        let mut report = self.clone();
        loop {
            let text = serde_json::to_string(&report).expect("strings, numbers and names only");
            if text.len() <= MAX_BYTES {
                return text;
            }
            report.cut();
        }
    }

    /// Warnings first, then what the node has written down as well: messages say why it failed.
    fn cut(&mut self) {
        if self.warnings.pop().is_some() {
            return;
        }
        let digests = |part: &mut Part| {
            let archive = part.archive_sha256.take();
            part.binary_sha256.take().or(archive)
        };
        if self.parts.iter_mut().filter_map(digests).count() > 0 {
            return;
        }
        let parts = self.parts.iter_mut().map(|part| &mut part.message);
        let longest = parts.chain([&mut self.message]).max_by_key(|text| text.len());
        if let Some(text) = longest {
            text.truncate(text.floor_char_boundary(text.len() * 3 / 4));
        }
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
            took_ms: BTreeMap::from([(Phase::Fetch, 12)]),
            warnings: vec!["plain http".into()],
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_report_reads_back() {
        let text = report().to_message();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
        assert!(text.contains(r#""tookMs":{"fetch":12}"#), "{text}");
    }

    #[test]
    fn a_long_report_is_cut_where_it_may_be_and_reads_back() {
        let warnings = vec!["\u{1F9ED}".repeat(900); 3];
        let long = Report { message: "\u{e4}".repeat(9000), warnings, ..report() };
        let text = long.to_message();
        assert!(text.len() <= MAX_BYTES);
        let read: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(read.reason, Some(Reason::RolledBack));
        assert!(read.message.len() > 1000 && read.warnings.is_empty());
    }

    #[test]
    fn as_many_shims_as_may_be_with_the_longest_of_names_fit() {
        let part = |at: usize| Part {
            name: format!("{at}{}", "n".repeat(127)),
            reason: Some(Reason::LocationNotAllowed),
            message: "\u{e4}\"".repeat(2000),
            together: true,
            archive_sha256: Some("ab".repeat(32)),
            binary_sha256: Some("cd".repeat(32)),
        };
        let long = Report { parts: (0..MAX_PARTS).map(part).collect(), ..report() };
        let text = long.to_message();
        assert!(text.len() <= MAX_BYTES);
        let read: Report = serde_json::from_str(&text).unwrap();
        assert_eq!((read.parts.len(), &*read.message), (MAX_PARTS, "containerd did not come back"));
        assert!(read.parts.iter().all(|part| part.together && part.message.len() > 60));
        let short =
            Report { parts: vec![Part { name: "a".into(), ..Part::default() }], ..report() };
        assert!(short.to_message().ends_with(r#""parts":[{"name":"a"}]}"#));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_cannot_is_not() {
        assert!(!Reason::DownloadFailed.is_permanent());
        assert!(Reason::DigestMismatch.is_permanent());
        assert!(Reason::RolledBack.is_permanent(), "each try starts the runtime again");
    }
}
