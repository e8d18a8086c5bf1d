//! Errors in one line.

use std::error::Error;

/// An error and its causes, for logs and reports: people at a terminal get them one by one.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
