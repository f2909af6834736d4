//! One query as a state machine that never waits: it asks for all lists that it probes, as many at a time as it has
//! buffers, and scans each when it arrives.
//!
//! The order of arrival makes no difference: a vector has one place in the order of (distance, slot), and the nearest
//! of its copies counts. So results and counters depend on no clock.

use super::cells::CellSearch;
use super::lists::Lists;
use super::rerank::Rerank;
use super::shared::{IvfCounters, Progress, Shared};
use crate::error::Result;
use crate::search::answers::Answers;
use crate::search::task::{Query, Step, Times};
use crate::search::with_ids::Finds;

/// What is left to do before lists are scanned.
#[derive(Debug, Default, PartialEq, Eq)]
enum Choice {
    /// To choose lists.
    Lists,
    /// To take them up.
    Jobs,
    /// Nothing.
    #[default]
    Nothing,
}

/// State of one query, reused for the next. Memory: 16 bytes a list probed, 4 a vector of a list that is longer than
/// one read while it is in flight, 16 a candidate, up to 40 where vectors have copies.
#[derive(Default)]
pub(crate) struct QueryState {
    progress: Progress,
    cells: CellSearch,
    choice: Choice,
    chosen: Vec<u32>,
    lists: Lists,
    rerank: Rerank,
    sorted: Vec<u64>,
}

impl Query for QueryState {
    type Shared<'a> = Shared<'a>;
    type Answers = Answers<IvfCounters>;

    /// Takes query `i`.
    fn start(&mut self, shared: &Shared<'_>, i: usize) -> Result<()> {
        let Progress { query, rotated, best, reads, counters } = &mut self.progress;
        let (centroids, params) = (shared.centroids, shared.params);
        query.load(&shared.queries, i, centroids.metric);
        centroids.rotate(&query.floats, rotated);
        best.reset(params.k.max(params.rerank), centroids.copies > 1);
        reads.reset();
        *counters = IvfCounters::default();
        self.rerank.is_active = false;
        self.choice = Choice::Lists;
        self.cells.begin(centroids, params.nprobe)
    }

    fn advance<'b>(&mut self, shared: &Shared<'_>, _: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
        if self.choice != Choice::Nothing && !self.choose(shared)? {
            return Ok(Step::Again);
        }
        if let Some(lists) = shared.source.held()
            && !self.lists.scan_held(shared, lists, &mut self.progress)?
        {
            return Ok(Step::Again);
        }
        if self.progress.reads.in_flight() == 0 && shared.params.rerank > 0 && !self.rerank.is_active {
            self.rerank.begin(shared, &mut self.progress);
        }
        if self.rerank.is_active && !self.rerank.measure_held(shared, &mut self.progress) {
            return Ok(Step::Again);
        }
        Ok(if self.progress.reads.in_flight() > 0 { Step::Wait } else { Step::Done })
    }

    fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        self.progress.reads.arrive();
        if self.rerank.is_active {
            self.rerank.arrive(shared, i, bytes, &mut self.progress)?;
        } else {
            self.lists.arrive(shared, i, bytes, &mut self.progress)?;
        }
        Ok(self.progress.reads.in_flight() == 0 || self.progress.reads.has_new())
    }

    fn looks_again(&self) -> bool {
        false
    }

    fn submit(&mut self, shared: &Shared<'_>, queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        shared.source.files().map_or(Ok(()), |files| self.progress.reads.submit(files, queue))
    }

    fn finish(&mut self, shared: &Shared<'_>, i: usize, times: Times, answers: &mut Self::Answers) -> Result<()> {
        let Times { latency_us, io_wait_us, rounds } = times;
        let counters = IvfCounters { latency_us, io_wait_us, rounds, ..self.progress.counters };
        answers.add(&shared.centroids.path, i, &self.sorted, shared.centroids.metric, counters)
    }

    fn shrink(&mut self) {
        if self.lists.is_large() {
            *self = QueryState::default();
        }
    }
}

impl QueryState {
    /// Goes on choosing lists; true once they are, and the first ones are asked for.
    fn choose(&mut self, shared: &Shared<'_>) -> Result<bool> {
        let (params, progress) = (shared.params, &mut self.progress);
        if self.choice == Choice::Lists {
            if !self.cells.search(shared.centroids, progress.compared().floats, params.nprobe)? {
                return Ok(false);
            }
            progress.counters.centroid_distances = self.cells.choose(params.nprobe, params.prune, &mut self.chosen);
            self.lists.begin(shared);
            self.choice = Choice::Jobs;
        }
        if !self.lists.take_up(shared, &self.chosen, progress) {
            return Ok(false);
        }
        self.choice = Choice::Nothing;
        Ok(true)
    }
}

impl Finds for QueryState {
    fn end(&mut self) -> &[u64] {
        self.progress.best.drain_sorted(&mut self.sorted);
        &self.sorted
    }

    fn count_id_pages(&mut self, pages: u64) {
        self.progress.counters.id_pages_read += pages;
    }
}
