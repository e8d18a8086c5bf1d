//! The program itself: started, asked, told to end, started again.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod attack;
mod harness;
mod life;
mod network;
mod secrets;
