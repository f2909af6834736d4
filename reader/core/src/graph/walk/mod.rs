//! The steps of every policy: read a block, measure its vertices, follow edges.

mod lists;
mod offered;
pub(super) mod traversal;

use super::page_heap::PageHeap;
use super::params::Policy;
use super::shared::Shared;
use super::trace::{Event, EventKind, NO_SLOT};
use crate::error::Result;
use crate::search::nearest::slot_of;
use traversal::Traversal;

/// Candidates and blocks that a query takes up before it gives way, at most: some milliseconds of work. Fewer where the list
/// of candidates is long.
const STEPS_AT_ONCE: usize = 256;
/// Insertions that count as one of them: most neighbours of a vertex are in the list already, or too far for it.
const INSERTIONS_A_STEP: usize = 8;

/// A block to read into one of the query's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub buffer: usize,
    pub block: u32,
}

/// State of one query: candidates and results, blocks in memory, and blocks to read.
#[derive(Default)]
pub(super) struct Walk {
    pub traversal: Traversal,
    pub pages: PageHeap,
    pub reads: Vec<Read>,
    keys: Vec<u64>,
    nearest: Vec<u32>,
    /// Candidates and blocks that may be taken up in this turn.
    steps_left: usize,
}

impl Walk {
    /// Begins a turn of the query: until it is over, nobody asks whether to go on.
    pub fn begin_turn(&mut self) {
        let insertions = self.traversal.candidates.insertions_at_once();
        self.steps_left = (insertions / INSERTIONS_A_STEP).clamp(1, STEPS_AT_ONCE);
    }

    /// Whether the turn is over, so that the query gives way.
    pub fn is_turn_over(&self) -> bool {
        self.steps_left == 0
    }

    /// Counts candidates and blocks that were taken up.
    pub fn count_steps(&mut self, n: usize) {
        self.steps_left = self.steps_left.saturating_sub(n);
    }

    /// Takes query `i`; `previous` are the results of the query before it, if known.
    pub fn start(&mut self, shared: &Shared<'_>, i: usize, previous: &[u32]) -> Result<()> {
        self.pages.reset(shared.cache.as_ref());
        self.reads.clear();
        self.traversal.start(shared, i, previous)
    }

    /// Notes that a block is read, or taken from the cache, in round `hop`.
    pub fn note_block(&mut self, kind: EventKind, block: u32, hop: u64) {
        if let Some(events) = &mut self.traversal.events {
            events.push(Event { kind, hop: hop as u32, block, slot: NO_SLOT, distance: f32::NAN });
        }
    }

    /// Asks for a block.
    pub fn request(&mut self, shared: &Shared<'_>, buffer: usize, block: u32, hop: u64) {
        let (layout, counters) = (&shared.graph.layout, &mut self.traversal.counters);
        self.reads.push(Read { buffer, block });
        shared.graph.prefetch_check(block);
        counters.pages_read += u64::from(layout.pages_per_block);
        counters.bytes_read += layout.block_bytes() as u64;
        self.note_block(EventKind::Read, block, hop);
    }

    /// Expands `slot`, which must be in a block in memory, and has been measured except by `completion`. Its neighbours
    /// become candidates at the next [`Walk::score`].
    pub fn expand(&mut self, shared: &Shared<'_>, slot: u32) -> Result<()> {
        let layout = &shared.graph.layout;
        match self.pages.block(layout.block_of(slot), layout.pages_per_block) {
            Some(block) => self.traversal.expand(shared, block, slot)?,
            None => unreachable!("vertices are expanded after their block arrived"),
        }
        if shared.params.policy != Policy::Completion {
            self.release(shared, slot);
        }
        Ok(())
    }

    /// Scores the neighbours of the vertices expanded so far, many at once: their codes are on the way meanwhile.
    pub fn score(&mut self, shared: &Shared<'_>) {
        self.traversal.score(shared);
    }

    /// Measures a vertex, if its block is in memory.
    pub fn measure(&mut self, shared: &Shared<'_>, slot: u32) {
        let layout = &shared.graph.layout;
        if let Some(block) = self.pages.block(layout.block_of(slot), layout.pages_per_block) {
            self.traversal.measure(shared, block, slot..slot + 1, |_| ());
        }
    }

    /// Lets go of the block of a vertex that was measured and expanded, if it holds no other vertex.
    pub fn release(&mut self, shared: &Shared<'_>, slot: u32) {
        let layout = &shared.graph.layout;
        if layout.nodes_per_block == 1 {
            self.pages.release(layout.block_of(slot));
        }
    }

    /// Measures every vertex of a block in memory and puts them on the page heap (the paper's `update`).
    pub fn measure_block(&mut self, shared: &Shared<'_>, block: u32) {
        let layout = &shared.graph.layout;
        let Some(bytes) = self.pages.block(block, layout.pages_per_block) else { return };
        let (first, count) = layout.slots_of(block);
        self.keys.clear();
        self.traversal.measure(shared, bytes, first..first + count, |key| self.keys.push(key));
        self.keys.drain(..).filter(|&key| shared.leads_on(slot_of(key))).for_each(|key| self.pages.push(key));
    }

    /// Expands at most `most` of the nearest vertices in memory that are not expanded yet (Algorithm 5, lines 14-22). A
    /// scan has all of its candidates already.
    pub fn expand_pages(&mut self, shared: &Shared<'_>, most: usize) -> Result<()> {
        if shared.plan.scans {
            return Ok(());
        }
        let layout = &shared.graph.layout;
        self.nearest.clear();
        while self.nearest.len() < most {
            let Some(slot) = self.pages.pop() else { break };
            if self.traversal.is_expanded(slot) {
                continue;
            }
            if let Some(block) = self.pages.block(layout.block_of(slot), layout.pages_per_block) {
                // Nodes are scattered over the blocks of the query, and other queries were at work since.
                layout.prefetch_neighbours(block, slot);
            }
            self.nearest.push(slot);
        }
        (0..self.nearest.len()).try_for_each(|i| self.expand(shared, self.nearest[i]))
    }
}
