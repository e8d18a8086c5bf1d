//! Everything that can keep a plugin from answering. Each makes the answer unknown, never no: a
//! plugin that broke has said nothing about the host.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use portolan_core::Digest;

use super::directory::DirectoryError;
use super::fetch::FetchError;
use super::policy::Refusal;
use super::program::ProgramError;
use super::protocol::AnswerError;
use super::sandbox::Layer;
use super::source::SourceError;

/// Why a plugin gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Malfunction {
    /// Nobody provides it.
    #[error(
        "no plugin of this name is built in, attached to the artifact, installed below {}, or named by a source",
        directory.display()
    )]
    NotFound {
        /// Where users install plugins.
        directory: PathBuf,
    },
    /// Nothing of the kind may run.
    #[error("external plugins are off")]
    Off(#[source] Refusal),
    /// A spec that would keep a host busy.
    #[error("the spec asks external plugins more than {} questions", super::MAX_QUESTIONS)]
    TooMany,
    /// Programs that would fill a host's memory.
    #[error("the plugins of one spec have more than {limit} bytes together")]
    TooLarge {
        /// The bound.
        limit: u64,
    },
    /// It is there and may not run.
    #[error("the {provider} plugin {digest} may not run")]
    Policy {
        /// Where it came from.
        provider: &'static str,
        /// What it is.
        digest: Digest,
        /// Why not.
        #[source]
        source: Refusal,
    },
    /// Its `source` or `digest` says nothing that can be followed.
    #[error("the plugin's source is not usable")]
    Source(#[source] SourceError),
    /// A file that others could have written.
    #[error("the installed plugin is not to be trusted")]
    Directory(#[source] DirectoryError),
    /// It could not be had.
    #[error("cannot fetch the plugin")]
    Fetch(#[source] FetchError),
    /// It was to be fetched.
    #[error("the plugin would have to be fetched, and `--offline` forbids that")]
    Offline,
    /// Not what was asked for.
    #[error("the plugin has digest {found}, the spec pins {pinned}")]
    Digest {
        /// In the spec.
        pinned: Digest,
        /// Of the program.
        found: Digest,
    },
    /// Not a program for this machine.
    #[error("the plugin cannot run on this machine")]
    Program(#[source] ProgramError),
    /// The cage cannot be built.
    #[error("{why}; `--plugin-sandbox best-effort` runs plugins with what there is")]
    Sandbox {
        /// What is missing.
        layer: Option<Layer>,
        /// As the helper told it.
        why: String,
    },
    /// The helper or the plugin could not be started.
    #[error("cannot start the plugin: {why}")]
    Start {
        /// What happened.
        why: String,
    },
    /// The system failed us while it ran.
    #[error("cannot {step} of the plugin")]
    Io {
        /// What was tried.
        step: &'static str,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// It took too long and was ended.
    #[error("the plugin was ended after {} s", after.as_secs_f32())]
    Timeout {
        /// How long it had.
        after: Duration,
    },
    /// The others took all the time.
    #[error("all plugins together have {} s, and they are over", after.as_secs())]
    Budget {
        /// How long they had.
        after: Duration,
    },
    /// It printed more than anybody reads.
    #[error("the plugin printed more than {limit} bytes and was ended")]
    Flood {
        /// The bound.
        limit: usize,
    },
    /// A signal ended it.
    #[error("signal {signal} ended the plugin")]
    Signal {
        /// Its number.
        signal: i32,
    },
    /// An exit code that says "I could not find out".
    #[error("the plugin ended with exit code {code}{}", said(log))]
    Exit {
        /// Neither 0 nor 1.
        code: i32,
        /// What it said on stderr, cleaned and cut.
        log: String,
    },
    /// What it printed is no answer.
    #[error("the plugin's answer is not understood")]
    Answer(#[source] AnswerError),
    /// It waits for facts of a plugin that waits for its own.
    #[error("plugins wait for each other's facts: {}", around.join(" -> "))]
    Cycle {
        /// Who for whom.
        around: Vec<String>,
    },
}

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" and said: {log}") }
}

impl Malfunction {
    /// For programs; never changes meaning.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "E_PLUGIN_NOT_FOUND",
            Self::Policy { .. } | Self::Off(_) => "E_PLUGIN_POLICY",
            Self::Source(_) => "E_PLUGIN_SOURCE",
            Self::Directory(_) => "E_PLUGIN_UNTRUSTED",
            Self::Fetch(_) | Self::Offline => "E_PLUGIN_FETCH",
            Self::Digest { .. } => "E_PLUGIN_DIGEST",
            Self::Program(_) => "E_PLUGIN_PROGRAM",
            Self::Sandbox { .. } => "E_SANDBOX",
            Self::Start { .. } | Self::Io { .. } => "E_PLUGIN_START",
            Self::TooMany | Self::TooLarge { .. } => "E_PLUGIN_LIMIT",
            Self::Timeout { .. } | Self::Budget { .. } => "E_PLUGIN_TIMEOUT",
            Self::Flood { .. } => "E_PLUGIN_FLOOD",
            Self::Signal { .. } => "E_PLUGIN_SIGNAL",
            Self::Exit { .. } => "E_PLUGIN_EXIT",
            Self::Answer(_) => "E_PLUGIN_ANSWER",
            Self::Cycle { .. } => "E_PLUGIN_CYCLE",
        }
    }

    /// Whether nothing is there, or nothing that may run: neither is the plugin's fault.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Off(_) | Self::Policy { .. })
    }

    /// With all causes, in one line.
    pub fn describe(&self) -> String {
        portolan_core::causes::chain(self)
    }
}
