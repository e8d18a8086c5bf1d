//! How a program ends.

use std::error::Error;
use std::process::ExitCode;

use portolan_core::{causes, terminal};

/// In silence where all went well; else with the error and its causes on stderr, each once, and the code of failure.
#[allow(clippy::print_stderr, reason = "the last words of a program")]
pub fn end<E: AsRef<dyn Error>>(outcome: Result<(), E>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", last_words(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// What a person is told of what ended a program.
pub fn last_words(error: &dyn Error) -> String {
    terminal::printable(&format!("error: {}", causes::chain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {0:?}: no such file")]
    struct Read(&'static str, #[source] std::io::Error);

    #[test]
    fn causes_are_told_once_and_play_with_no_terminal() {
        let error = Read("a", std::io::Error::other("no such file"));
        assert_eq!(last_words(&error), "error: cannot read \"a\": no such file");
        let error = std::io::Error::other("\u{1b}[2Jgone");
        assert_eq!(last_words(&error), "error: \\u{1b}[2Jgone");
    }
}
