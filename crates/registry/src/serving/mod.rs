//! What every server of ours does before a request is understood: connections within bounds, from
//! the network or from this machine, TLS with or without certificates of clients.

mod accept;
mod tls;

pub use accept::{Limits, Listener, run};
pub use tls::{Identity, Renewer, Tls, TlsError, TlsFiles, TlsVersion};
