//! One query as a state machine: choose a frontier, read its blocks, expand.

use super::candidates::Candidates;
use super::marks::Marks;
use super::nearest::{Nearest, distance_of, key, slot_of};
use super::page_heap::{EXPANSIONS_PER_HOP, PageHeap};
use super::vectors::Prepared;
use super::{Counters, Entry, Policy, Shared, exact};
use crate::bytes::u32s;
use crate::error::Result;
use crate::graph::Graph;

/// Scored by its code once, so never inserted into the candidates again.
const SCORED: u8 = 1;
/// Its neighbour list was followed.
const EXPANDED: u8 = 2;

/// What both policies share: distances, the candidate list and the results.
#[derive(Default)]
struct Traversal {
    query: Prepared,
    table: Vec<f32>,
    candidates: Candidates,
    nearest: Nearest,
    marks: Marks,
    fresh: Vec<u32>,
    scores: Vec<f32>,
    scratch: Vec<f32>,
    counters: Counters,
}

/// State of one query, reused for the next. Memory: `1024 * M` bytes, the candidates, the vertices seen, and under
/// page search the pages read.
#[derive(Default)]
pub struct QueryState {
    traversal: Traversal,
    pages: PageHeap,
    frontier: Vec<u32>,
    /// Blocks to read in this hop, in frontier order; read i goes into the query's buffer i.
    reads: Vec<u32>,
    sorted: Vec<u64>,
}

/// What a query does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the blocks of [`QueryState::reads`], then [`QueryState::expand_frontier`].
    Read,
    /// Nothing more: [`QueryState::finish`].
    Done,
}

impl QueryState {
    /// Takes query `i` and its entry vertex.
    pub fn start(&mut self, shared: &Shared<'_>, i: usize) {
        let (index, params) = (shared.index, shared.params);
        let t = &mut self.traversal;
        t.query.load(shared.queries, i, index.graph.metric);
        index.codes.fill_table(&t.query.floats, &mut t.table);
        let capacity = params.list_size.min(index.graph.layout.n_vertices as usize);
        t.candidates.reset(capacity);
        t.nearest.reset(params.k);
        t.marks.reset();
        t.counters = Counters::default();
        self.pages.reset();
        let entry = match params.entry {
            Entry::Medoid => index.entries.medoid,
            Entry::Centroids => index.entries.nearest(&t.query.floats),
        };
        t.fresh.clear();
        t.fresh.push(entry);
        t.marks.mark(entry, SCORED);
        t.insert_fresh(shared);
    }

    /// Chooses the next frontier; expands without reading as long as every block of it is here already.
    pub fn advance(&mut self, shared: &Shared<'_>) -> Result<Step> {
        loop {
            self.choose_frontier(shared);
            if self.frontier.is_empty() {
                return Ok(Step::Done);
            }
            self.traversal.counters.hops += 1;
            self.plan_reads(shared);
            if !self.reads.is_empty() {
                return Ok(Step::Read);
            }
            self.expand_pages(shared)?;
            self.expand_frontier(shared, |_| &[])?;
        }
    }

    /// Blocks to read, see [`Step::Read`].
    pub fn reads(&self) -> &[u32] {
        &self.reads
    }

    /// Expands vertices of pages that are here while reads are in flight (Algorithm 5, lines 14-22); none under beam
    /// search.
    pub fn expand_pages(&mut self, shared: &Shared<'_>) -> Result<()> {
        let (layout, t) = (&shared.index.graph.layout, &mut self.traversal);
        let mut expanded = 0;
        while expanded < EXPANSIONS_PER_HOP {
            let Some(slot) = self.pages.pop() else { break };
            if t.is_expanded(slot) {
                continue;
            }
            if let Some(block) = self.pages.block(layout.block_of(slot), layout.pages_per_block) {
                t.expand(shared, block, slot)?;
                expanded += 1;
            }
        }
        Ok(())
    }

    /// Handles the block of read `i`, which filled its buffer. Order of arrival does not matter.
    pub fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<()> {
        let (graph, block) = (&shared.index.graph, self.reads[i]);
        graph.check_block(block, bytes)?;
        if shared.params.policy == Policy::Beam {
            return Ok(());
        }
        self.pages.keep(block, bytes);
        let (first, count) = graph.layout.slots_of(block);
        for slot in first..first + count {
            let key = self.traversal.measure(graph, graph.layout.vector(bytes, slot), slot);
            if !self.traversal.is_expanded(slot) {
                self.pages.push(key);
            }
        }
        Ok(())
    }

    /// Expands the frontier in order, after all its blocks arrived; `buffer(i)` is the buffer of read i.
    pub fn expand_frontier<'a>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'a [u8]) -> Result<()> {
        let (graph, t) = (&shared.index.graph, &mut self.traversal);
        let layout = &graph.layout;
        for &slot in &self.frontier {
            if t.is_expanded(slot) {
                continue;
            }
            let home = layout.block_of(slot);
            if let Some(block) = self.pages.block(home, layout.pages_per_block) {
                t.expand(shared, block, slot)?;
            } else if let Some(read) = self.reads.iter().position(|&b| b == home) {
                let block = buffer(read);
                t.measure(graph, layout.vector(block, slot), slot);
                t.expand(shared, block, slot)?;
            }
        }
        Ok(())
    }

    /// Appends k slots and scores (-1 and NaN where missing) and returns what the query cost.
    pub fn finish(&mut self, shared: &Shared<'_>, slots: &mut Vec<i64>, scores: &mut Vec<f32>) -> Counters {
        let (graph, k) = (&shared.index.graph, shared.params.k);
        self.traversal.nearest.drain_sorted(&mut self.sorted);
        let end = slots.len() + k;
        for &key in self.sorted.iter().take(k) {
            slots.push(i64::from(slot_of(key)));
            scores.push(self.traversal.query.score(distance_of(key), graph));
        }
        slots.resize(end, -1);
        scores.resize(end, f32::NAN);
        self.traversal.counters
    }

    fn choose_frontier(&mut self, shared: &Shared<'_>) {
        let (frontier, marks) = (&mut self.frontier, &self.traversal.marks);
        frontier.clear();
        self.traversal.candidates.visit(shared.params.beam_width, |slot| {
            let fresh = marks.get(slot) & EXPANDED == 0;
            if fresh {
                frontier.push(slot);
            }
            fresh
        });
    }

    /// Frontier vertices of one block share one read; blocks that are here need none.
    fn plan_reads(&mut self, shared: &Shared<'_>) {
        let (layout, counters) = (&shared.index.graph.layout, &mut self.traversal.counters);
        self.reads.clear();
        for &slot in &self.frontier {
            let block = layout.block_of(slot);
            if self.pages.contains(block) {
                counters.page_heap_hits += 1;
            } else if !self.reads.contains(&block) {
                self.reads.push(block);
            }
        }
        let reads = self.reads.len() as u64;
        counters.pages_read += reads * u64::from(layout.pages_per_block);
        counters.bytes_read += reads * layout.block_bytes() as u64;
    }
}

impl Traversal {
    fn is_expanded(&self, slot: u32) -> bool {
        self.marks.get(slot) & EXPANDED != 0
    }

    /// Exact distance of a vertex that was read; it enters the results.
    fn measure(&mut self, graph: &Graph, vector: &[u8], slot: u32) -> u64 {
        let key = key(exact::distance(graph, &self.query, vector, &mut self.scratch), slot);
        self.counters.distances += 1;
        self.nearest.push(key);
        key
    }

    /// NeighborExpansion (Algorithm 2, line 1): the neighbours that were never scored become candidates.
    fn expand(&mut self, shared: &Shared<'_>, block: &[u8], slot: u32) -> Result<()> {
        let graph = &shared.index.graph;
        let node = graph.layout.node(&graph.path, block, slot)?;
        // The memory below is scattered: asking for all of it first hides most of the waiting.
        for neighbour in u32s(node.neighbours) {
            self.marks.prefetch(neighbour);
            shared.index.codes.prefetch(neighbour);
        }
        self.marks.mark(slot, EXPANDED);
        self.counters.expansions += 1;
        self.counters.bytes_used += graph.layout.node_bytes as u64;
        self.fresh.clear();
        for neighbour in u32s(node.neighbours) {
            if self.marks.mark(neighbour, SCORED) & SCORED == 0 {
                self.fresh.push(neighbour);
            }
        }
        self.insert_fresh(shared);
        Ok(())
    }

    fn insert_fresh(&mut self, shared: &Shared<'_>) {
        shared.index.codes.score(&self.table, &self.fresh, &mut self.scores);
        self.counters.code_distances += self.fresh.len() as u64;
        for (&slot, &distance) in self.fresh.iter().zip(&self.scores) {
            self.candidates.insert(key(distance, slot));
        }
    }
}
