//! Desks without a thread, kept for later calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::search::call::Call;
use crate::search::desk::Desk;
use crate::search::task::Query;

/// Bytes of the buffers at desks that an index keeps for later calls.
pub(super) const IDLE_BYTES: usize = 256 << 20;

/// The newest desk first.
pub(super) struct Shelf<Q: Query>(Mutex<Vec<Desk<Q>>>);

impl<Q: Query> Default for Shelf<Q> {
    fn default() -> Self {
        Shelf(Mutex::default())
    }
}

impl<Q: Query> Shelf<Q> {
    fn lock(&self) -> MutexGuard<'_, Vec<Desk<Q>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest that has room for `lanes` queries of a call.
    pub fn take(&self, call: &Call<Q>, lanes: usize) -> Option<Desk<Q>> {
        let mut desks = self.lock();
        let roomy = desks.iter().position(|desk| desk.has_room(call, lanes))?;
        Some(desks.remove(roomy))
    }

    /// Keeps a desk that waits for no reads, and of the others at most so many in all, as far as their buffers are small.
    pub fn put(&self, mut desk: Desk<Q>, most: usize) {
        if !desk.is_idle() {
            return;
        }
        desk.shrink();
        if desk.bytes() > IDLE_BYTES {
            return; // the others stay
        }
        let mut desks = self.lock();
        desks.insert(0, desk);
        let mut bytes = 0;
        let fitting = desks.iter().take(most).take_while(|desk| {
            bytes += desk.bytes();
            bytes <= IDLE_BYTES
        });
        let n_kept = fitting.count();
        let oldest = desks.split_off(n_kept);
        // No lock is held while one ends, for it may take long.
        drop(desks);
        drop(oldest);
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().len()
    }
}
