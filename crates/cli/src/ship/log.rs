//! The stages as they pass: each is timed, shown while it runs, and noted down.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use portolan_build::engine::Watch;
use portolan_build::request::progress::{Row as Shown, State as ShownState};
use portolan_core::{Digest, Platform, Reference};
use tokio_util::sync::CancellationToken;

use super::interrupted;
use super::plan::Stage;
use super::report::{Product, Row, State};
use crate::cluster::screen::{Lines, Screen};
use crate::exit::{Exit, Failure};
use crate::progress::Mode;

/// What a stage gives to the next, and what is told of it.
pub(super) struct Done<T> {
    pub(super) value: T,
    pub(super) result: String,
    pub(super) produced: Vec<Product>,
    /// Nothing had to be done.
    pub(super) unchanged: bool,
}

impl<T> Done<T> {
    pub(super) fn new(value: T, result: impl Into<String>) -> Self {
        Self { value, result: result.into(), produced: Vec::new(), unchanged: false }
    }

    pub(super) fn with(self, produced: Vec<Product>) -> Self {
        Self { produced, ..self }
    }

    pub(super) fn unchanged_if(self, unchanged: bool) -> Self {
        Self { unchanged, ..self }
    }
}

/// A row for each platform and each stage, while they are at work.
pub(super) struct Screens(Mutex<(Screen, Vec<Shown>)>);

impl Screens {
    pub(super) fn new(mode: Mode) -> Self {
        Self(Mutex::new((Screen::new(mode, Lines::Stderr), Vec::new())))
    }

    pub(super) fn show(&self, part: &str, state: ShownState, detail: &str) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (screen, rows) = &mut *guard;
        let row = Shown { part: part.to_owned(), state, detail: detail.to_owned() };
        match rows.iter_mut().find(|row| row.part == part) {
            Some(old) => *old = row,
            None => rows.push(row),
        }
        screen.show(rows);
    }

    pub(super) fn tell(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.tell(text);
    }
}

impl Watch for Screens {
    fn source(&self, _image: &Reference, digest: &str) {
        self.show("source", ShownState::Succeeded, &short(digest));
    }

    fn began(&self, platform: &Platform) {
        self.show(&platform.to_string(), ShownState::Running, "building");
    }

    fn stored(&self, platform: &Platform, _image: &Reference, digest: &str) {
        self.show(&platform.to_string(), ShownState::Succeeded, &short(digest));
    }

    fn failed(&self, platform: &Platform, why: &str) {
        self.show(&platform.to_string(), ShownState::Failed, why);
    }

    fn skipped(&self, name: &Path) {
        self.tell(&format!("note: the socket {} is not part of the source", name.display()));
    }
}

/// A digest as people tell it.
pub(super) fn short(digest: &str) -> String {
    digest.parse::<Digest>().map_or_else(|_| digest.to_owned(), |digest| digest.short())
}

/// The stages that have passed.
pub(super) struct Log<'a> {
    pub(super) screens: &'a Screens,
    pub(super) rows: Vec<Row>,
}

impl Log<'_> {
    /// Carries out a stage.
    pub(super) async fn stage<T>(
        &mut self,
        stage: Stage,
        work: impl Future<Output = Result<Done<T>, Failure>>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        self.screens.show(stage.name(), ShownState::Running, "");
        let outcome = work.await;
        let seconds = began.elapsed().as_secs_f64();
        let (row, shown, outcome) = match outcome {
            Ok(Done { value, result, produced, unchanged }) => {
                let state = if unchanged { State::Unchanged } else { State::Done };
                (Row { stage, state, result, produced, seconds }, ShownState::Succeeded, Ok(value))
            }
            Err(failure) => {
                let (state, shown) = match failure.exit {
                    Exit::Interrupted => (State::Interrupted, ShownState::Canceled),
                    _ => (State::Failed, ShownState::Failed),
                };
                let told = portolan_core::causes::chain(&*failure.error);
                let result = told.lines().next().unwrap_or_default().to_owned();
                (Row { stage, state, result, produced: Vec::new(), seconds }, shown, Err(failure))
            }
        };
        self.screens.show(stage.name(), shown, &row.result);
        self.rows.push(row);
        outcome
    }
}

/// Work that is given up when somebody asks for it.
pub(super) async fn until<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(interrupted()),
        done = work => done,
    }
}
