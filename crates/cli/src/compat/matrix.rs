//! Which of several machines fit which of several images.

use std::fmt::Write as _;

use portolan_compat::report::{Compatibility, Report};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::format;

/// One machine and one image.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cell {
    pub(super) host: String,
    pub(super) image: String,
    verdict: &'static str,
    /// Why there is no report.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
    #[serde(skip)]
    exit: Exit,
}

/// All of them: each image with each machine in the order of the command line, so that what is
/// named twice is answered twice, in a row or column of its own.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    cells: Vec<Cell>,
    #[serde(skip)]
    machines: usize,
}

/// The exit code of a verdict.
pub(super) fn exit(verdict: Compatibility) -> Exit {
    match verdict {
        Compatibility::Compatible => Exit::Ok,
        Compatibility::Incompatible => Exit::No,
        Compatibility::Unknown => Exit::CannotTell,
    }
}

impl Cell {
    pub(super) fn new(host: String, image: String, outcome: Result<Report, Failure>) -> Self {
        match outcome {
            Ok(report) => {
                let verdict = report.verdict;
                let (exit, verdict) = (exit(verdict), verdict.as_str());
                Self { host, image, verdict, message: None, report: Some(report), exit }
            }
            Err(failure) => {
                let verdict = match failure.exit {
                    Exit::No => "incompatible",
                    Exit::CannotTell => "unknown",
                    Exit::NoArtifact => "noArtifact",
                    _ => "error",
                };
                let message = Some(format!("{:#}", failure.error));
                Self { host, image, verdict, message, report: None, exit: failure.exit }
            }
        }
    }

    /// Why it is not plainly compatible, for people.
    fn why(&self) -> Option<String> {
        match (&self.message, &self.report) {
            (Some(message), _) => message.lines().next().map(str::to_owned),
            (None, Some(report)) if report.verdict != Compatibility::Compatible => {
                report.why().next()
            }
            _ => None,
        }
    }
}

impl Matrix {
    /// Of all images' cells, one after the other, each with one for every machine.
    pub(super) fn new(machines: usize, cells: Vec<Cell>) -> Self {
        Self { cells, machines }
    }

    /// Trouble before "no", "no" before "unknown", and zero only where every host fits every image.
    pub(super) fn exit(&self) -> Exit {
        let order = [
            Exit::Interrupted,
            Exit::Transport,
            Exit::Usage,
            Exit::NotFound,
            Exit::No,
            Exit::CannotTell,
            Exit::NoArtifact,
        ];
        let worst = order.into_iter().find(|exit| self.cells.iter().any(|cell| cell.exit == *exit));
        worst.unwrap_or(Exit::Ok)
    }

    /// A table of machines and images, and below it why.
    pub(super) fn table(&self) -> String {
        // A column of the table is an image with all machines.
        let columns: Vec<&[Cell]> = self.cells.chunks(self.machines.max(1)).collect();
        let images = columns.iter().filter_map(|column| column.first()).map(|cell| &*cell.image);
        let header: Vec<&str> = std::iter::once("HOST").chain(images).collect();
        let machines = columns.first().copied().unwrap_or_default();
        let rows = machines.iter().enumerate().map(|(n, machine)| {
            let cells = columns.iter().map(|column| column.get(n).map_or("-", |cell| cell.verdict));
            let verdicts = cells.map(|verdict| match verdict {
                "noArtifact" => "no artifact".to_owned(),
                verdict => verdict.to_owned(),
            });
            std::iter::once(format::safe(&machine.host)).chain(verdicts).collect()
        });
        let mut out = format::table(&header, rows.collect());
        for cell in &self.cells {
            if let Some(why) = cell.why() {
                let (host, image) = (format::safe(&cell.host), &cell.image);
                let _ = write!(out, "\n{host}, {image}: {}", format::safe(&why));
            }
        }
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(exit: Exit) -> Cell {
        Cell::new("h".to_owned(), "i".to_owned(), Err(Failure::new(exit, anyhow::anyhow!("x"))))
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst() {
        let exit =
            |exits: &[Exit]| Matrix::new(1, exits.iter().copied().map(failed).collect()).exit();
        assert_eq!(exit(&[]), Exit::Ok);
        assert_eq!(exit(&[Exit::NoArtifact, Exit::No]), Exit::No);
        assert_eq!(exit(&[Exit::NoArtifact, Exit::CannotTell]), Exit::CannotTell);
        assert_eq!(exit(&[Exit::No, Exit::Transport, Exit::Usage]), Exit::Transport);
        assert_eq!(exit(&[Exit::NoArtifact]), Exit::NoArtifact);
    }

    #[test]
    fn what_is_named_twice_is_answered_twice() {
        let cell = |host: &str, image: &str, exit| {
            let error = anyhow::anyhow!("{host}'s");
            Cell::new(host.to_owned(), image.to_owned(), Err(Failure::new(exit, error)))
        };
        let cells = vec![
            cell("a", "i", Exit::No),
            cell("a", "i", Exit::No),
            cell("a", "i", Exit::NoArtifact),
            cell("a", "i", Exit::CannotTell),
        ];
        let table = Matrix::new(2, cells).table();
        let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["HOST", "i", "i"]);
        assert!(lines[1].starts_with("a") && lines[1].ends_with("no artifact"), "{table}");
        assert!(lines[2].starts_with("a") && lines[2].ends_with("unknown"), "{table}");
        assert_eq!(lines[3..].iter().filter(|line| **line == "a, i: a's").count(), 4, "{table}");
    }
}
