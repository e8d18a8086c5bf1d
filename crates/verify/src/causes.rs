//! An error with everything that led to it, on one line.

use std::error::Error;

/// Each cause once, outermost first: some errors have their cause in their own text already.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let told = inner.to_string();
        if !text.ends_with(&told) {
            text = format!("{text}: {told}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Silent(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Telling(#[source] std::io::Error);

    #[test]
    fn a_cause_is_told_once() {
        let inner = || std::io::Error::other("no route");
        assert_eq!(chain(&Silent(inner())), "outer: no route");
        assert_eq!(chain(&Telling(inner())), "outer: no route");
    }
}
