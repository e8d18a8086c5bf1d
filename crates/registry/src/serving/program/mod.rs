//! What every program that serves does beside serving: it reads its configuration, logs, counts, and ends when it is told
//! to, with the same words as the others.

mod configuration;
mod ending;
mod logging;
mod metrics;
mod signals;

pub use configuration::{ConfigError, Configuration, Span, load, parse};
pub use ending::{end, last_words};
pub use logging::{FilterError, LogFormat, Usual, start_logging, start_logging_as};
pub use metrics::{OPENMETRICS, openmetrics};
pub use signals::{SignalError, end_on_signals};
