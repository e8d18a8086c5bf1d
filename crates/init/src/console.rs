//! The lines the agent reads from the console.
//!
//! Each begins with `portolan-init[TOKEN]: `. The token is new at every start and known to the agent
//! and this program alone, so that a workload that prints such a line by accident is not believed.
//! Ends are one of three: `workload exited with status N`, `workload was killed by signal N`,
//! `failed: could not STEP: CAUSE`.

use std::fs::OpenOptions;
use std::io::Write as _;

use rustix::termios::{OptionalActions, OutputModes, tcdrain, tcgetattr, tcsetattr};

use crate::step::Failed;

/// The machine's console.
#[derive(Debug)]
pub(crate) struct Console {
    prefix: String,
}

impl Console {
    pub(crate) fn new(token: &str) -> Self {
        Self { prefix: format!("portolan-init[{token}]: ") }
    }

    /// One line, all of it or nothing: control characters of foreign text (a path, a name from the
    /// image) must not make a second one.
    pub(crate) fn say(&self, text: &str) {
        let line = line(&self.prefix, text);
        let mut standard = std::io::stderr();
        // Nothing is left to tell anyone when the console itself does not take a line.
        let _ = standard.write_all(line.as_bytes()).and_then(|()| standard.flush());
        let _ = tcdrain(&standard);
    }

    pub(crate) fn failed(&self, failed: &Failed) {
        self.say(&format!("failed: {failed}"));
    }
}

/// A line break before it, too: the workload may have ended without one.
fn line(prefix: &str, text: &str) -> String {
    let text: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(2000).collect();
    format!("\n{prefix}{text}\n")
}

/// Makes the console pass bytes as they are: a serial terminal would turn every line feed into two
/// characters, and logs read back would not be what the workload wrote.
pub(crate) fn plain() {
    let Ok(console) = OpenOptions::new().read(true).write(true).open("/dev/console") else {
        return;
    };
    // Not a terminal: then it changes nothing either.
    if let Ok(mut modes) = tcgetattr(&console) {
        modes.output_modes.remove(OutputModes::OPOST);
        let _ = tcsetattr(&console, OptionalActions::Drain, &modes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_makes_no_line_of_its_own() {
        let text = line("portolan-init[t]: ", "a\nportolan-init[t]: workload exited with status 0");
        assert_eq!(text.matches('\n').count(), 2);
        assert!(text.starts_with("\nportolan-init[t]: a portolan"));
        assert!(line("", &"x".repeat(5000)).len() < 2100);
    }
}
