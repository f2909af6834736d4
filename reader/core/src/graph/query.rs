//! One query as a state machine that never waits: [`QueryState::advance`] goes as far as the blocks at hand allow and
//! says which to read next, [`QueryState::overlap`] does what can be done meanwhile, [`QueryState::arrive`] takes a
//! finished read. `hops` and `pipeline` are the two ways of choosing what to read.

use super::hops::Hop;
use super::page_heap::PageHeap;
use super::params::Policy;
use super::pipeline::Pipeline;
use super::results::Goal;
use super::search::{Counters, Shared};
use super::trace::{self, Event, EventKind};
use super::traversal::Traversal;
use crate::error::Result;
use crate::search::nearest::{distance_of, slot_of};
use crate::search::task::Step;

/// A block to read into one of the query's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub buffer: usize,
    pub block: u32,
}

/// Results that an idle query state has room for.
const KEPT_RESULTS: usize = 1 << 14;

/// State of one query, reused for the next. Memory: that of its parts.
#[derive(Default)]
pub(crate) struct QueryState {
    pub(super) traversal: Traversal,
    pub(super) pages: PageHeap,
    pub(super) reads: Vec<Read>,
    pub(super) hop: Hop,
    pub(super) pipeline: Pipeline,
    previous: Vec<u32>,
    sorted: Vec<u64>,
}

impl QueryState {
    /// Takes query `i` and finds where to start.
    pub fn start(&mut self, shared: &Shared<'_>, i: usize) {
        self.traversal.start(shared, i, &self.previous);
        self.pages.reset(shared.cache.as_ref());
        self.reads.clear();
        self.hop.reset();
        self.pipeline.reset(shared);
    }

    /// Gives back what an idle state need not hold: the cache, which may have been replaced, and the memory of an
    /// unusually long search.
    pub fn shrink(&mut self) {
        if self.pages.is_large() || self.sorted.capacity() > KEPT_RESULTS {
            *self = QueryState { previous: std::mem::take(&mut self.previous), ..QueryState::default() };
        }
        self.pages.reset(None);
        self.traversal.events = None;
    }

    /// Forgets the results of the last query.
    pub fn forget_previous(&mut self) {
        self.previous.clear();
    }

    /// Goes on until reads are needed; `buffer(i)` is the content of buffer i, of a read that arrived.
    pub fn advance<'a>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        loop {
            let step = match shared.params.policy {
                Policy::Pipeline => self.advance_pipeline(shared, &buffer)?,
                _ => self.advance_hops(shared)?,
            };
            if step == Step::Wait || !self.widen(shared) {
                return Ok(step);
            }
        }
    }

    /// A range search goes on with twice the candidates while more than half of them turned out to be within the
    /// radius; what was expanded is not expanded again. Candidates are allowed vertices only where a scan found them.
    fn widen(&mut self, shared: &Shared<'_>) -> bool {
        let Goal::Within(_) = shared.goal else { return false };
        let (t, n) = (&mut self.traversal, shared.index.graph.layout.n_vertices as usize);
        let capacity = t.candidates.capacity();
        let n_within = if shared.scans { t.results.n_within() } else { t.results.n_met() };
        if capacity >= n || n_within * 2 <= capacity {
            return false;
        }
        t.candidates.grow(n.min(2 * capacity));
        true
    }

    /// Reads that were chosen since the last call.
    pub(super) fn take_reads(&mut self) -> std::vec::Drain<'_, Read> {
        self.reads.drain(..)
    }

    /// Uses the time in which reads are in flight: builds the distance table, measures, expands pages.
    pub fn overlap(&mut self, shared: &Shared<'_>) -> Result<()> {
        self.traversal.fill_table(shared);
        match shared.params.policy {
            Policy::Beam | Policy::Pipeline => Ok(()),
            Policy::Page => self.expand_pages(shared, super::hops::EXPANSIONS_PER_HOP),
            Policy::Completion => {
                self.measure_late(shared);
                Ok(())
            }
        }
    }

    /// Takes the read into buffer `i`, whose content is `bytes`; true if [`QueryState::advance`] can go on.
    pub fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        match shared.params.policy {
            Policy::Pipeline => Ok(self.pipeline.arrive(i)),
            _ => self.arrive_in_hop(shared, i, bytes),
        }
    }

    /// Appends the slots and scores of the results and returns what the query cost.
    pub fn finish(&mut self, shared: &Shared<'_>, slots: &mut Vec<i64>, scores: &mut Vec<f32>) -> Counters {
        self.traversal.results.drain_sorted(&mut self.sorted);
        self.previous.clear();
        self.previous.extend(self.sorted.iter().take(shared.list_size).map(|&key| slot_of(key)));
        for &key in &self.sorted {
            slots.push(i64::from(slot_of(key)));
            scores.push(shared.index.graph.metric.score(distance_of(key)));
        }
        self.traversal.counters
    }

    /// Appends the events of the query that ended, if they are noted.
    pub fn take_events(&self, shared: &Shared<'_>, out: &mut Vec<Event>) {
        if let Some(events) = &self.traversal.events {
            trace::finish(events, shared.params.policy, out);
        }
    }

    /// Notes that a block is read, or taken from the cache.
    pub(super) fn note_block(&mut self, shared: &Shared<'_>, kind: EventKind, block: u32) {
        let Some(events) = &mut self.traversal.events else { return };
        let hop = match shared.params.policy {
            Policy::Pipeline => self.pipeline.next_depth(),
            _ => self.traversal.counters.hops,
        };
        events.push(Event { kind, hop: hop as u32, block, slot: trace::NO_SLOT, distance: f32::NAN });
    }

    /// Asks for a block.
    pub(super) fn request(&mut self, shared: &Shared<'_>, buffer: usize, block: u32) {
        let (layout, counters) = (&shared.index.graph.layout, &mut self.traversal.counters);
        self.reads.push(Read { buffer, block });
        counters.pages_read += u64::from(layout.pages_per_block);
        counters.bytes_read += layout.block_bytes() as u64;
        self.note_block(shared, EventKind::Read, block);
    }

    /// Expands `slot`, whose block is here.
    pub(super) fn expand(&mut self, shared: &Shared<'_>, slot: u32) -> Result<()> {
        let layout = &shared.index.graph.layout;
        match self.pages.block(layout.block_of(slot), layout.pages_per_block) {
            Some(block) => self.traversal.expand(shared, block, slot),
            None => unreachable!("vertices are expanded after their block arrived"),
        }
    }

    /// Measures every vertex of a block that is here and puts those not expanded on the page heap (the paper's
    /// `update`).
    pub(super) fn measure_block(&mut self, shared: &Shared<'_>, block: u32) {
        let layout = &shared.index.graph.layout;
        let Some(bytes) = self.pages.block(block, layout.pages_per_block) else { return };
        let (first, count) = layout.slots_of(block);
        let mut keys = std::mem::take(&mut self.sorted);
        keys.clear();
        keys.extend((first..first + count).map(|slot| self.traversal.measure(shared, bytes, slot)));
        keys.drain(..).for_each(|key| self.pages.push(key));
        self.sorted = keys;
    }

    /// Expands the nearest vertices of the pages at hand that nobody expanded (Algorithm 5, lines 14-22). A scan knows
    /// all of its candidates already.
    pub(super) fn expand_pages(&mut self, shared: &Shared<'_>, most: usize) -> Result<()> {
        if shared.scans {
            return Ok(());
        }
        let mut expanded = 0;
        while expanded < most {
            let Some(slot) = self.pages.pop() else { break };
            if !self.traversal.is_expanded(slot) {
                self.expand(shared, slot)?;
                expanded += 1;
            }
        }
        Ok(())
    }
}
