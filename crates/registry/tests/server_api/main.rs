//! The embedded server over real sockets: every endpoint, every status code.

mod auth;
mod concurrency;
mod discovery;
mod limits;
mod management;
mod pull;
mod push;
mod restart;
mod support;
mod tls;
mod tricks;
