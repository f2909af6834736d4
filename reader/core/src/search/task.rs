//! What a kind of index must provide for its queries, and a search for a block of them.

use crate::engine::Start;
use crate::error::Result;

/// Queries that a thread interleaves when it works for several searches.
const SHARED_LANES: usize = 16;
/// Bytes of their buffers: queries that need more are fewer.
const SHARED_BYTES: usize = 16 << 20;

/// What a query does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// [`Query::submit`], then [`Query::overlap`], then wait for a read, unless `overlap` returns true.
    Wait,
    /// More work without reads, after other queries had their turn and the caller was asked whether to go on.
    Again,
    /// Nothing more: [`Query::finish`].
    Done,
}

/// Times of a query in microseconds, and its rounds, as in its counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub latency_us: f32,
    pub io_wait_us: f32,
    /// See [`crate::engine::Engine::counts_rounds`]; 0 where nothing counts them.
    pub rounds: u32,
}

/// One query as a state machine that never waits. Its state is reused for the next query.
pub(crate) trait Query: Default + Send + 'static {
    /// What all queries of one search share.
    type Shared<'a>: Send + Sync;
    /// What was found.
    type Answers: Default + Send;

    /// Prepares a state that another search may have used.
    fn admit(&mut self, _shared: &Self::Shared<'_>) {}

    /// Takes query `i`.
    fn start(&mut self, shared: &Self::Shared<'_>, i: usize) -> Result<()>;

    /// Works until reads are needed or its turn is over; `buffer(i)` is the content of buffer i after its read arrived.
    fn advance<'b>(&mut self, shared: &Self::Shared<'_>, buffer: impl Fn(usize) -> &'b [u8]) -> Result<Step>;

    /// Calls `queue(buffer, unit, bytes)` for each read that was chosen since the last call.
    fn submit(&mut self, shared: &Self::Shared<'_>, queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()>;

    /// Works while reads are in flight, with `buffer` as in [`Query::advance`]; true if the query can continue before a
    /// read arrives.
    fn overlap<'b>(&mut self, _shared: &Self::Shared<'_>, _buffer: impl Fn(usize) -> &'b [u8]) -> Result<bool> {
        Ok(false)
    }

    /// Takes the read into buffer `i`, which fills the front of `bytes`; true if [`Query::advance`] can continue.
    fn arrive(&mut self, shared: &Self::Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool>;

    /// Reads in flight that must arrive before [`Query::advance`] can continue: no fewer than these, at least one.
    fn n_lacking(&self) -> usize {
        1
    }

    /// Whether the read that [`Query::arrive`] took last is looked at later, by [`Query::advance`] or [`Query::overlap`].
    fn looks_again(&self) -> bool {
        true
    }

    /// Adds the results of query `i`, nearest first, and what it cost.
    fn finish(&mut self, shared: &Self::Shared<'_>, i: usize, times: Times, answers: &mut Self::Answers) -> Result<()>;

    /// Releases what an idle state need not hold, such as the memory of an unusually long search.
    fn shrink(&mut self);
}

/// A search for a block of queries, shared by the threads that work for it.
pub(crate) struct Search<'a, Q: Query> {
    pub shared: Q::Shared<'a>,
    /// Starts the engines of the threads.
    pub source: &'a dyn Start,
    /// Queries.
    pub n: usize,
    /// Threads that work for the search at most.
    pub threads: usize,
    /// Queries of it that each of them interleaves at most.
    pub inflight: usize,
    /// Buffers of one query, and so its most reads in flight.
    pub width: usize,
    /// Bytes of a buffer.
    pub slot_bytes: usize,
    /// Whether a query state goes on with the next query of the search, because that depends on the one before.
    pub keeps_state: bool,
}

impl<Q: Query> Search<'_, Q> {
    /// Queries of this search that one thread interleaves.
    pub fn lanes(&self) -> usize {
        if self.source.has_waits() { self.inflight.min(self.n.div_ceil(self.threads())).max(1) } else { 1 }
    }

    /// Threads that there is work for.
    pub fn threads(&self) -> usize {
        self.threads.min(self.n).max(1)
    }

    /// Queries that one thread interleaves when it works for others as well.
    pub fn shared_lanes(&self) -> usize {
        if !self.source.has_waits() {
            return 1;
        }
        let lane_bytes = self.width.saturating_mul(self.slot_bytes).max(1);
        SHARED_LANES.min(SHARED_BYTES / lane_bytes).max(self.lanes())
    }
}
