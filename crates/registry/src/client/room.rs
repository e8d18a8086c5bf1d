//! Room for what is read whole and held in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Failure;

/// How long a blob, whose size is known before it is asked for, waits for its room. Answers, whose size
/// is not, wait without holding anything: they are asked for again.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many bytes may be held at once of what registries send, over all who ask. Bytes take their room
/// as they come, and give it back when the last who has them drops them.
#[derive(Debug, Clone)]
pub struct Room {
    free: Arc<Semaphore>,
    bytes: usize,
}

/// What some bytes take of it.
#[derive(Debug, Default)]
pub(crate) struct Taken(Option<OwnedSemaphorePermit>);

/// Bytes and the room that they take.
struct Held {
    bytes: Bytes,
    _taken: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// For so many bytes.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(bytes)), bytes }
    }

    /// Takes more, if there is some.
    pub(crate) fn take(&self, taken: &mut Taken, more: usize) -> Result<(), Failure> {
        let full = || Failure::NoRoom { limit: self.bytes };
        let count = u32::try_from(more).map_err(|_| full())?;
        let place = Arc::clone(&self.free).try_acquire_many_owned(count).map_err(|_| full())?;
        match &mut taken.0 {
            Some(all) => all.merge(place),
            None => taken.0 = Some(place),
        }
        Ok(())
    }

    /// For `bytes` that are about to be asked for, when there is some.
    pub(crate) async fn wait(&self, bytes: u64) -> Result<Taken, Failure> {
        let full = || Failure::NoRoom { limit: self.bytes };
        let count = u32::try_from(bytes).map_err(|_| full())?;
        let place = Arc::clone(&self.free).acquire_many_owned(count);
        match tokio::time::timeout(PATIENCE, place).await {
            Ok(Ok(place)) => Ok(Taken(Some(place))),
            Ok(Err(_)) | Err(_) => Err(full()),
        }
    }
}

impl Taken {
    /// The bytes, which keep the room for as long as they are there.
    pub(crate) fn by(self, bytes: Bytes) -> Bytes {
        match self.0 {
            Some(taken) => Bytes::from_owner(Held { bytes, _taken: taken }),
            None => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn room_is_given_back_with_the_last_copy() {
        let room = Room::new(10);
        let mut taken = Taken::default();
        room.take(&mut taken, 4).unwrap();
        room.take(&mut taken, 6).unwrap();
        let full = room.take(&mut Taken::default(), 1).unwrap_err();
        assert!(matches!(full, Failure::NoRoom { limit: 10 }) && full.is_transient());
        let held = taken.by(Bytes::from_static(b"0123456789"));
        let part = held.slice(2..3);
        drop(held);
        room.wait(1).await.unwrap_err();
        assert_eq!(part, "2");
        drop(part);
        room.wait(10).await.unwrap();
        // More than there will ever be.
        room.wait(11).await.unwrap_err();
    }
}
