//! `pipeline`, the combination that reads least and waits least: page search without a barrier between reads.
//!
//! Whenever a read arrives, all vertices of its block are measured. Those that waited for the block are expanded, then
//! a few of the nearest vertices of all blocks in memory, and the next reads leave at once while others are in flight.
//! It joins three published ideas: using all vertices of a page (DiskANN++ section V, Starling), handling reads as they
//! land (AIO-ANN), and a width that grows while little is wasted (PipeANN). The rule for the width is our own: a read
//! that brings a candidate nearer than those already settled shows that reads in flight were chosen too early, so the
//! width shrinks by one; any other lets it grow by [`WIDEN`]. A search thus starts as narrow as greedy search and ends,
//! where the list is settled and every candidate in it must be read anyway, as wide as the caller allows.
//!
//! A deterministic search handles reads in the order in which they were chosen, so results and counters repeat bit for
//! bit. Any other handles them in the order of arrival. `tests/oracles/graph/search.py` states the same rules.

use std::collections::VecDeque;

use super::shared::Shared;
use super::trace::EventKind;
use super::walk::Walk;
use crate::error::Result;
use crate::search::task::Step;

/// Reads in flight at the start, and the least later. On a million SIFT vectors at recall 0.95 and beam width 8, from
/// the navigation graph: 1 needs 26.1 reads in chains of 7.4, 2 needs 26.7 in chains of 5.9, 4 needs 28.6 in chains of
/// 5.0; a fixed width of 8 needs 31.9.
const FIRST_WIDTH: usize = 2;
/// How much the width grows after a read that brought nothing nearer; 1 saves 0.3 reads and makes chains longer by 0.8.
const WIDEN: usize = 2;
/// Vertices of the blocks in memory that are expanded for each read, nearest first; see
/// [`super::hops::EXPANSIONS_PER_HOP`] for why it is a number. In the same trial 2 need 27.8 reads, 3 need 26.7 and 109
/// expansions in all, 4 need 26.8 and 136. Expanding them before the next choice, not after it, saves 0.9 reads.
const EXPANSIONS_PER_READ: usize = 3;

/// What a query has in flight.
#[derive(Default)]
pub(super) struct Pipeline {
    /// Reads that may be in flight now.
    width: usize,
    /// One place for each buffer.
    flights: Vec<Option<Flight>>,
    n_in_flight: usize,
    /// Whether reads are handled in the order in which they were chosen.
    is_ordered: bool,
    /// Buffers in that order, if so.
    order: VecDeque<usize>,
    /// Buffers to handle next, in that order.
    landed: VecDeque<usize>,
    /// Vertices to expand and the blocks they wait for.
    waiting: Vec<(u32, u32)>,
    /// Length of the longest chain of reads in which each was chosen after the one before had been handled.
    depth: u64,
}

/// One read.
#[derive(Clone, Copy)]
struct Flight {
    block: u32,
    /// Its place in the chain of reads.
    depth: u64,
    has_arrived: bool,
}

impl Pipeline {
    /// Forgets everything.
    pub fn reset(&mut self, shared: &Shared<'_>) {
        self.flights.clear();
        self.flights.resize(shared.params.beam_width, None);
        self.order.clear();
        self.landed.clear();
        self.waiting.clear();
        self.width = FIRST_WIDTH.min(shared.params.beam_width);
        self.is_ordered = shared.params.deterministic;
        (self.n_in_flight, self.depth) = (0, 0);
    }

    /// Notes the arrival of the read into `buffer`; true if there is a read to handle.
    pub fn arrive(&mut self, buffer: usize) -> bool {
        if !self.is_ordered {
            self.landed.push_back(buffer);
            return true;
        }
        if let Some(flight) = &mut self.flights[buffer] {
            flight.has_arrived = true;
        }
        while let Some(&first) = self.order.front()
            && self.flights[first].is_some_and(|flight| flight.has_arrived)
        {
            self.order.pop_front();
            self.landed.push_back(first);
        }
        self.is_ready()
    }

    /// Whether there is a read to handle.
    pub fn is_ready(&self) -> bool {
        !self.landed.is_empty()
    }

    /// Place of a read that is chosen now in its chain of reads.
    pub fn next_depth(&self) -> u64 {
        self.depth + 1
    }

    fn is_in_flight(&self, block: u32) -> bool {
        self.flights.iter().flatten().any(|flight| flight.block == block)
    }

    /// Gives a block a buffer; `None` if all are in use.
    fn depart(&mut self, block: u32) -> Option<usize> {
        let buffer = self.flights.iter().position(Option::is_none)?;
        self.flights[buffer] = Some(Flight { block, depth: self.next_depth(), has_arrived: false });
        self.n_in_flight += 1;
        if self.is_ordered {
            self.order.push_back(buffer);
        }
        Some(buffer)
    }

    /// Frees a buffer and returns its block, if it had one.
    fn land(&mut self, buffer: usize) -> Option<u32> {
        let flight = self.flights[buffer].take()?;
        self.n_in_flight -= 1;
        self.depth = self.depth.max(flight.depth);
        Some(flight.block)
    }

    /// Handles the landed reads one after the other, and keeps the pipeline full, until the turn is over. What is left waits
    /// in its order, so that it makes no difference where a turn ends.
    pub fn advance<'a>(
        &mut self,
        walk: &mut Walk,
        shared: &Shared<'_>,
        buffer: impl Fn(usize) -> &'a [u8],
    ) -> Result<Step> {
        self.fill(walk, shared)?;
        while !walk.is_turn_over()
            && let Some(i) = self.landed.pop_front()
        {
            walk.count_steps(1);
            self.take_up(walk, shared, i, || buffer(i))?;
            self.fill(walk, shared)?;
        }
        Ok(match self.n_in_flight {
            _ if walk.is_turn_over() => Step::Again,
            0 => Step::Done,
            _ => Step::Wait,
        })
    }

    /// Measures the block in buffer `i`, or its copy in the cache, and expands the vertices that waited for it, and
    /// some more.
    fn take_up<'a>(
        &mut self,
        walk: &mut Walk,
        shared: &Shared<'_>,
        i: usize,
        bytes: impl FnOnce() -> &'a [u8],
    ) -> Result<()> {
        let Some(block) = self.land(i) else { return Ok(()) };
        walk.traversal.counters.hops = self.depth;
        if !walk.pages.take_cached(block) {
            let bytes = bytes(); // nothing was read into the buffer of a cached block
            shared.graph.check_block(block, bytes)?;
            walk.pages.keep(&shared.graph.path, block, bytes)?;
        }
        walk.measure_block(shared, block);
        walk.traversal.fill_table(shared)?;
        let settled = walk.traversal.candidates.settled();
        for &(home, slot) in &self.waiting {
            if home == block && !walk.traversal.is_expanded(slot) {
                walk.expand(shared, slot)?;
            }
        }
        self.waiting.retain(|&(home, _)| home != block);
        walk.expand_pages(shared, EXPANSIONS_PER_READ)?;
        walk.score(shared);
        let came_nearer = walk.traversal.candidates.settled() < settled;
        let width = self.width;
        let width = if came_nearer { (width - 1).max(FIRST_WIDTH) } else { width + WIDEN };
        self.width = width.min(shared.params.beam_width);
        Ok(())
    }

    /// Chooses reads until the pipeline is full, nearest candidates first, and expands candidates with a block in
    /// memory. A cached block counts as a read that has arrived: the cache changes how long a search takes, but not
    /// what it finds.
    fn fill(&mut self, walk: &mut Walk, shared: &Shared<'_>) -> Result<()> {
        while self.n_in_flight < self.width && !walk.is_turn_over() {
            let Some(slot) = walk.traversal.candidates.pop() else { break };
            walk.count_steps(1);
            if walk.traversal.is_expanded(slot) {
                continue;
            }
            let block = shared.graph.layout.block_of(slot);
            if walk.pages.contains(block) {
                walk.traversal.counters.page_heap_hits += 1;
                walk.expand(shared, slot)?;
                walk.score(shared);
                continue;
            }
            self.waiting.push((block, slot));
            if !self.is_in_flight(block)
                && let Some(buffer) = self.depart(block)
            {
                if walk.pages.is_cached(block) {
                    walk.traversal.counters.cache_hits += 1;
                    walk.note_block(EventKind::Cached, block, self.next_depth());
                    self.arrive(buffer);
                } else {
                    walk.request(shared, buffer, block, self.next_depth());
                }
            }
        }
        Ok(())
    }
}
