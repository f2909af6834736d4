//! What all engines of an index share when its blocks are in a store: blocks kept in memory or on disk, and counters.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::answer::Piece;
use super::contract::LONGEST_WAIT;
use super::disk::{Disk, Found, Unusable};
use super::file::DataFile;
use super::store::{Counted, Limits, Store, Traffic};
use crate::interrupt::Stop;

/// Which block: its first unit, and its bytes.
type Key = (u64, usize);

/// Blocks in memory.
#[derive(Default)]
struct Kept {
    /// With the turn in which each was read last.
    blocks: HashMap<Key, (Piece, u64)>,
    by_turn: BTreeMap<u64, Key>,
    turn: u64,
    bytes: usize,
}

impl Kept {
    fn get(&mut self, key: Key) -> Option<Piece> {
        let (piece, turn) = self.blocks.get_mut(&key)?;
        self.by_turn.remove(turn);
        self.turn += 1;
        *turn = self.turn;
        self.by_turn.insert(self.turn, key);
        Some(piece.clone())
    }

    /// Keeps a block, in the place of what was read for it before.
    fn put(&mut self, key: Key, piece: Piece, most: usize) {
        let len = piece.content().len();
        if len > most {
            return;
        }
        if let Some((former, turn)) = self.blocks.remove(&key) {
            self.by_turn.remove(&turn);
            self.bytes -= former.content().len();
        }
        while self.bytes + len > most
            && let Some((_, oldest)) = self.by_turn.pop_first()
        {
            self.bytes -= self.blocks.remove(&oldest).map_or(0, |(piece, _)| piece.content().len());
        }
        self.turn += 1;
        self.bytes += len;
        self.by_turn.insert(self.turn, key);
        self.blocks.insert(key, (piece, self.turn));
    }

    fn forget(&mut self, units: &Range<u64>) {
        let Kept { blocks, by_turn, bytes, .. } = self;
        blocks.retain(|(unit, _), (piece, turn)| {
            let stays = !units.contains(unit);
            if !stays {
                by_turn.remove(turn);
                *bytes -= piece.content().len();
            }
            stays
        });
    }
}

/// See the module's head.
pub struct Fetcher {
    pub(super) store: Arc<dyn Store>,
    pub(super) limits: Limits,
    pub(super) counted: Arc<Counted>,
    kept: Mutex<Kept>,
    disk: Option<Disk>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is locked here is left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fetcher {
    /// Reads of `store` within `limits`, except for blocks that are in the files of a directory, if one is given: whoever
    /// makes the requests keeps their answers there.
    pub fn new(store: Arc<dyn Store>, limits: Limits, disk: Option<PathBuf>) -> Self {
        let limits = Limits { timeout: limits.timeout.min(Limits::LONGEST_TIMEOUT), ..limits };
        Fetcher { store, limits, counted: Arc::default(), kept: Mutex::default(), disk: disk.map(Disk::new) }
    }

    /// What was asked of the store so far.
    pub fn traffic(&self) -> Traffic {
        self.counted.now()
    }

    /// A block that is in memory.
    pub(super) fn kept(&self, key: Key) -> Option<Piece> {
        let found = lock(&self.kept).get(key);
        if found.is_some() {
            Counted::add(&self.counted.cached, 1);
        }
        found
    }

    /// A block that is on disk, for [`Fetcher::load`]; its offset is that in `file`.
    pub(super) fn on_disk(&self, file: &DataFile, offset: u64, bytes: usize) -> Option<Found> {
        let disk = self.disk.as_ref()?;
        let (object, offset) = file.object_at(offset);
        disk.find(&object, offset, bytes)
    }

    /// Reads a block from disk, and keeps it in memory; none if it is damaged, or was removed.
    pub(super) fn load(&self, key: Key, found: Found) -> Option<Piece> {
        match found.read() {
            Ok(bytes) => {
                Counted::add(&self.counted.disk, 1);
                Some(self.keep(key, Piece::of(&Arc::new(bytes), 0, key.1)))
            }
            Err(why) => {
                Counted::add(&self.counted.damaged, u64::from(why == Unusable::Damaged));
                None
            }
        }
    }

    /// Keeps a block in memory, and returns what its reader holds of it.
    pub(super) fn keep(&self, key: Key, piece: Piece) -> Piece {
        if piece.content().len() > self.limits.cache_bytes {
            return piece;
        }
        let piece = piece.alone();
        lock(&self.kept).put(key, piece.clone(), self.limits.cache_bytes);
        piece
    }

    /// Forgets the blocks that begin in these units, one of which is damaged.
    pub(super) fn forget(&self, units: &Range<u64>) {
        lock(&self.kept).forget(units);
    }

    /// Whether another index has taken the place of this one, as far as the store tells in time. `stop` is asked
    /// meanwhile; `None` once it says true.
    pub(super) fn is_replaced(&self, stop: Stop<'_>) -> Option<bool> {
        let (reply, answer) = channel();
        self.store.is_replaced(reply);
        let end = Instant::now() + self.limits.timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left.min(LONGEST_WAIT)) {
                Ok(is_replaced) => return Some(is_replaced),
                Err(RecvTimeoutError::Timeout) if stop() => return None,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(_) => return Some(false),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(len: usize) -> Piece {
        Piece::of(&Arc::new(vec![1; len].as_slice().into()), 0, len)
    }

    #[test]
    fn blocks_read_longest_ago_go_first_and_memory_is_bounded() {
        let mut kept = Kept::default();
        (0..4).for_each(|unit| kept.put((unit, 10), piece(10), 40));
        assert!(kept.get((0, 10)).is_some());
        kept.put((4, 10), piece(10), 40);
        assert!(kept.get((0, 10)).is_some() && kept.get((1, 10)).is_none());
        kept.put((5, 50), piece(50), 40);
        kept.put((4, 10), piece(10), 40);
        assert!(kept.get((5, 50)).is_none());
        assert_eq!((kept.bytes, kept.blocks.len(), kept.by_turn.len()), (40, 4, 4));
    }

    #[test]
    fn damaged_blocks_are_forgotten_with_their_file_alone() {
        let mut kept = Kept::default();
        (0..4).for_each(|unit| kept.put((unit, 10), piece(10), 40));
        kept.forget(&(1..3));
        assert!(kept.get((0, 10)).is_some() && kept.get((1, 10)).is_none() && kept.get((2, 10)).is_none());
        assert_eq!((kept.bytes, kept.blocks.len(), kept.by_turn.len()), (20, 2, 2));
    }
}
