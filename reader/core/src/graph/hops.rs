//! Search in hops: choose W vertices, read their blocks, and choose again when all of them have been expanded.
//!
//! * `beam`, DiskANN++ Algorithm 1: the frontier is expanded, in order, when its last block is here.
//! * `page`, Algorithm 5: blocks are kept, all their vertices are measured, and while reads are in flight the nearest
//!   vertices of earlier blocks are expanded.
//! * `completion`, AIO-ANN Algorithm 1: the vertices of a block are expanded when it arrives, whatever the others do;
//!   their exact distances are computed while the next hop's reads are in flight. The order of arrival decides nothing:
//!   a hop leaves the same candidates behind in any order.

use super::params::Policy;
use super::query::QueryState;
use super::search::Shared;
use super::trace::EventKind;
use crate::error::Result;
use crate::search::task::Step;

/// Vertices of kept pages that one hop of `page` expands while its reads are in flight, nearest first.
///
/// Deviation from Algorithm 5 (lines 18-22): the paper expands until the reads complete, which depends on the device.
/// A fixed number depends on the query alone, so a search repeats bit for bit. On a million SIFT vectors in star order
/// 4 of them cost 13% more reads at recall 0.95 than 16, and 32 save another 1% for 70% more code distances.
/// `tests/oracles/search.py` states the same rule.
pub(super) const EXPANSIONS_PER_HOP: usize = 16;

/// One hop of a query.
#[derive(Default)]
pub(super) struct Hop {
    /// The vertices chosen, nearest first.
    frontier: Vec<u32>,
    /// Blocks in flight; read i goes into buffer i.
    blocks: Vec<u32>,
    n_arrived: usize,
    /// Blocks taken from the cache, to be measured when the hop ends (`page`): what a cache holds then changes what a
    /// search reads, but not what it finds.
    cached: Vec<u32>,
    /// Expanded, but not measured yet (`completion`).
    unmeasured: Vec<u32>,
}

impl Hop {
    pub fn reset(&mut self) {
        self.frontier.clear();
        self.blocks.clear();
        self.cached.clear();
        self.unmeasured.clear();
        self.n_arrived = 0;
    }
}

impl QueryState {
    /// Ends the hop whose last block arrived and chooses the next one; goes on while everything is at hand.
    pub(super) fn advance_hops(&mut self, shared: &Shared<'_>) -> Result<Step> {
        loop {
            self.expand_frontier(shared)?;
            self.choose_frontier(shared);
            if self.hop.frontier.is_empty() {
                self.measure_late(shared);
                return Ok(Step::Done);
            }
            self.traversal.counters.hops += 1;
            self.plan_reads(shared);
            if !self.hop.blocks.is_empty() {
                return Ok(Step::Wait);
            }
            self.overlap(shared)?;
        }
    }

    fn choose_frontier(&mut self, shared: &Shared<'_>) {
        self.hop.frontier.clear();
        while self.hop.frontier.len() < shared.params.beam_width {
            let Some(slot) = self.traversal.candidates.pop() else { break };
            if !self.traversal.is_expanded(slot) {
                self.hop.frontier.push(slot);
            }
        }
    }

    /// Frontier vertices of one block share one read; blocks that are here need none.
    fn plan_reads(&mut self, shared: &Shared<'_>) {
        self.hop.blocks.clear();
        self.hop.n_arrived = 0;
        for at in 0..self.hop.frontier.len() {
            let block = shared.index.graph.layout.block_of(self.hop.frontier[at]);
            if shared.params.policy == Policy::Page && self.pages.contains(block) {
                self.traversal.counters.page_heap_hits += 1;
            } else if self.pages.take_cached(block) {
                self.traversal.counters.cache_hits += 1;
                self.note_block(shared, EventKind::Cached, block);
                if shared.params.policy == Policy::Page {
                    self.hop.cached.push(block);
                }
            } else if !self.hop.blocks.contains(&block) {
                self.request(shared, self.hop.blocks.len(), block);
                self.hop.blocks.push(block);
            }
        }
    }

    /// Takes read `i` of the hop; true if it was the last one.
    pub(super) fn arrive_in_hop(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        let block = self.hop.blocks[i];
        shared.index.graph.check_block(block, bytes)?;
        self.pages.keep(block, bytes);
        match shared.params.policy {
            Policy::Page => self.measure_block(shared, block),
            Policy::Completion => self.expand_arrived(shared, block)?,
            _ => {}
        }
        self.hop.n_arrived += 1;
        Ok(self.hop.n_arrived == self.hop.blocks.len())
    }

    /// Expands the frontier vertices of one block (AIO-ANN Algorithm 1, lines 7-10).
    fn expand_arrived(&mut self, shared: &Shared<'_>, block: u32) -> Result<()> {
        for at in 0..self.hop.frontier.len() {
            let slot = self.hop.frontier[at];
            if shared.index.graph.layout.block_of(slot) == block {
                self.expand(shared, slot)?;
                self.hop.unmeasured.push(slot);
            }
        }
        Ok(())
    }

    /// Expands what is left of the frontier, in order.
    fn expand_frontier(&mut self, shared: &Shared<'_>) -> Result<()> {
        while let Some(block) = self.hop.cached.pop() {
            self.measure_block(shared, block);
        }
        for at in 0..self.hop.frontier.len() {
            let slot = self.hop.frontier[at];
            if self.traversal.is_expanded(slot) {
                continue;
            }
            match shared.params.policy {
                Policy::Beam => self.measure_slot(shared, slot),
                Policy::Completion => self.hop.unmeasured.push(slot),
                _ => {}
            }
            self.expand(shared, slot)?;
        }
        Ok(())
    }

    /// Updates the results with the vertices of the last hop (AIO-ANN Algorithm 1, line 5).
    pub(super) fn measure_late(&mut self, shared: &Shared<'_>) {
        for at in 0..self.hop.unmeasured.len() {
            self.measure_slot(shared, self.hop.unmeasured[at]);
        }
        self.hop.unmeasured.clear();
    }

    fn measure_slot(&mut self, shared: &Shared<'_>, slot: u32) {
        let layout = &shared.index.graph.layout;
        if let Some(block) = self.pages.block(layout.block_of(slot), layout.pages_per_block) {
            self.traversal.measure(shared, block, slot);
        }
    }
}
