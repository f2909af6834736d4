//! What all engines of an index share when its blocks are in a store: threads that make requests, blocks kept in memory,
//! and counters.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use super::store::{Counted, Limits, Store, Traffic};
use crate::error::{Error, Result};

/// How long a thread without a request stays.
const IDLE: Duration = Duration::from_secs(10);
/// They call the store, which may be written in another language.
const STACK_BYTES: usize = 1 << 20;

/// Bytes of an answer that one block takes.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub bytes: Arc<Vec<u8>>,
    pub start: usize,
    pub len: usize,
}

impl Piece {
    pub fn none() -> Self {
        Piece { bytes: Arc::default(), start: 0, len: 0 }
    }

    pub fn content(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

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

    fn put(&mut self, key: Key, piece: Piece, most: usize) {
        if piece.len > most || self.blocks.contains_key(&key) {
            return;
        }
        while self.bytes + piece.len > most
            && let Some((_, oldest)) = self.by_turn.pop_first()
        {
            self.bytes -= self.blocks.remove(&oldest).map_or(0, |(piece, _)| piece.len);
        }
        self.turn += 1;
        self.bytes += piece.len;
        self.by_turn.insert(self.turn, key);
        self.blocks.insert(key, (piece, self.turn));
    }
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Process that has the threads.
    process: u32,
}

#[derive(Default)]
struct Desk {
    jobs: Mutex<Jobs>,
    work: Condvar,
}

/// See the module's head. Threads begin when there is work, and end after a while without.
pub struct Fetcher {
    pub(super) store: Arc<dyn Store>,
    pub(super) limits: Limits,
    pub(super) counted: Arc<Counted>,
    kept: Mutex<Kept>,
    desk: Arc<Desk>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is locked here is left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fetcher {
    /// Reads of `store` within `limits`.
    pub fn new(store: Arc<dyn Store>, limits: Limits) -> Self {
        Fetcher { store, limits, counted: Arc::default(), kept: Mutex::default(), desk: Arc::default() }
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

    /// Keeps a block in memory. One that shares its answer with others is copied, so that the answer goes.
    pub(super) fn keep(&self, key: Key, piece: &Piece) {
        let alone = piece.len == piece.bytes.len();
        let bytes = if alone { piece.bytes.clone() } else { Arc::new(piece.content().to_vec()) };
        lock(&self.kept).put(key, Piece { bytes, start: 0, len: piece.len }, self.limits.cache_bytes);
    }

    /// Calls `job` on another thread, at once or when one is free.
    pub(super) fn spawn(&self, job: Job) -> Result<()> {
        let mut jobs = lock(&self.desk.jobs);
        if jobs.process != std::process::id() {
            // A forked child has none of its parent's threads.
            *jobs = Jobs { process: std::process::id(), ..Jobs::default() };
        }
        jobs.waiting.push_back(job);
        if jobs.idle < jobs.waiting.len() && jobs.threads < self.limits.parallel {
            let desk = self.desk.clone();
            let thread = Builder::new().name("indexmill-ranges".to_owned()).stack_size(STACK_BYTES);
            match thread.spawn(move || work(&desk)) {
                Ok(_) => jobs.threads += 1,
                // Fewer threads are slower, not wrong.
                Err(_) if jobs.threads > 0 => {}
                Err(e) => return Err(Error::Store(format!("a thread for requests: {e}; lower threads or inflight"))),
            }
        }
        drop(jobs);
        self.desk.work.notify_one();
        Ok(())
    }
}

/// Does jobs until there was none for a while.
fn work(desk: &Desk) {
    let mut jobs = lock(&desk.jobs);
    loop {
        if let Some(job) = jobs.waiting.pop_front() {
            drop(jobs);
            job();
            jobs = lock(&desk.jobs);
            continue;
        }
        jobs.idle += 1;
        let (again, waited) = desk.work.wait_timeout(jobs, IDLE).unwrap_or_else(PoisonError::into_inner);
        jobs = again;
        jobs.idle -= 1;
        if waited.timed_out() && jobs.waiting.is_empty() {
            jobs.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(len: usize) -> Piece {
        Piece { bytes: Arc::new(vec![1; len]), start: 0, len }
    }

    #[test]
    fn blocks_read_longest_ago_go_first_and_memory_is_bounded() {
        let mut kept = Kept::default();
        (0..4).for_each(|unit| kept.put((unit, 10), piece(10), 40));
        assert!(kept.get((0, 10)).is_some());
        kept.put((4, 10), piece(10), 40);
        assert!(kept.get((0, 10)).is_some() && kept.get((1, 10)).is_none());
        kept.put((5, 50), piece(50), 40);
        assert!(kept.get((5, 50)).is_none());
        assert_eq!((kept.bytes, kept.blocks.len(), kept.by_turn.len()), (40, 4, 4));
    }
}
