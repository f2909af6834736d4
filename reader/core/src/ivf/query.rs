//! One query as a state machine that never waits: all lists it probes are read at once, as far as its buffers go, each
//! scanned when it is there.
//!
//! Which list comes first makes no difference: a vector has one place in the order of (distance, slot), and of copies
//! the nearest counts. So results and counters depend on no clock.

use super::best::Best;
use super::cells::CellSearch;
use super::lists::{Held, Job};
use super::pieces::Span;
use super::rows::Rows;
use super::search::{IvfCounters, Shared};
use super::{IvfIndex, Source};
use crate::error::Result;
use crate::search::nearest::{distance_of, slot_of};
use crate::search::queries::Prepared;
use crate::search::task::Step;

/// Lists whose work space an idle query state keeps.
const KEPT_JOBS: usize = 1 << 14;

/// A read into a buffer of the query's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub(super) buffer: usize,
    /// Which of the index's files.
    pub(super) file: usize,
    pub(super) page: u64,
    pub(super) bytes: usize,
}

/// State of one query, reused for the next. Memory: 16 bytes a list probed, 4 a vector of a list that is longer than
/// one read while it is in flight, 16 a candidate.
#[derive(Default)]
pub(crate) struct QueryState {
    pub(super) query: Prepared,
    pub(super) cells: CellSearch,
    pub(super) chosen: Vec<u32>,
    pub(super) jobs: Vec<Job>,
    /// The next read: of which job, and which of its reads.
    pub(super) next: (usize, u32),
    /// What is in each buffer: of which job, and which part.
    pub(super) in_buffer: Vec<(usize, Option<Span>)>,
    pub(super) held: Vec<Held>,
    pub(super) free: Vec<usize>,
    pub(super) rows: Rows,
    pub(super) best: Best,
    pub(super) is_reranking: bool,
    /// Slots to measure exactly, ascending; parts of them that one read serves each, and those begun.
    pub(super) slots: Vec<u32>,
    pub(super) groups: Vec<(usize, usize)>,
    pub(super) n_groups_begun: usize,
    pub(super) in_flight: usize,
    pub(super) reads: Vec<Read>,
    pub(super) sorted: Vec<u64>,
    pub(super) scratch: Vec<f32>,
    pub(super) counters: IvfCounters,
}

impl QueryState {
    /// Takes query `i`: chooses its lists and asks for the first ones.
    pub fn start(&mut self, shared: &Shared<'_>, i: usize) {
        let index = shared.index;
        let params = shared.params;
        self.query.load(shared.queries, i, index.centroids.metric);
        self.counters = IvfCounters::default();
        self.counters.centroid_distances =
            self.cells.nearest(&index.centroids, &self.query.floats, params.nprobe, params.prune, &mut self.chosen);
        self.best.reset(params.k.max(params.rerank), index.centroids.copies > 1);
        self.rows.reset();
        self.begin_lists(shared);
    }

    /// Goes on until reads are needed.
    pub fn advance(&mut self, shared: &Shared<'_>) -> Result<Step> {
        if let Source::Memory { lists } = &shared.index.source {
            self.scan_held(shared.index, lists)?;
        }
        if self.in_flight == 0 && shared.params.rerank > 0 && !self.is_reranking {
            self.begin_reranking(shared);
        }
        Ok(if self.in_flight > 0 { Step::Wait } else { Step::Done })
    }

    /// Takes the read into buffer `i`, which fills the front of `bytes`; true if [`QueryState::advance`] can go on.
    pub fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        self.in_flight -= 1;
        if self.is_reranking {
            self.measure_group(shared, i, bytes)?;
            self.read_group(shared, i);
        } else {
            self.scan_part(shared.index, i, bytes)?;
            self.read_part(shared.index, i);
        }
        Ok(self.in_flight == 0 || !self.reads.is_empty())
    }

    /// Appends the slots and scores of the results and returns what the query cost.
    pub fn finish(&mut self, index: &IvfIndex, slots: &mut Vec<i64>, scores: &mut Vec<f32>) -> IvfCounters {
        self.best.drain_sorted(&mut self.sorted);
        for &key in &self.sorted {
            slots.push(i64::from(slot_of(key)));
            scores.push(index.centroids.metric.score(distance_of(key)));
        }
        self.counters
    }

    /// Gives back the memory of an unusually long search.
    pub fn shrink(&mut self) {
        if self.jobs.capacity() > KEPT_JOBS || self.held.iter().any(Held::is_large) {
            *self = QueryState::default();
        }
    }
}
