//! From bytes to logical lines: comments gone, continued lines joined, here-documents attached.

use super::{ContainerfileError, MAX_BYTES, MAX_INSTRUCTIONS, Position};

/// One instruction's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    /// Where each byte of the text stands in the file.
    places: Vec<Position>,
    /// Here-documents that it announces, in order.
    pub(super) documents: Vec<Heredoc>,
}

/// A here-document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heredoc {
    pub(super) name: String,
    pub(super) content: String,
    /// Whether its name was without quotes.
    pub(super) expand: bool,
}

impl Line {
    /// Where a byte of the text stands.
    pub(super) fn at(&self, offset: usize) -> Position {
        let last = Position { line: 1, column: 1 };
        self.places.get(offset).or_else(|| self.places.last()).copied().unwrap_or(last)
    }
}

/// The logical lines, and the character that continues them.
pub(super) fn lines(bytes: &[u8]) -> Result<(Vec<Line>, char), ContainerfileError> {
    let start = Position { line: 1, column: 1 };
    if bytes.len() > MAX_BYTES {
        let what =
            format!("the Containerfile has {} bytes, at most {MAX_BYTES} are read", bytes.len());
        return Err(ContainerfileError::new(start, what));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
        ContainerfileError::new(Position { line, column: 1 }, "this is not UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let physical: Vec<&str> = text.lines().collect();
    let escape = directive(&physical)?;
    let mut reader = Reader { physical: &physical, next: 0, escape };
    let mut lines = Vec::new();
    while let Some(line) = reader.logical()? {
        if lines.len() >= MAX_INSTRUCTIONS {
            let what = format!("more than {MAX_INSTRUCTIONS} instructions");
            return Err(ContainerfileError::new(line.at(0), what));
        }
        lines.push(line);
    }
    Ok((lines, escape))
}

/// `# escape=` in the comments that begin the file; other directives say nothing to us.
fn directive(physical: &[&str]) -> Result<char, ContainerfileError> {
    let comments = physical
        .iter()
        .enumerate()
        .map_while(|(at, line)| line.trim_start().strip_prefix('#').map(|comment| (at, comment)));
    for (at, comment) in comments {
        let Some((key, value)) = comment.split_once('=') else { break };
        if key.trim().eq_ignore_ascii_case("escape") {
            return match value.trim() {
                "\\" => Ok('\\'),
                "`" => Ok('`'),
                other => Err(ContainerfileError::new(
                    Position { line: at + 1, column: 1 },
                    format!("the escape character is {other:?}, must be \\ or `"),
                )),
            };
        }
    }
    Ok('\\')
}

struct Reader<'a> {
    physical: &'a [&'a str],
    next: usize,
    escape: char,
}

impl Reader<'_> {
    fn logical(&mut self) -> Result<Option<Line>, ContainerfileError> {
        let mut line = Line { text: String::new(), places: Vec::new(), documents: Vec::new() };
        let mut open = false;
        while let Some(physical) = self.physical.get(self.next) {
            let number = self.next + 1;
            self.next += 1;
            let trimmed = physical.trim();
            // Comments and empty lines may stand anywhere, also between continued ones.
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let content = physical.trim_end();
            let (content, continued) = match content.strip_suffix(self.escape) {
                Some(rest) => (rest, true),
                None => (content, false),
            };
            let indent = if open { 0 } else { content.len() - content.trim_start().len() };
            for (at, c) in content.char_indices().filter(|(at, _)| *at >= indent) {
                line.text.push(c);
                let place = Position { line: number, column: at + 1 };
                line.places.extend(std::iter::repeat_n(place, c.len_utf8()));
            }
            open = true;
            if !continued {
                break;
            }
        }
        if !open {
            return Ok(None);
        }
        self.documents(&mut line)?;
        Ok(Some(line))
    }

    /// Reads what `<<NAME` words announce. Only COPY, ADD and RUN have them.
    fn documents(&mut self, line: &mut Line) -> Result<(), ContainerfileError> {
        let keyword = line.text.split_whitespace().next().unwrap_or_default();
        if !["COPY", "ADD", "RUN"].iter().any(|k| keyword.eq_ignore_ascii_case(k)) {
            return Ok(());
        }
        let announced: Vec<(usize, String, bool, bool)> = line
            .text
            .match_indices("<<")
            .filter(|(at, _)| line.text[..*at].ends_with(char::is_whitespace))
            .filter_map(|(at, _)| {
                let word = line.text[at + 2..].split_whitespace().next()?;
                let (word, tabs) = word.strip_prefix('-').map_or((word, false), |w| (w, true));
                let name = word.trim_matches(['"', '\'']);
                let plain = !name.is_empty()
                    && name.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
                plain.then(|| (at, name.to_owned(), name.len() == word.len(), tabs))
            })
            .collect();
        for (at, name, expand, tabs) in announced {
            let mut content = String::new();
            loop {
                let Some(physical) = self.physical.get(self.next) else {
                    let what = format!(
                        "the here-document {name:?} does not end; write {name} on a line of its own"
                    );
                    return Err(ContainerfileError::new(line.at(at), what));
                };
                self.next += 1;
                let physical = if tabs { physical.trim_start_matches('\t') } else { physical };
                if physical == name {
                    break;
                }
                content.push_str(physical);
                content.push('\n');
            }
            line.documents.push(Heredoc { name, content, expand });
        }
        Ok(())
    }
}
