//! What a thread that runs queries knows of a kind of index: the steps of one query, and who is next.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::worker::Worker;
use crate::engine::Engine;
use crate::error::Result;

/// What a query does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// [`Task::submit`], then [`Task::overlap`], then wait for a read to arrive unless that says otherwise.
    Wait,
    /// Nothing more: [`Task::finish`].
    Done,
}

/// How long a query took, in microseconds; see the counters of a kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub latency_us: f32,
    pub io_wait_us: f32,
}

/// A search for a block of queries, shared by its threads.
pub(crate) trait Task: Sync {
    /// State of one query, reused for the next.
    type State: Default + Send;
    /// What one thread found.
    type Answers: Default + Send;

    /// Who is next.
    fn turns(&self) -> &Turns;

    /// Workers that the index keeps for later calls.
    fn idle(&self) -> &Mutex<Vec<Worker<Self::State>>>;

    /// Buffers of one query, so the reads it may have in flight.
    fn width(&self) -> usize;

    /// Bytes of a buffer.
    fn slot_bytes(&self) -> usize;

    /// An engine for the calling thread.
    fn start_engine(&self, slots: usize) -> Result<Box<dyn Engine>>;

    /// Prepares a state that another search may have used.
    fn admit(&self, _state: &mut Self::State) {}

    /// Takes query `i`.
    fn start(&self, state: &mut Self::State, i: usize);

    /// Goes on until reads are needed; `buffer(i)` is the content of buffer i, of a read that arrived.
    fn advance<'a>(&self, state: &mut Self::State, buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step>;

    /// Hands over the reads that were chosen since the last call as `queue(buffer, unit, bytes)`.
    fn submit(
        &self,
        state: &mut Self::State,
        answers: &mut Self::Answers,
        queue: impl FnMut(usize, u64, usize) -> Result<()>,
    ) -> Result<()>;

    /// Does what can be done while reads are in flight, `buffer` as in [`Task::advance`]; true if the query can go on
    /// before one arrives.
    fn overlap<'a>(&self, _state: &mut Self::State, _buffer: impl Fn(usize) -> &'a [u8]) -> Result<bool> {
        Ok(false)
    }

    /// Takes the read into buffer `i`, whose content is `bytes`; true if the query can go on.
    fn arrive(&self, state: &mut Self::State, i: usize, bytes: &[u8]) -> Result<bool>;

    /// Adds what was found for query `i`.
    fn finish(&self, state: &mut Self::State, i: usize, times: Times, answers: &mut Self::Answers);

    /// Gives back what an idle state need not hold.
    fn shrink(state: &mut Self::State);
}

/// Hands out queries to threads.
pub(crate) struct Turns {
    n: usize,
    next: AtomicUsize,
    stopped: AtomicBool,
}

impl Turns {
    /// For queries 0 .. n.
    pub fn new(n: usize) -> Self {
        Turns { n, next: AtomicUsize::new(0), stopped: AtomicBool::new(false) }
    }

    /// Number of queries.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The next query nobody took yet.
    pub fn take(&self) -> Option<usize> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < self.n)
    }

    /// Makes every thread end soon; what was found is dropped.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}
