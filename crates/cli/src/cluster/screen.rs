//! What following a run shows: a row for each platform and phase, and the lines of its pods.

use std::collections::HashMap;
use std::io::IsTerminal as _;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use portolan_build::request::progress::{Row, State};

use crate::exit::Failure;
use crate::format;
use crate::progress::Mode;

/// Where lines of logs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// They are what was asked for.
    Stdout,
    /// Something else is.
    Stderr,
}

/// The screen of one run.
pub(crate) struct Screen {
    rows: Rows,
    lines: Lines,
}

enum Rows {
    /// They move, at the bottom of a terminal.
    Bars(Bars),
    /// Each change is a line of its own.
    Plain(HashMap<String, String>),
    None,
}

impl Screen {
    pub(crate) fn new(mode: Mode, lines: Lines) -> Self {
        let rows = match mode {
            Mode::None => Rows::None,
            Mode::Auto if std::io::stderr().is_terminal() => {
                Rows::Bars(Bars::new(ProgressDrawTarget::stderr()))
            }
            Mode::Auto | Mode::Plain => Rows::Plain(HashMap::new()),
        };
        Self { rows, lines }
    }

    /// Shows how far a run is.
    pub(crate) fn show(&mut self, rows: &[Row]) {
        match &mut self.rows {
            Rows::Bars(bars) => bars.show(rows),
            Rows::Plain(known) => changed(known, rows).iter().for_each(|line| format::tell(line)),
            Rows::None => {}
        }
    }

    /// One line of a pod, behind what it is of.
    pub(crate) fn line(&self, from: &str, text: &str) -> Result<(), Failure> {
        let line = format::printable(&format!("[{from}] {text}"));
        let write = || match self.lines {
            Lines::Stdout => format::write(&format!("{line}\n")),
            Lines::Stderr => {
                format::tell(&line);
                Ok(())
            }
        };
        match &self.rows {
            Rows::Bars(bars) => bars.screen.suspend(write),
            _ => write(),
        }
    }

    /// Something about the run itself.
    pub(crate) fn tell(&self, text: &str) {
        match &self.rows {
            Rows::Bars(bars) => bars.screen.suspend(|| format::tell(text)),
            Rows::Plain(_) | Rows::None => format::tell(text),
        }
    }
}

/// The rows that are not as they were, for people who read a log.
fn changed(known: &mut HashMap<String, String>, rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let told = told(row);
        if known.insert(row.part.clone(), told.clone()).as_ref() != Some(&told) {
            lines.push(format!("{:14} {told}", row.part));
        }
    }
    lines
}

fn told(row: &Row) -> String {
    format!("{} {}", row.state.word(), format::safe(&row.detail)).trim_end().to_owned()
}

/// One moving row for each part.
struct Bars {
    screen: MultiProgress,
    rows: HashMap<String, ProgressBar>,
}

impl Bars {
    fn new(target: ProgressDrawTarget) -> Self {
        Self { screen: MultiProgress::with_draw_target(target), rows: HashMap::new() }
    }

    fn show(&mut self, rows: &[Row]) {
        for row in rows {
            let bar = self.rows.entry(row.part.clone()).or_insert_with(|| {
                let bar = self.screen.add(ProgressBar::new_spinner());
                bar.set_style(style());
                bar.set_prefix(row.part.clone());
                bar
            });
            let text = told(row);
            match row.state {
                State::Pending | State::Running => {
                    bar.set_message(text);
                    bar.tick();
                }
                State::Succeeded | State::Failed | State::Canceled if !bar.is_finished() => {
                    bar.finish_with_message(text);
                }
                _ => bar.set_message(text),
            }
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{prefix:14} {spinner} {wide_msg} {elapsed:>5}")
        .expect("the template is a constant that works")
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    fn row(part: &str, state: State, detail: &str) -> Row {
        Row { part: part.to_owned(), state, detail: detail.to_owned() }
    }

    #[test]
    fn a_log_has_a_line_for_each_change_and_no_more() {
        let mut known = HashMap::new();
        let first = [row("source", State::Running, "git"), row("linux/arm64", State::Pending, "")];
        let lines = changed(&mut known, &first);
        assert_eq!(lines, ["source         running git", "linux/arm64    pending"]);
        assert_eq!(changed(&mut known, &first), [""; 0]);
        let next = [row("source", State::Succeeded, ""), row("linux/arm64", State::Pending, "")];
        assert_eq!(changed(&mut known, &next), ["source         succeeded"]);
        let hostile = [row("index", State::Failed, "a\u{1b}[1m\nb")];
        assert_eq!(changed(&mut known, &hostile), ["index          failed a\\u{1b}[1m\\nb"]);
    }

    #[test]
    fn a_terminal_has_one_row_for_each_part() {
        let term = InMemoryTerm::new(10, 80);
        let mut bars = Bars::new(ProgressDrawTarget::term_like(Box::new(term.clone())));
        bars.show(&[row("source", State::Running, "git"), row("linux/arm64", State::Pending, "")]);
        bars.show(&[row("source", State::Succeeded, ""), row("linux/arm64", State::Running, "x")]);
        let shown = term.contents();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2, "{shown}");
        assert!(lines[0].starts_with("source") && lines[0].contains("succeeded"), "{shown}");
        assert!(lines[1].starts_with("linux/arm64") && lines[1].contains("running x"), "{shown}");
    }
}
