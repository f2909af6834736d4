//! A block of queries on all threads: [`LshIndex::search`].

use std::sync::Mutex;

use super::query::{QueryState, Read};
use super::{LshIndex, LshParams, Source};
use crate::engine::{Engine, NoEngine};
use crate::error::{Error, Result};
use crate::pagefile::PAGE_BYTES;
use crate::search::Queries;
use crate::search::task::{Step, Task, Times, Turns};
use crate::search::threads::run;
use crate::search::worker::Worker;

/// Reads that a query has in flight at most.
const MAX_WIDTH: usize = 256;
/// Bytes of one read of bucket blocks at most; a longer chain takes several.
const MAX_RUN_BYTES: usize = 64 << 10;

/// What one query cost. With engine "memory" tables and buckets are counted as if they had been read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LshCounters {
    /// Reads of a sector of pointers, if they are not in memory: one for each bucket that is not empty.
    pub table_reads: u64,
    /// Reads of bucket blocks, however many lie together.
    pub block_reads: u64,
    /// Bucket blocks in them; the paper counts each as a read.
    pub blocks: u64,
    /// Reads of vectors, if they are not in memory.
    pub vector_reads: u64,
    /// Bytes of all of them.
    pub bytes_read: u64,
    /// Radii searched.
    pub radii: u64,
    /// Bucket entries looked at.
    pub entries: u64,
    /// Entries whose fingerprint fits.
    pub candidates: u64,
    /// Vectors measured.
    pub distances: u64,
    /// From start to end, with the time in which the thread worked on other queries.
    pub latency_us: f32,
    /// Part of it with reads in flight; meanwhile the thread may have worked on other queries, or scanned what this one
    /// had already read.
    pub io_wait_us: f32,
}

/// Answers to a block of queries; row i belongs to query i. A slot is a vector id.
#[derive(Debug, Default)]
pub struct LshOutput {
    /// Columns of `slots` and `scores`.
    pub k: usize,
    /// Positions in the input; -1 where fewer than k were met.
    pub slots: Vec<i64>,
    /// In the user's metric; NaN where missing.
    pub scores: Vec<f32>,
    /// One entry a query.
    pub counters: Vec<LshCounters>,
}

/// What all threads of one search share.
pub(crate) struct Shared<'a> {
    pub index: &'a LshIndex,
    pub queries: &'a Queries<'a>,
    pub k: usize,
    /// Vectors that a radius may measure.
    pub limit: u64,
    /// T.
    pub probes: usize,
    /// Buffers of a query.
    pub width: usize,
    /// Bucket blocks in one read at most.
    pub most_blocks: usize,
    /// Reads begin and end at multiples of it.
    unit_bytes: usize,
    turns: Turns,
}

/// Answers of one thread, in the order in which its queries ended.
#[derive(Default)]
pub(crate) struct Answers {
    queries: Vec<usize>,
    ends: Vec<usize>,
    slots: Vec<i64>,
    scores: Vec<f32>,
    counters: Vec<LshCounters>,
}

impl LshIndex {
    /// Finds k near vectors of each query, sorted by (distance, slot).
    ///
    /// `interrupted` is asked now and then, on the calling thread only; once it says true the search ends with
    /// [`Error::Interrupted`]. Results and counters (times excepted) are the same for every engine, number of threads
    /// and number of queries in flight.
    pub fn search(
        &self,
        queries: &Queries<'_>,
        params: &LshParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<LshOutput> {
        let shared = Shared::new(self, queries, params)?;
        let mut output = allocate(queries.n, params.k)?;
        let inflight = if let Source::Memory { .. } = self.source { 1 } else { params.inflight };
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
fn allocate(n_queries: usize, k: usize) -> Result<LshOutput> {
    let too_many =
        || Error::Config(format!("k: {n_queries} queries x {k} neighbours do not fit in memory; search in blocks"));
    let n = n_queries.checked_mul(k).ok_or_else(too_many)?;
    let mut output = LshOutput { k, ..LshOutput::default() };
    output.slots.try_reserve_exact(n).map_err(|_| too_many())?;
    output.scores.try_reserve_exact(n).map_err(|_| too_many())?;
    output.counters.try_reserve_exact(n_queries).map_err(|_| too_many())?;
    output.slots.resize(n, -1);
    output.scores.resize(n, f32::NAN);
    output.counters.resize(n_queries, LshCounters::default());
    Ok(output)
}

impl<'a> Shared<'a> {
    fn new(index: &'a LshIndex, queries: &'a Queries<'a>, params: &LshParams) -> Result<Self> {
        let (limit, probes) = params.resolve(index)?;
        queries.check(&index.vectors.stored())?;
        let buckets = &index.buckets;
        let unit_bytes = match &index.source {
            Source::Memory { .. } => 1,
            Source::Storage { file, .. } => file.unit_bytes(),
        };
        let most_blocks = limit.div_ceil(buckets.capacity as u64).min((MAX_RUN_BYTES / buckets.block_bytes) as u64);
        Ok(Shared {
            index,
            queries,
            k: params.k,
            limit,
            probes,
            width: MAX_WIDTH.min(index.functions.n_tables * (probes + 1)),
            most_blocks: most_blocks as usize,
            unit_bytes,
            turns: Turns::new(queries.n),
        })
    }

    /// Whether pointers count as reads.
    pub fn reads_tables(&self) -> bool {
        matches!(self.index.source, Source::Memory { .. }) || !self.index.tables.is_in_memory()
    }

    /// Bytes before `offset` of file `i` of the index that a read from there begins with: files are whole pages long, and
    /// a unit divides a page.
    pub fn skip(&self, offset: u64) -> usize {
        (offset % self.unit_bytes as u64) as usize
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
        let Source::Storage { file, .. } = &self.index.source else { return 0 };
        let (block_bytes, unit_bytes) = (self.index.buckets.block_bytes, file.unit_bytes());
        // Blocks smaller than a unit begin anywhere in it.
        let slack = if block_bytes < unit_bytes { unit_bytes } else { 0 };
        let run_bytes = (self.most_blocks * block_bytes + slack).next_multiple_of(unit_bytes);
        let vector_bytes = if self.index.vectors.is_in_memory() { 0 } else { self.index.vectors.unit_bytes() };
        PAGE_BYTES.max(run_bytes).max(vector_bytes)
    }

    fn start_engine(&self, slots: usize) -> Result<Box<dyn Engine>> {
        match &self.index.source {
            Source::Memory { .. } => Ok(Box::new(NoEngine)),
            Source::Storage { engine, file } => engine.start(file, slots, self.slot_bytes()),
        }
    }

    fn start(&self, state: &mut QueryState, i: usize) {
        state.start(self, i);
    }

    fn advance<'a>(&self, state: &mut QueryState, buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        state.advance(self, buffer)
    }

    fn submit(
        &self,
        state: &mut QueryState,
        _answers: &mut Answers,
        mut queue: impl FnMut(usize, u64, usize) -> Result<()>,
    ) -> Result<()> {
        let Source::Storage { file, .. } = &self.index.source else { return Ok(()) };
        let unit_bytes = file.unit_bytes();
        for Read { buffer, file: i, offset, bytes } in state.reads.drain(..) {
            let unit = (file.start_of(i) + offset) / unit_bytes as u64;
            queue(buffer, unit, (self.skip(offset) + bytes).next_multiple_of(unit_bytes))?;
        }
        Ok(())
    }

    fn overlap<'a>(&self, state: &mut QueryState, buffer: impl Fn(usize) -> &'a [u8]) -> Result<bool> {
        state.overlap(self, buffer)
    }

    fn arrive(&self, state: &mut QueryState, i: usize, bytes: &[u8]) -> Result<bool> {
        state.arrive(self, i, bytes)
    }

    fn finish(&self, state: &mut QueryState, i: usize, times: Times, answers: &mut Answers) {
        let counters = state.finish(self, &mut answers.slots, &mut answers.scores);
        let Times { latency_us, io_wait_us } = times;
        answers.counters.push(LshCounters { latency_us, io_wait_us, ..counters });
        answers.queries.push(i);
        answers.ends.push(answers.slots.len());
    }

    fn shrink(state: &mut QueryState) {
        state.shrink();
    }
}
