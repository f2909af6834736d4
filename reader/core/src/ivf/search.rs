//! A block of queries on all threads: [`IvfIndex::search`].

use std::sync::Mutex;

use super::query::{QueryState, Read};
use super::{IvfIndex, IvfParams, Source};
use crate::engine::{Engine, NoEngine};
use crate::error::{Error, Result};
use crate::pagefile::PAGE_BYTES;
use crate::search::Queries;
use crate::search::task::{Step, Task, Times, Turns};
use crate::search::threads::run;
use crate::search::worker::Worker;

/// Reads that a query has in flight at most.
const MAX_WIDTH: usize = 64;
/// Buffers of a thread, in bytes: queries have fewer reads in flight rather than more.
const BUFFER_BYTES: usize = 64 << 20;

/// What one query cost. With engine "memory" lists are counted as if they had been read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IvfCounters {
    /// Lists that hold anything among those probed, of all batches.
    pub lists: u64,
    /// Reads of lists: one, or one for each 256 KiB of rows and of ids.
    pub reads: u64,
    /// Reads of exact vectors.
    pub vector_reads: u64,
    /// Bytes of all of them.
    pub bytes_read: u64,
    /// Centroids measured.
    pub centroid_distances: u64,
    /// Rows measured.
    pub distances: u64,
    /// Candidates measured by their exact vectors.
    pub reranked: u64,
    /// From start to end, with the time in which the thread worked on other queries.
    pub latency_us: f32,
    /// Part of it from the submission of reads until the last one was taken up; meanwhile the thread may have worked on
    /// other queries.
    pub io_wait_us: f32,
}

/// Answers to a block of queries; row i belongs to query i. A slot is a vector id.
#[derive(Debug, Default)]
pub struct IvfOutput {
    /// Columns of `slots` and `scores`.
    pub k: usize,
    /// Positions in the input; -1 where the lists held fewer than k.
    pub slots: Vec<i64>,
    /// In the user's metric; NaN where missing.
    pub scores: Vec<f32>,
    /// One entry a query.
    pub counters: Vec<IvfCounters>,
}

/// What all threads of one search share.
pub(crate) struct Shared<'a> {
    pub index: &'a IvfIndex,
    pub queries: &'a Queries<'a>,
    pub params: &'a IvfParams,
    /// Buffers of a query, and bytes of each.
    pub width: usize,
    slot_bytes: usize,
    turns: Turns,
}

/// Answers of one thread, in the order in which its queries ended.
#[derive(Default)]
pub(crate) struct Answers {
    queries: Vec<usize>,
    ends: Vec<usize>,
    slots: Vec<i64>,
    scores: Vec<f32>,
    counters: Vec<IvfCounters>,
}

impl IvfIndex {
    /// Finds k near vectors of each query, sorted by (distance, slot).
    ///
    /// `interrupted` is asked now and then, on the calling thread only; once it says true the search ends with
    /// [`Error::Interrupted`]. Results and counters (times excepted) are the same for every engine, number of threads
    /// and number of queries in flight.
    pub fn search(
        &self,
        queries: &Queries<'_>,
        params: &IvfParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<IvfOutput> {
        params.check(self)?;
        queries.check(&self.centroids.stored())?;
        let mut output = allocate(queries.n, params.k)?;
        let shared = Shared::new(self, queries, params);
        let inflight = if shared.is_in_memory() { 1 } else { params.inflight };
        for part in run(&shared, params.threads, inflight, interrupted)? {
            let mut start = 0;
            for ((&query, &end), counters) in part.queries.iter().zip(&part.ends).zip(part.counters) {
                let to = query * params.k..query * params.k + (end - start);
                output.slots[to.clone()].copy_from_slice(&part.slots[start..end]);
                output.scores[to].copy_from_slice(&part.scores[start..end]);
                output.counters[query] = counters;
                start = end;
            }
        }
        Ok(output)
    }
}

/// Room for the answers, before any work is done for them.
fn allocate(n_queries: usize, k: usize) -> Result<IvfOutput> {
    let too_many =
        || Error::Config(format!("k: {n_queries} queries x {k} neighbours do not fit in memory; search in blocks"));
    let n = n_queries.checked_mul(k).ok_or_else(too_many)?;
    let mut output = IvfOutput { k, ..IvfOutput::default() };
    output.slots.try_reserve_exact(n).map_err(|_| too_many())?;
    output.scores.try_reserve_exact(n).map_err(|_| too_many())?;
    output.counters.try_reserve_exact(n_queries).map_err(|_| too_many())?;
    output.slots.resize(n, -1);
    output.scores.resize(n, f32::NAN);
    output.counters.resize(n_queries, IvfCounters::default());
    Ok(output)
}

impl<'a> Shared<'a> {
    fn new(index: &'a IvfIndex, queries: &'a Queries<'a>, params: &'a IvfParams) -> Self {
        let list_bytes = index.batches.iter().map(|batch| index.pieces.buffer_bytes(batch, batch.longest)).max();
        let vector_bytes = match &index.vectors {
            Some(vectors) if params.rerank > 0 && !vectors.is_in_memory() => vectors.unit_bytes(),
            _ => 0,
        };
        let slot_bytes = list_bytes.unwrap_or(0).max(vector_bytes).max(PAGE_BYTES);
        let width = (BUFFER_BYTES / slot_bytes / params.inflight).clamp(1, MAX_WIDTH);
        Shared { index, queries, params, width, slot_bytes, turns: Turns::new(queries.n) }
    }

    pub fn is_in_memory(&self) -> bool {
        matches!(self.index.source, Source::Memory { .. })
    }
}

impl Task for Shared<'_> {
    type State = QueryState;
    type Answers = Answers;

    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn idle(&self) -> &Mutex<Vec<Worker<QueryState>>> {
        &self.index.idle
    }

    fn width(&self) -> usize {
        self.width
    }

    fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn start_engine(&self, slots: usize) -> Result<Box<dyn Engine>> {
        match &self.index.source {
            Source::Memory { .. } => Ok(Box::new(NoEngine)),
            Source::Storage { engine, file } => engine.start(file, slots, self.slot_bytes),
        }
    }

    fn start(&self, state: &mut QueryState, i: usize) {
        state.start(self, i);
    }

    fn advance<'a>(&self, state: &mut QueryState, _buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        state.advance(self)
    }

    fn submit(
        &self,
        state: &mut QueryState,
        _answers: &mut Answers,
        mut queue: impl FnMut(usize, u64, usize) -> Result<()>,
    ) -> Result<()> {
        let Source::Storage { file, .. } = &self.index.source else { return Ok(()) };
        for Read { buffer, file: i, page, bytes } in state.reads.drain(..) {
            queue(buffer, file.start_of(i) / PAGE_BYTES as u64 + page, bytes)?;
        }
        Ok(())
    }

    fn arrive(&self, state: &mut QueryState, i: usize, bytes: &[u8]) -> Result<bool> {
        state.arrive(self, i, bytes)
    }

    fn finish(&self, state: &mut QueryState, i: usize, times: Times, answers: &mut Answers) {
        let counters = state.finish(self.index, &mut answers.slots, &mut answers.scores);
        let Times { latency_us, io_wait_us } = times;
        answers.counters.push(IvfCounters { latency_us, io_wait_us, ..counters });
        answers.queries.push(i);
        answers.ends.push(answers.slots.len());
    }

    fn shrink(state: &mut QueryState) {
        state.shrink();
    }
}
