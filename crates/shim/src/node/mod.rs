//! The node's side: a runtime binary fetched, checked, put in its place and made known to containerd.
//!
//! Everything works on a host's root directory, the running machine's or a mere tree of files.
//!
//! | module | what it holds |
//! |---|---|
//! | `request` | names, digests and options, checked |
//! | `fetch` | a URL to a file whose digest is known |
//! | `archive` | one regular file out of an archive |
//! | `elf` | whether a program is made for this machine |
//! | `root`, `disk` | paths below a host's root; changes to them, told before they are made |
//! | `state`, `lock` | what was done and is being done; one at a time |
//! | `place` | binaries under their digests |
//! | `config` | containerd's configuration: read as TOML, changed by owned blocks and files |
//! | `upstream`, `retire` | what runtime-class-manager left; taken away |
//! | `preset` | kinds of nodes, as data, and how one is known |
//! | `exec`, `namespace` | programs of the host, and where they are run |
//! | `restart`, `ready` | the runtime started again, and asked what it knows |
//! | `obtain`, `survey`, `settle`, `effect`, `progress` | the program had; a change planned, made to hold, taken by the runtime or undone; how it went |
//! | `install`, `uninstall`, `verify` | all of it together |

pub mod archive;
pub mod config;
mod disk;
mod effect;
pub mod elf;
mod error;
pub mod exec;
pub mod fetch;
pub mod install;
mod lock;
mod namespace;
mod obtain;
mod place;
pub mod preset;
mod progress;
pub mod ready;
pub mod request;
pub mod restart;
mod retire;
mod root;
mod settle;
pub mod state;
mod survey;
pub mod uninstall;
pub mod upstream;
pub mod verify;

pub use disk::{Quiet, Watch};
pub use error::{NodeError, Untaken};
pub use root::HostRoot;
