//! Short ways to say no.

use crate::authority::{Refusal, RefusalCode};

pub(super) fn refuse(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

pub(super) fn malformed(message: impl Into<String>) -> Refusal {
    refuse(RefusalCode::Malformed, message)
}

pub(super) fn unsupported(message: impl Into<String>) -> Refusal {
    refuse(RefusalCode::Unsupported, message)
}

pub(super) fn untrusted(message: impl Into<String>) -> Refusal {
    refuse(RefusalCode::UntrustedCertificate, message)
}

/// Text of strangers, cut short and without anything that plays with a terminal.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}
