//! Search in hops: choose W vertices, read their blocks, and choose again when all of them have been expanded.
//!
//! * `beam`, DiskANN++ Algorithm 1: the frontier is expanded, in order, when its last block has arrived.
//! * `page`, Algorithm 5: blocks are kept, all their vertices are measured, and while reads are in flight the nearest
//!   vertices of earlier blocks are expanded.
//! * `rounds`, for storage that takes long to answer: as `page`, but all that is in memory is used up before the next hop is
//!   chosen. Candidates in memory are expanded at once and take no place in the hop, and so are the nearest vertices of the
//!   blocks that arrived. The first hop reads the vertices of several of the nearest centroids.
//! * `completion`, AIO-ANN Algorithm 1: the vertices of a block are expanded when it arrives, without waiting for
//!   others. Their exact distances are computed while the next hop's reads are in flight. A hop leaves the same
//!   candidates behind in any order of arrival. A thread with several queries in flight takes arrivals in bulk.

use super::params::Policy;
use super::shared::Shared;
use super::trace::EventKind;
use super::walk::Walk;
use crate::error::Result;
use crate::search::task::Step;

/// Vertices of kept pages that one hop of `page` expands while its reads are in flight, nearest first.
///
/// Deviation from Algorithm 5 (lines 18-22): the paper expands until the reads complete, which depends on the device.
/// A fixed number depends on the query alone, so a search repeats bit for bit. On a million SIFT vectors in star order
/// 4 of them cost 13% more reads at recall 0.95 than 16, and 32 save another 1% for 70% more code distances.
/// `tests/oracles/graph/search.py` states the same rule.
pub(super) const EXPANSIONS_PER_HOP: usize = 16;

/// Vertices of blocks in memory that `rounds` expands before each choice, nearest first.
pub(super) const EXPANSIONS_PER_ROUND: usize = 16;

/// One hop of a query.
#[derive(Default)]
pub(super) struct Hop {
    /// The vertices chosen, nearest first.
    frontier: Vec<u32>,
    /// Whether more are to be chosen.
    is_choosing: bool,
    /// Reads, or vertices, that were chosen.
    n_chosen: usize,
    /// Blocks in flight; read i goes into buffer i.
    blocks: Vec<u32>,
    n_arrived: usize,
    /// Blocks taken from the cache, measured when the hop ends (`page`, `rounds`): then the cache changes what a search reads,
    /// but not what it finds.
    cached: Vec<u32>,
    /// Expanded, but not measured yet (`completion`).
    unmeasured: Vec<u32>,
}

/// Whether blocks stay in memory until the query ends, and all of their vertices are measured.
fn keeps_blocks(shared: &Shared<'_>) -> bool {
    matches!(shared.params.policy, Policy::Page | Policy::Rounds)
}

impl Hop {
    pub fn reset(&mut self) {
        self.frontier.clear();
        self.blocks.clear();
        self.cached.clear();
        self.unmeasured.clear();
        (self.is_choosing, self.n_chosen, self.n_arrived) = (false, 0, 0);
    }

    /// Ends the hop after its last block arrived and chooses the next one; repeats while no hop needs a read, until the turn
    /// is over.
    pub fn advance(&mut self, walk: &mut Walk, shared: &Shared<'_>) -> Result<Step> {
        loop {
            if !self.is_choosing {
                self.expand_frontier(walk, shared)?;
                self.frontier.clear();
                (self.is_choosing, self.n_chosen) = (true, 0);
            }
            if !self.choose_frontier(walk, shared)? {
                return Ok(Step::Again);
            }
            self.is_choosing = false;
            if self.frontier.is_empty() {
                self.measure_late(walk, shared);
                return Ok(Step::Done);
            }
            walk.traversal.counters.hops += 1;
            self.plan_reads(walk, shared);
            if !self.blocks.is_empty() {
                return Ok(Step::Wait);
            }
            self.overlap(walk, shared)?;
            walk.count_steps(self.frontier.len());
            if walk.is_turn_over() {
                return Ok(Step::Again);
            }
        }
    }

    /// Chooses the vertices of the next hop; false if the turn is over before.
    fn choose_frontier(&mut self, walk: &mut Walk, shared: &Shared<'_>) -> Result<bool> {
        let layout = &shared.graph.layout;
        while self.n_chosen < shared.params.beam_width {
            if shared.params.policy == Policy::Rounds && walk.is_turn_over() {
                return Ok(false);
            }
            let Some(slot) = walk.traversal.candidates.pop() else { break };
            if walk.traversal.is_expanded(slot) {
                continue;
            }
            if shared.params.policy == Policy::Rounds {
                let block = layout.block_of(slot);
                if walk.pages.contains(block) {
                    walk.traversal.counters.page_heap_hits += 1;
                    walk.count_steps(1);
                    walk.expand(shared, slot)?;
                    walk.score(shared);
                    continue;
                }
                // Vertices of one block share a read.
                let is_new = self.frontier.iter().all(|&other| layout.block_of(other) != block);
                self.n_chosen += usize::from(is_new);
            } else {
                self.n_chosen += 1;
            }
            self.frontier.push(slot);
        }
        Ok(true)
    }

    /// Frontier vertices of one block share a read; blocks in memory need none.
    fn plan_reads(&mut self, walk: &mut Walk, shared: &Shared<'_>) {
        self.blocks.clear();
        self.n_arrived = 0;
        for &slot in &self.frontier {
            let block = shared.graph.layout.block_of(slot);
            if keeps_blocks(shared) && walk.pages.contains(block) {
                walk.traversal.counters.page_heap_hits += 1;
            } else if walk.pages.take_cached(block) {
                walk.traversal.counters.cache_hits += 1;
                walk.note_block(EventKind::Cached, block, walk.traversal.counters.hops);
                if keeps_blocks(shared) {
                    self.cached.push(block);
                }
            } else if !self.blocks.contains(&block) {
                walk.request(shared, self.blocks.len(), block, walk.traversal.counters.hops);
                self.blocks.push(block);
            }
        }
    }

    /// Takes read `i` of the hop; true if it was the last one.
    pub fn arrive(&mut self, walk: &mut Walk, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        let block = self.blocks[i];
        shared.graph.check_block(block, bytes)?;
        walk.pages.keep(&shared.graph.path, block, bytes)?;
        match shared.params.policy {
            Policy::Page | Policy::Rounds => walk.measure_block(shared, block),
            Policy::Completion => self.expand_arrived(walk, shared, block)?,
            _ => {}
        }
        self.n_arrived += 1;
        Ok(self.n_arrived == self.blocks.len())
    }

    /// Reads of the hop that have not arrived, at least one; one under `pipeline`, which has no hops.
    pub fn n_lacking(&self) -> usize {
        (self.blocks.len() - self.n_arrived).max(1)
    }

    /// Expands the frontier vertices of one block (AIO-ANN Algorithm 1, lines 7-10).
    fn expand_arrived(&mut self, walk: &mut Walk, shared: &Shared<'_>, block: u32) -> Result<()> {
        for &slot in &self.frontier {
            if shared.graph.layout.block_of(slot) == block && !walk.traversal.is_expanded(slot) {
                walk.expand(shared, slot)?;
                self.unmeasured.push(slot);
            }
        }
        walk.score(shared);
        Ok(())
    }

    /// Expands what is left of the frontier, in order.
    fn expand_frontier(&mut self, walk: &mut Walk, shared: &Shared<'_>) -> Result<()> {
        while let Some(block) = self.cached.pop() {
            walk.measure_block(shared, block);
        }
        for &slot in &self.frontier {
            if walk.traversal.is_expanded(slot) {
                continue;
            }
            match shared.params.policy {
                Policy::Beam => walk.measure(shared, slot),
                Policy::Completion => self.unmeasured.push(slot),
                _ => {}
            }
            walk.expand(shared, slot)?;
        }
        if shared.params.policy == Policy::Rounds && !self.frontier.is_empty() {
            walk.expand_pages(shared, EXPANSIONS_PER_ROUND)?;
        }
        walk.score(shared);
        Ok(())
    }

    /// Updates the results with the vertices of the last hop (AIO-ANN Algorithm 1, line 5).
    fn measure_late(&mut self, walk: &mut Walk, shared: &Shared<'_>) {
        self.unmeasured.drain(..).for_each(|slot| {
            walk.measure(shared, slot);
            walk.release(shared, slot);
        });
    }

    /// Uses the time in which the reads of the hop are in flight.
    pub fn overlap(&mut self, walk: &mut Walk, shared: &Shared<'_>) -> Result<()> {
        walk.traversal.fill_table(shared)?;
        match shared.params.policy {
            Policy::Page => {
                walk.expand_pages(shared, EXPANSIONS_PER_HOP)?;
                walk.score(shared);
            }
            Policy::Completion => self.measure_late(walk, shared),
            Policy::Beam | Policy::Pipeline | Policy::Rounds => {}
        }
        Ok(())
    }
}
