//! The thread that carries changes to the database.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::database::is_beyond_repair;
use super::{Changes, Database};
use portolan_core::causes::chain;

/// Changes that come within this time of each other share a transaction, and so an fsync.
const GATHER: Duration = Duration::from_millis(5);
/// Times of use alone are written this often; a crash costs no more than their last half minute.
const IDLE: Duration = Duration::from_secs(30);
/// After a failure the next try is not made at once: a full disk stays full for a while.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Who has changes to tell.
pub trait Journal: Send {
    /// All that is not in the database yet.
    fn take_changes(&mut self) -> Changes;
    /// They were not written; they will be asked for again.
    fn not_taken(&mut self);
}

enum Message {
    /// Something changed that should be written soon.
    Soon,
    /// Everything that is known now is to be written; answered when that was tried.
    Flush(Sender<bool>),
}

/// The thread. Dropping it writes what is left and waits for it.
#[derive(Debug)]
pub struct Writer {
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub fn start<J: Journal + 'static>(database: Database, journal: Arc<Mutex<J>>) -> Self {
        let (messages, inbox) = mpsc::channel();
        let thread = std::thread::spawn(move || run(database, &journal, &inbox));
        Self { messages: Some(messages), thread: Some(thread) }
    }

    /// Says that pins changed.
    pub fn soon(&self) {
        if let Some(messages) = &self.messages {
            // It only ends when this is dropped.
            let _ = messages.send(Message::Soon);
        }
    }

    /// Writes everything and waits for it; false when the database did not take it.
    pub fn flush(&self) -> bool {
        let (answer, answered) = mpsc::channel();
        let sent = self.messages.as_ref().map(|m| m.send(Message::Flush(answer)));
        matches!(sent, Some(Ok(()))) && answered.recv().unwrap_or(false)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run<J: Journal>(mut database: Database, journal: &Mutex<J>, inbox: &mpsc::Receiver<Message>) {
    let mut wait = IDLE;
    loop {
        let (answer, last) = match inbox.recv_timeout(wait) {
            Ok(Message::Soon) => {
                std::thread::sleep(GATHER);
                (None, false)
            }
            Ok(Message::Flush(answer)) => (Some(answer), false),
            Err(RecvTimeoutError::Timeout) => (None, false),
            Err(RecvTimeoutError::Disconnected) => (None, true),
        };
        // Those that waited meanwhile are served by the same transaction.
        let mut answers: Vec<Sender<bool>> = answer.into_iter().collect();
        answers.extend(inbox.try_iter().filter_map(|message| match message {
            Message::Soon => None,
            Message::Flush(answer) => Some(answer),
        }));
        let written = write(&mut database, journal);
        for answer in answers {
            let _ = answer.send(written);
        }
        if last {
            return;
        }
        wait = if written { IDLE } else { AFTER_FAILURE };
    }
}

fn write<J: Journal>(database: &mut Database, journal: &Mutex<J>) -> bool {
    let lock = || journal.lock().unwrap_or_else(PoisonError::into_inner);
    let changes = lock().take_changes();
    if changes.is_empty() {
        return true;
    }
    let Err(error) = database.write(&changes) else { return true };
    tracing::warn!(
        error = chain(&error),
        "pins were not written; they are kept in memory and tried again"
    );
    lock().not_taken();
    if is_beyond_repair(&error)
        && let Err(error) = database.start_over()
    {
        tracing::warn!(error = chain(&error), "the database of pins cannot be made anew");
    }
    false
}
