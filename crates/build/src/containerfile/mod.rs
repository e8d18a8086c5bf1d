//! Containerfiles: how an image is put together. Read within bounds, and evaluated for one
//! platform; nothing is run and nothing is fetched here.

mod evaluate;
mod lex;
mod parse;
mod scope;
mod words;

use std::fmt;

pub use evaluate::{Base, Change, Copying, From, Inherited, Stage, Stages, evaluate};
pub use parse::{Outline, outline, parse};

/// The largest Containerfile that is read.
pub const MAX_BYTES: usize = 1024 * 1024;
/// So many instructions.
pub const MAX_INSTRUCTIONS: usize = 10_000;

/// Where something is, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

/// Why a Containerfile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {what}", at.line, at.column)]
pub struct ContainerfileError {
    /// Where.
    pub at: Position,
    /// What is wrong, and what to try.
    pub what: String,
}

impl ContainerfileError {
    fn new(at: Position, what: impl fmt::Display) -> Self {
        Self { at, what: what.to_string() }
    }
}

/// One instruction, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Where it begins.
    pub at: Position,
    /// As it is told in an image's history.
    pub text: String,
    /// What it says.
    pub kind: Kind,
}

/// What an instruction says, with variables still in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A stage begins.
    From {
        /// Another platform than the one that is built.
        platform: Option<String>,
        /// An image, an earlier stage, or `scratch`.
        image: String,
        /// What later stages call it.
        name: Option<String>,
    },
    /// Files are copied.
    Copy(CopyWords),
    /// Variables of the image.
    Env(Vec<(String, String)>),
    /// Labels of the image.
    Label(Vec<(String, String)>),
    /// Variables of the build.
    Arg(Vec<(String, Option<String>)>),
    /// Where commands start.
    Workdir(String),
    /// Who runs them.
    User(String),
    /// Ports.
    Expose(Vec<String>),
    /// Directories that outlive a container.
    Volume(Vec<String>),
    /// The program.
    Entrypoint(Command),
    /// Its arguments.
    Cmd(Command),
    /// What runs commands that are one text.
    Shell(Vec<String>),
    /// How it is asked to end.
    StopSignal(String),
}

/// A command, as words or as one text for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Words.
    Exec(Vec<String>),
    /// A text.
    Shell(String),
}

/// COPY or ADD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyWords {
    /// Whether it is ADD, which would unpack archives and fetch from elsewhere.
    pub add: bool,
    /// A stage or image to copy from.
    pub from: Option<String>,
    /// Whose the files become.
    pub chown: Option<String>,
    /// Their mode, in octal digits.
    pub chmod: Option<String>,
    /// Patterns of what is left out.
    pub exclude: Vec<String>,
    /// What is copied.
    pub sources: Vec<SourceWord>,
    /// Where to.
    pub destination: String,
}

/// Something that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceWord {
    /// A path or pattern.
    Path(String),
    /// A file that stands in the Containerfile itself.
    Inline {
        /// Its name.
        name: String,
        /// Its content.
        content: String,
        /// Whether variables in it mean their values.
        expand: bool,
    },
}
