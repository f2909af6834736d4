//! A block of queries on all threads: [`IvfIndex::search`].

use std::sync::Mutex;

use super::index::IvfIndex;
use super::params::IvfParams;
use super::query::QueryState;
use super::shared::{IvfCounters, Shared};
use crate::engine::Engine;
use crate::error::Result;
use crate::pagefile::PAGE_BYTES;
use crate::search::Queries;
use crate::search::answers::{Answers, Output};
use crate::search::task::{Step, Task, Times, Worker};
use crate::search::threads::run;

/// Reads that a query has in flight at most.
const MAX_WIDTH: usize = 64;
/// Buffers of a thread, in bytes: queries have fewer reads in flight rather than more.
const BUFFER_BYTES: usize = 64 << 20;

/// Answers to a block of queries. A slot is a vector id; -1 where the lists held fewer than k.
pub type IvfOutput = Output<IvfCounters>;

/// One search of an index.
struct Search<'a> {
    index: &'a IvfIndex,
    shared: Shared<'a>,
    slot_bytes: usize,
}

impl IvfIndex {
    /// Finds k near vectors of each query, sorted by (distance, slot).
    ///
    /// `interrupted` is asked now and then, on the calling thread only; once it says true the search ends with
    /// [`crate::Error::Interrupted`]. Results and counters (times excepted) are the same for every engine, number of
    /// threads and number of queries in flight.
    pub fn search(
        &self,
        queries: &Queries<'_>,
        params: &IvfParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<IvfOutput> {
        params.check(&self.centroids, self.vectors.is_some())?;
        queries.check(&self.centroids.stored())?;
        let mut output = Output::allocate(queries.n, params.k)?;
        let search = Search::new(self, queries, params);
        let inflight = if self.source.held().is_some() { 1 } else { params.inflight };
        let parts = run(&search, queries.n, params.threads, inflight, interrupted)?;
        parts.iter().for_each(|part| output.scatter(part));
        Ok(output)
    }
}

impl<'a> Search<'a> {
    fn new(index: &'a IvfIndex, queries: &'a Queries<'a>, params: &'a IvfParams) -> Self {
        let IvfIndex { centroids, batches, vectors, pieces, source, .. } = index;
        let list_bytes = batches.iter().map(|batch| pieces.buffer_bytes(batch, batch.longest)).max();
        let vector_bytes = match vectors {
            Some(vectors) if params.rerank > 0 && !vectors.is_in_memory() => vectors.unit_bytes(),
            _ => 0,
        };
        let slot_bytes = list_bytes.unwrap_or(0).max(vector_bytes).max(PAGE_BYTES);
        let width = (BUFFER_BYTES / slot_bytes / params.inflight).clamp(1, MAX_WIDTH);
        let vectors = vectors.as_ref();
        let shared = Shared { centroids, batches, vectors, pieces, source, queries, params, width };
        Search { index, shared, slot_bytes }
    }
}

impl Task for Search<'_> {
    type State = QueryState;
    type Answers = Answers<IvfCounters>;

    fn idle(&self) -> &Mutex<Vec<Worker<QueryState>>> {
        &self.index.idle
    }

    fn width(&self) -> usize {
        self.shared.width
    }

    fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn start_engine(&self, slots: usize) -> Result<Box<dyn Engine>> {
        self.index.source.start(slots, self.slot_bytes)
    }

    fn start(&self, state: &mut QueryState, i: usize) {
        state.start(&self.shared, i);
    }

    fn advance<'a>(&self, state: &mut QueryState, _buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        state.advance(&self.shared)
    }

    fn submit(
        &self,
        state: &mut QueryState,
        _answers: &mut Self::Answers,
        queue: impl FnMut(usize, u64, usize) -> Result<()>,
    ) -> Result<()> {
        state.submit(&self.shared, queue)
    }

    fn arrive(&self, state: &mut QueryState, i: usize, bytes: &[u8]) -> Result<bool> {
        state.arrive(&self.shared, i, bytes)
    }

    fn finish(&self, state: &mut QueryState, i: usize, times: Times, answers: &mut Self::Answers) {
        let (keys, counters) = state.finish();
        let Times { latency_us, io_wait_us } = times;
        answers.add(i, keys, self.shared.centroids.metric, IvfCounters { latency_us, io_wait_us, ..counters });
    }

    fn shrink(state: &mut QueryState) {
        state.shrink();
    }
}
