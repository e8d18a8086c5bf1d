//! What every server of ours does before a request is understood: connections within bounds, from
//! the network or from this machine, TLS with or without certificates of clients.

mod accept;
mod counted;
mod guard;
mod places;
#[cfg(test)]
mod tests;
mod tls;

pub use accept::{Answers, Limits, Listener, run, run_service};
pub use tls::{Identity, Renewer, Tls, TlsError, TlsFiles, TlsVersion};
