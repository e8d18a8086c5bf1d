//! A block of ours in somebody else's file: added at the end, taken away without a trace.
//!
//! One empty line comes before it, unless the file is empty. Where the last line had no end, the end is
//! added and the mark says so, or taking the block away could not give the file back as it was. Texts may
//! be templates, so all of this is by lines; whether the result is TOML is looked at elsewhere.

use toml_edit::Key;

use super::{ConfigError, Version};
use crate::node::request::Options;

const BEGIN: &str = "# portolan: begin ";
const END: &str = "# portolan: end ";
/// After the name, where the line before had no end.
const ENDED_LINE: &str = " (after a line without its end)";
/// The block that says what containerd 1 would otherwise forget. No shim can be called so.
const DEFAULT: &str = "(default runtime)";

/// What a runtime's table says.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// What pods ask for.
    pub handler: &'a str,
    /// Where its program is, as the host names it.
    pub program: &'a str,
    /// What it is told.
    pub options: &'a Options,
}

/// A block in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    start: usize,
    /// Where what is between the marks begins and ends.
    inner: (usize, usize),
    end: usize,
    ended_line: bool,
}

/// The lines of a text with where they begin, their ends included.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line)
    })
}

fn find(path: &str, text: &str, name: &str) -> Result<Option<Found>, ConfigError> {
    let mut open: Option<(usize, usize, bool)> = None;
    for (start, line) in lines(text) {
        let bare = line.trim_end();
        if open.is_none() {
            let Some(rest) = bare.strip_prefix(BEGIN) else { continue };
            let ended = rest.strip_suffix(ENDED_LINE);
            if ended.unwrap_or(rest) == name {
                open = Some((start, start + line.len(), ended.is_some()));
            }
        } else if bare.strip_prefix(END) == Some(name) {
            let (begin, inner, ended_line) = open.unwrap_or_default();
            let end = start + line.len();
            return Ok(Some(Found { start: begin, inner: (inner, start), end, ended_line }));
        }
    }
    match open {
        Some(_) => Err(ConfigError::Torn { path: path.to_owned(), name: name.to_owned() }),
        None => Ok(None),
    }
}

/// The shims that have a block in a text.
#[must_use]
pub fn blocks(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim_end().strip_prefix(BEGIN)?;
        let name = rest.strip_suffix(ENDED_LINE).unwrap_or(rest);
        (name != DEFAULT).then(|| name.to_owned())
    };
    lines(text).filter_map(|(_, line)| name(line)).collect()
}

/// How the lines of a text end. After a lone `\r` at its end a `\n` of ours would be read as the other half of one.
fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") || text.ends_with('\r') { "\r\n" } else { "\n" }
}

/// A runtime's tables, in lines that end with `nl`.
pub(super) fn tables(version: Version, entry: &Entry<'_>, nl: &str) -> String {
    let key = |name: &str| Key::new(name).to_string();
    let plugin = key(version.plugin());
    let handler = key(entry.handler);
    let table = format!("plugins.{plugin}.containerd.runtimes.{handler}");
    let program = toml_edit::Value::from(entry.program).to_string();
    let mut text = format!("[{table}]{nl}runtime_type = {program}{nl}");
    if !entry.options.is_empty() {
        text += &format!("{nl}[{table}.options]{nl}");
        for (name, value) in entry.options.iter() {
            text += &format!("{} = {value}{nl}", key(name));
        }
    }
    text
}

/// What containerd 1 has built in, until a file names a runtime.
fn default_tables(version: Version, nl: &str) -> String {
    let none = Options::default();
    tables(
        version,
        &Entry { handler: "runc", program: "io.containerd.runc.v2", options: &none },
        nl,
    )
}

/// The text with the block of `name` saying `inner`: in its place if it is there, else at the end.
fn put(path: &str, text: &str, name: &str, inner: &str) -> Result<String, ConfigError> {
    if let Some(found) = find(path, text, name)? {
        return Ok([&text[..found.inner.0], inner, &text[found.inner.1..]].concat());
    }
    let nl = line_end(text);
    let ended = text.is_empty() || text.ends_with('\n');
    let (gap, mark) = match (text.is_empty(), ended) {
        (true, _) => (String::new(), ""),
        (false, true) => (nl.to_owned(), ""),
        (false, false) => (nl.repeat(2), ENDED_LINE),
    };
    Ok(format!("{text}{gap}{BEGIN}{name}{mark}{nl}{inner}{END}{name}{nl}"))
}

fn cut(path: &str, text: &str, name: &str) -> Result<String, ConfigError> {
    let Some(found) = find(path, text, name)? else { return Ok(text.to_owned()) };
    let nl = if text[found.start..found.inner.0].ends_with("\r\n") { "\r\n" } else { "\n" };
    let (before, after) = (&text[..found.start], &text[found.end..]);
    let without_gap =
        before.strip_suffix(nl).filter(|rest| rest.is_empty() || rest.ends_with('\n'));
    let before = without_gap.unwrap_or(before);
    if !found.ended_line {
        return Ok([before, after].concat());
    }
    // The end of that line is ours: it goes with the last block that needs it.
    if after.is_empty() {
        return Ok(before.strip_suffix(nl).unwrap_or(before).to_owned());
    }
    let next = lines(after).find(|(_, line)| !line.trim().is_empty());
    let inherits =
        next.filter(|(_, line)| line.starts_with(BEGIN) && !line.trim_end().ends_with(ENDED_LINE));
    Ok(match inherits {
        Some((at, line)) => {
            let mark = at + line.trim_end().len();
            [before, &after[..mark], ENDED_LINE, &after[mark..]].concat()
        }
        None => [before, after].concat(),
    })
}

/// Adds the block of `name`, or brings the one that is there up to date.
///
/// `say_default`: this file would be the first to name a runtime, and containerd 1 would forget its own.
///
/// # Errors
/// A block is torn.
pub fn add(
    path: &str,
    text: &str,
    name: &str,
    version: Version,
    entry: &Entry<'_>,
    say_default: bool,
) -> Result<String, ConfigError> {
    let nl = line_end(text);
    let mut text = text.to_owned();
    if say_default {
        text = put(path, &text, DEFAULT, &default_tables(version, nl))?;
    }
    put(path, &text, name, &tables(version, entry, nl))
}

/// Takes the block of `name` away; with the last shim's goes the one that they share.
///
/// # Errors
/// A block is torn.
pub fn remove(path: &str, text: &str, name: &str) -> Result<String, ConfigError> {
    let text = cut(path, text, name)?;
    if blocks(&text).is_empty() { cut(path, &text, DEFAULT) } else { Ok(text) }
}

/// The text without anything of ours.
pub(super) fn foreign(path: &str, text: &str) -> Result<String, ConfigError> {
    let mut text = text.to_owned();
    for name in blocks(&text) {
        text = remove(path, &text, &name)?;
    }
    cut(path, &text, DEFAULT)
}

/// What is between the marks of `name`.
pub(super) fn inner<'a>(path: &str, text: &'a str, name: &str) -> Option<&'a str> {
    let found = find(path, text, name).ok().flatten()?;
    text.get(found.inner.0..found.inner.1)
}

/// `text` with the block of `name` as it is in `model`, and everything else as it is.
pub(super) fn as_in(
    path: &str,
    text: &str,
    model: &str,
    name: &str,
) -> Result<String, ConfigError> {
    match find(path, model, name)? {
        Some(found) => put(path, text, name, &model[found.inner.0..found.inner.1]),
        None => remove(path, text, name),
    }
}

/// `text` with our blocks as they are in `model`, and everything else as it is.
pub(crate) fn ours_as_in(path: &str, text: &str, model: &str) -> Result<String, ConfigError> {
    let mut text = text.to_owned();
    let mut names = blocks(&text);
    let others = blocks(model).into_iter().filter(|name| !names.contains(name));
    names.extend(others.collect::<Vec<_>>());
    // The one that they share goes last, as it would with the last of them.
    names.push(DEFAULT.to_owned());
    for name in names {
        text = match find(path, model, &name)? {
            Some(found) => put(path, &text, &name, &model[found.inner.0..found.inner.1])?,
            None => cut(path, &text, &name)?,
        };
    }
    Ok(text)
}
