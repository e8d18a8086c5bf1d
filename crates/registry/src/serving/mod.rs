//! What every server of ours does before a request is understood: connections within bounds, from
//! the network or from this machine, TLS with or without certificates of clients. With the feature
//! `program`, also what programs that serve need beside that.

mod accept;
mod counted;
mod guard;
mod handles;
mod places;
#[cfg(feature = "program")]
pub mod program;
#[cfg(test)]
mod tests;
mod tls;

pub use accept::{Answers, Limits, Listener, run, run_service};
pub use handles::Handles;
pub use tls::{Identity, Renewer, Tls, TlsError, TlsFiles, TlsVersion};
