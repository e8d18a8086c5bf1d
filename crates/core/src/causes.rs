//! Errors in one line.

use std::error::Error;

/// An error and its causes, each once, for logs and reports: people at a terminal get them one by
/// one.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        // Some errors end in their cause's words already.
        if !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        source: Option<Box<Step>>,
    }

    #[test]
    fn each_cause_is_told_once() {
        let step = |text, source: Option<Step>| Step { text, source: source.map(Box::new) };
        let last = || Some(step("disk full", None));
        assert_eq!(chain(&step("write: disk full", last())), "write: disk full");
        let error = step("build", Some(step("write", last())));
        assert_eq!(chain(&error), "build: write: disk full");
    }
}
