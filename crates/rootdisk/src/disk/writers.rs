//! Threads that hash and write chunks while layers go on being inflated.
//!
//! A write past the page cache waits for the disk, and a layer's thread has better things to do.
//! One or two threads are enough to keep a disk busy; the bound on buffers is what holds layers
//! back when the disk is slower than they are.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Aligned, Disk};
use crate::build::BuildError;

/// The queue between layers and disk.
pub(crate) struct Writers<'a> {
    disk: &'a Disk,
    state: Mutex<State>,
    /// Something to write, or the end.
    work: Condvar,
    /// A buffer to fill, or the end.
    room: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    free: Vec<Aligned>,
    /// How many more buffers may be made.
    unmade: usize,
    closed: bool,
    failure: Option<BuildError>,
    failed: bool,
}

struct Job {
    chunk: u32,
    length: usize,
    buffer: Aligned,
}

/// Writing failed, [`Writers::failure`] says why, or has ended.
#[derive(Debug)]
pub(crate) struct WriteFailed;

impl<'a> Writers<'a> {
    /// A queue with at most so many buffers, in use and waiting.
    pub(crate) fn new(disk: &'a Disk, buffers: usize) -> Self {
        let state = State { unmade: buffers, ..State::default() };
        Self { disk, state: Mutex::new(state), work: Condvar::new(), room: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with anything in it.
    pub(crate) fn buffer(&self) -> Result<Aligned, WriteFailed> {
        let mut state = self.state();
        loop {
            if state.failed || state.closed {
                return Err(WriteFailed);
            }
            if let Some(buffer) = state.free.pop() {
                return Ok(buffer);
            }
            if state.unmade > 0 {
                state.unmade -= 1;
                drop(state);
                return Ok(Aligned::new());
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has the first `length` bytes of the buffer written at the beginning of `chunk`.
    pub(crate) fn submit(&self, chunk: u32, length: usize, buffer: Aligned) {
        self.state().jobs.push_back(Job { chunk, length, buffer });
        self.work.notify_one();
    }

    /// What a writing thread does, until the queue is closed and empty.
    pub(crate) fn run(&self) {
        let mut state = self.state();
        loop {
            let Some(Job { chunk, length, buffer }) = state.jobs.pop_front() else {
                if state.closed {
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let skip = state.failed;
            drop(state);
            let result = if skip {
                Ok(())
            } else {
                self.disk.write_chunk(chunk, &buffer.as_ref()[..length])
            };
            state = self.state();
            state.free.push(buffer);
            if let Err(error) = result {
                state.failed = true;
                state.failure.get_or_insert(error);
                self.room.notify_all();
            }
            self.room.notify_one();
        }
    }

    /// Nothing more will come: the threads end when all is written.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// The first failure, told once.
    pub(crate) fn failure(&self) -> Option<BuildError> {
        self.state().failure.take()
    }
}
