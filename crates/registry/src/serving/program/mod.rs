//! What every program that serves does beside serving: it logs, and it ends when it is told to.

mod logging;
mod signals;

pub use logging::{FilterError, LogFormat, start_logging};
pub use signals::{SignalError, end_on_signals};
