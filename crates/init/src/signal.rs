//! Signals by the names images use.

use rustix::process::Signal;

/// The signal that `text` names: `SIGTERM`, `TERM`, `15`; empty is SIGTERM. Real-time signals are
/// not sent: no image of note stops by one, and the kernel interface used here has none.
pub(crate) fn parse(text: &str) -> Option<Signal> {
    let name = text.trim().to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let named = [
        ("", Signal::TERM),
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("ABRT", Signal::ABORT),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("PIPE", Signal::PIPE),
        ("ALRM", Signal::ALARM),
        ("TERM", Signal::TERM),
        ("CONT", Signal::CONT),
        ("STOP", Signal::STOP),
        ("TSTP", Signal::TSTP),
        ("WINCH", Signal::WINCH),
        ("IO", Signal::IO),
        ("PWR", Signal::POWER),
    ];
    match named.iter().find(|(known, _)| *known == name) {
        Some((_, signal)) => Some(*signal),
        None => Signal::from_named_raw(name.parse().ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_sig_and_numbers() {
        assert_eq!(parse(""), Some(Signal::TERM));
        for quit in ["SIGQUIT", "quit", "QUIT", "3", " 3 "] {
            assert_eq!(parse(quit), Some(Signal::QUIT), "{quit}");
        }
        for none in ["SIGNONE", "0", "-1", "99", "SIGRTMIN+3", "15x"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
