//! What a build on this machine shows: while it goes on, and when it is over.

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use portolan_api::build::{BuildRunStatus, PlatformState};
use portolan_build::engine::{Request, Watch};
use portolan_build::request::progress::{Row, State};
use portolan_core::{Platform, Reference};

use crate::cluster::screen::{self, Screen};
use crate::format;
use crate::progress::Mode;

/// Who watches: rows on a terminal, as of a run in a cluster, and lines elsewhere.
pub(super) fn watch(mode: Mode) -> Box<dyn Watch> {
    match mode {
        Mode::Auto if std::io::stderr().is_terminal() => {
            let screen = Screen::new(mode, screen::Lines::Stderr);
            Box::new(Rows(Mutex::new((screen, Vec::new()))))
        }
        _ => Box::new(Lines { quiet: mode == Mode::None }),
    }
}

/// One row for the source and each platform.
struct Rows(Mutex<(Screen, Vec<Row>)>);

impl Rows {
    fn show(&self, part: &str, state: State, detail: &str) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (screen, rows) = &mut *guard;
        rows.retain(|row| row.part != part);
        rows.push(Row { part: part.to_owned(), state, detail: detail.to_owned() });
        screen.show(rows);
    }
}

impl Watch for Rows {
    fn source(&self, image: &Reference, _digest: &str) {
        self.show("source", State::Succeeded, &image.to_string());
    }

    fn began(&self, platform: &Platform) {
        self.show(&platform.to_string(), State::Running, "");
    }

    fn stored(&self, platform: &Platform, image: &Reference, _digest: &str) {
        self.show(&platform.to_string(), State::Succeeded, &image.to_string());
    }

    fn failed(&self, platform: &Platform, why: &str) {
        self.show(&platform.to_string(), State::Failed, why);
    }

    fn skipped(&self, name: &Path) {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guard.0.tell(&left_out(name));
    }
}

fn left_out(name: &Path) -> String {
    format!("note: the socket {} is not part of the source", name.display())
}

/// One line for each thing that happens.
struct Lines {
    quiet: bool,
}

impl Lines {
    fn tell(&self, text: &str) {
        if !self.quiet {
            format::tell(text);
        }
    }
}

impl Watch for Lines {
    fn source(&self, image: &Reference, digest: &str) {
        self.tell(&format!("source        {image} {digest}"));
    }

    fn began(&self, platform: &Platform) {
        self.tell(&format!("{:13} building", platform.to_string()));
    }

    fn stored(&self, platform: &Platform, image: &Reference, digest: &str) {
        self.tell(&format!("{:13} {image} {digest}", platform.to_string()));
    }

    fn failed(&self, platform: &Platform, why: &str) {
        self.tell(&format!("{:13} failed: {why}", platform.to_string()));
    }

    fn skipped(&self, name: &Path) {
        self.tell(&left_out(name));
    }
}

pub(super) fn table(status: &BuildRunStatus, request: &Request) -> String {
    let output = status.output.clone().unwrap_or_default();
    let rows = output.platforms.iter().map(|row| {
        let platform = [Some(&row.os), Some(&row.arch), row.variant.as_ref()];
        let platform: Vec<&str> = platform.into_iter().flatten().map(String::as_str).collect();
        let state = match row.state {
            PlatformState::Succeeded => "succeeded",
            _ => "failed",
        };
        let size = row.size.and_then(|size| u64::try_from(size).ok()).map(format::size);
        vec![
            platform.join("/"),
            state.to_owned(),
            size.unwrap_or_default(),
            row.digest.clone().unwrap_or_default(),
        ]
    });
    let table = format::table(&["PLATFORM", "STATE", "SIZE", "DIGEST"], rows.collect());
    let message = status.conditions.first().map(|c| c.message.as_str()).unwrap_or_default();
    let top = match &output.digest {
        Some(digest) => format!("{}\n{digest}", request.outputs.index()),
        None => format!("{}\n{}", request.outputs.index(), format::printable(message)),
    };
    format!("{top}\n\n{table}")
}
