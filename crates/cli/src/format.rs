//! `-o table|json|yaml`: what a command prints as data.

use std::io::{IsTerminal as _, Write as _};

use portolan_core::terminal::plays;
pub(crate) use portolan_core::terminal::printable;
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// How to print data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

impl Format {
    /// Prints `data`, with `table` drawing it for people.
    pub(crate) fn print<T: Serialize>(
        self,
        data: &T,
        table: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let text = match self {
            Self::Table => table(data),
            Self::Json => json(data)?,
            Self::Yaml => yaml(data)?,
        };
        write(&text)
    }
}

/// Data as JSON that any terminal may show: the same data to whoever reads it.
pub(crate) fn json<T: Serialize>(data: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(data).map_err(Failure::usage)? + "\n";
    if !text.contains(in_data) {
        return Ok(text);
    }
    // Outside of texts there are none of these, and inside they may be written so.
    let mut shown = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if in_data(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    Ok(shown)
}

/// Data as YAML that any terminal may show. How a text is quoted is not ours to say there, so what
/// must be escaped makes it JSON, which is YAML, too.
pub(crate) fn yaml<T: Serialize>(data: &T) -> Result<String, Failure> {
    let text = serde_yaml_ng::to_string(data).map_err(Failure::usage)?;
    if text.contains(in_data) { json(data) } else { Ok(text) }
}

/// What no data may show as it is; lines are broken by whoever writes them.
fn in_data(c: char) -> bool {
    plays(c) && c != '\n'
}

/// Writes to stdout. A reader that has had enough (`| head`) is no trouble.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    write_bytes(text.as_bytes())
}

/// Writes a stranger's bytes to stdout: to a program as they are, to a terminal as it may show
/// them.
pub(crate) fn write_raw(bytes: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().is_terminal() {
        true => write(&printable(&String::from_utf8_lossy(bytes))),
        false => write_bytes(bytes),
    }
}

fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Transport, anyhow::Error::new(error).context("write to stdout")))
        }
        _ => Ok(()),
    }
}

/// Says something to the person, on stderr.
///
/// Errors quote strangers: what would move the cursor or turn the text around is escaped. A
/// stderr that is full or closed is no reason to stop working.
pub(crate) fn tell(text: &str) {
    let mut line = printable(text);
    line.push('\n');
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// A table without lines: columns padded, nothing a script would have to strip.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A stranger's text on one line of a terminal. Quotes and backslashes do nothing there, and a
/// sentence with `isn\'t` in it is one that nobody wrote.
pub(crate) fn safe(text: &str) -> String {
    safe_chars(text.chars().take(200))
}

/// The same of a text of ours, all of it.
pub(crate) fn safe_whole(text: &str) -> String {
    safe_chars(text.chars())
}

fn safe_chars(text: impl Iterator<Item = char>) -> String {
    let mut shown = String::new();
    for c in text {
        match c {
            ' '..='~' => shown.push(c),
            // It knows which characters can be seen.
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// A stranger's bytes on one line of a terminal, all of them: two names never look the same.
pub(crate) fn safe_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.extend(chunk.valid().chars().flat_map(char::escape_debug));
        shown.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    shown
}

/// `1.50 MiB`: binary units.
pub(crate) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_on_a_disk_plays_with_the_terminal() {
        let shown = safe_bytes("a\u{1b}[1m\u{202e}é\n\\".as_bytes());
        assert_eq!(shown, "a\\u{1b}[1m\\u{202e}é\\n\\\\");
        assert_eq!(safe_bytes(b"a\xff\xfeb"), "a\\xff\\xfeb");
    }

    #[test]
    fn a_strangers_sentence_is_one_line_with_its_quotes_as_they_are() {
        assert_eq!(safe(r#"the processor's "maker" \ é"#), r#"the processor's "maker" \ é"#);
        let hostile = "a\u{1b}[1m\u{7f}\u{9b}m\u{202e}\r\nb\t\0";
        assert_eq!(safe(hostile), "a\\u{1b}[1m\\u{7f}\\u{9b}m\\u{202e}\\r\\nb\\t\\0");
        assert_eq!(safe(&"x".repeat(500)).len(), 200);
    }
}
