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

/// All of them.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    pub(super) cells: Vec<Cell>,
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
                report.why().next().map(str::to_owned)
            }
            _ => None,
        }
    }
}

impl Matrix {
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
        let mut images: Vec<&str> = Vec::new();
        let mut hosts: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !images.contains(&cell.image.as_str()) {
                images.push(&cell.image);
            }
            if !hosts.contains(&cell.host.as_str()) {
                hosts.push(&cell.host);
            }
        }
        let verdict = |host: &str, image: &str| {
            let cell = self.cells.iter().find(|cell| cell.host == host && cell.image == image);
            match cell.map(|cell| cell.verdict) {
                Some("noArtifact") => "no artifact".to_owned(),
                verdict => verdict.unwrap_or("-").to_owned(),
            }
        };
        let rows = hosts.iter().map(|host| {
            let verdicts = images.iter().map(|image| verdict(host, image));
            std::iter::once(format::safe(host)).chain(verdicts).collect()
        });
        let header: Vec<&str> = std::iter::once("HOST").chain(images.iter().copied()).collect();
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
            |exits: &[Exit]| Matrix { cells: exits.iter().copied().map(failed).collect() }.exit();
        assert_eq!(exit(&[]), Exit::Ok);
        assert_eq!(exit(&[Exit::NoArtifact, Exit::No]), Exit::No);
        assert_eq!(exit(&[Exit::NoArtifact, Exit::CannotTell]), Exit::CannotTell);
        assert_eq!(exit(&[Exit::No, Exit::Transport, Exit::Usage]), Exit::Transport);
        assert_eq!(exit(&[Exit::NoArtifact]), Exit::NoArtifact);
    }
}
