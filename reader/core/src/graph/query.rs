//! One query as a state machine that never waits: [`QueryState::advance`] works as far as the blocks in memory allow
//! and chooses the next reads, [`QueryState::overlap`] works while they are in flight, and [`QueryState::arrive`] takes
//! a finished read. `hops` and `pipeline` are the two ways of choosing what to read.

use super::hops::Hop;
use super::params::Policy;
use super::pipeline::Pipeline;
use super::results::{Counters, Goal};
use super::shared::Shared;
use super::trace::{self, Event};
use super::walk::{Read, Walk};
use crate::error::Result;
use crate::search::nearest::slot_of;
use crate::search::task::Step;

/// Results for which an idle query state keeps memory.
const KEPT_RESULTS: usize = 1 << 14;

/// State of one query, reused for the next. Memory: that of its parts.
#[derive(Default)]
pub(crate) struct QueryState {
    walk: Walk,
    hop: Hop,
    pipeline: Pipeline,
    previous: Vec<u32>,
    sorted: Vec<u64>,
}

impl QueryState {
    /// Takes query `i` and finds where to start.
    pub(super) fn start(&mut self, shared: &Shared<'_>, i: usize) {
        self.walk.start(shared, i, &self.previous);
        self.hop.reset();
        self.pipeline.reset(shared);
    }

    /// Releases what an idle state need not hold: the cache, which may be replaced, and the memory of an unusually long
    /// search.
    pub(super) fn shrink(&mut self) {
        if self.walk.pages.is_large() || self.sorted.capacity() > KEPT_RESULTS {
            *self = QueryState { previous: std::mem::take(&mut self.previous), ..QueryState::default() };
        }
        self.walk.pages.reset(None);
        self.walk.traversal.events = None;
    }

    /// Forgets the results of the last query.
    pub(super) fn forget_previous(&mut self) {
        self.previous.clear();
    }

    /// Works until reads are needed; `buffer(i)` is the content of buffer i after its read arrived.
    pub(super) fn advance<'a>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        loop {
            let step = match shared.params.policy {
                Policy::Pipeline => self.pipeline.advance(&mut self.walk, shared, &buffer)?,
                _ => self.hop.advance(&mut self.walk, shared)?,
            };
            if step == Step::Wait || !self.widen(shared) {
                return Ok(step);
            }
        }
    }

    /// A range search doubles its candidates while more than half of them are within the radius. Expanded vertices are
    /// not expanded again. Only the candidates of a scan are all allowed by the filter.
    fn widen(&mut self, shared: &Shared<'_>) -> bool {
        let Goal::Within(_) = shared.goal else { return false };
        let (t, n) = (&mut self.walk.traversal, shared.graph.layout.n_vertices as usize);
        let capacity = t.candidates.capacity();
        let n_within = if shared.plan.scans { t.results.n_within() } else { t.results.n_met() };
        if capacity >= n || n_within * 2 <= capacity {
            return false;
        }
        t.candidates.grow(n.min(2 * capacity));
        true
    }

    /// Reads that were chosen since the last call.
    pub(super) fn take_reads(&mut self) -> std::vec::Drain<'_, Read> {
        self.walk.reads.drain(..)
    }

    /// Uses the time in which reads are in flight: builds the distance table, measures, expands pages.
    pub(super) fn overlap(&mut self, shared: &Shared<'_>) -> Result<()> {
        self.hop.overlap(&mut self.walk, shared)
    }

    /// Takes the read into buffer `i` with content `bytes`; true if [`QueryState::advance`] can continue.
    pub(super) fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        match shared.params.policy {
            Policy::Pipeline => Ok(self.pipeline.arrive(i)),
            _ => self.hop.arrive(&mut self.walk, shared, i, bytes),
        }
    }

    /// The keys of the results, nearest first, and what the query cost.
    pub(super) fn finish(&mut self, shared: &Shared<'_>) -> (&[u64], Counters) {
        self.walk.traversal.results.drain_sorted(&mut self.sorted);
        self.previous.clear();
        self.previous.extend(self.sorted.iter().take(shared.plan.list_size).map(|&key| slot_of(key)));
        (&self.sorted, self.walk.traversal.counters)
    }

    /// Appends the events of the query that ended, if they are noted.
    pub(super) fn take_events(&self, shared: &Shared<'_>, out: &mut Vec<Event>) {
        if let Some(events) = &self.walk.traversal.events {
            trace::finish(events, shared.params.policy, out);
        }
    }
}
