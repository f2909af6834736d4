//! One query as a state machine that never waits: [`QueryState::advance`] works as far as the blocks in memory allow, or
//! until its turn is over, and chooses the next reads, [`QueryState::overlap`] works while they are in flight, and [`QueryState::arrive`] takes
//! a finished read. `hops` and `pipeline` are the two ways of choosing what to read; where exact vectors lie apart,
//! [`Rerank`] follows.

use super::apart::Rerank;
use super::hops::Hop;
use super::params::Policy;
use super::pipeline::Pipeline;
use super::results::{Counters, Goal};
use super::shared::{Notes, Shared};
use super::trace::{self, Event};
use super::walk::Walk;
use crate::error::Result;
use crate::search::answers::Answers;
use crate::search::nearest::slot_of;
use crate::search::task::{Query, Step, Times};
use crate::search::with_ids::Finds;

/// Results for which an idle query state keeps memory.
const KEPT_RESULTS: usize = 1 << 14;

/// State of one query, reused for the next. Memory: that of its parts.
#[derive(Default)]
pub(super) struct QueryState {
    walk: Walk,
    hop: Hop,
    pipeline: Pipeline,
    rerank: Rerank,
    previous: Vec<u32>,
    /// Blocks read, if they are noted.
    blocks: Vec<u32>,
    sorted: Vec<u64>,
}

/// What one thread found.
#[derive(Default)]
pub(super) struct Found {
    pub answers: Answers<Counters>,
    /// Blocks read, if they are noted.
    pub blocks: Vec<u32>,
    /// Events, if they are noted, and the end of each query's.
    pub events: Vec<Event>,
    pub event_ends: Vec<usize>,
}

impl Query for QueryState {
    type Shared<'a> = Shared<'a>;
    type Answers = Found;

    /// Takes query `i` and finds where to start.
    fn start(&mut self, shared: &Shared<'_>, i: usize) -> Result<()> {
        self.hop.reset();
        self.pipeline.reset(shared);
        self.rerank.reset();
        self.walk.start(shared, i, &self.previous)
    }

    /// Releases what an idle state need not hold: the cache, which may be replaced, and the memory of an unusually long
    /// search.
    fn shrink(&mut self) {
        let is_large = self.sorted.capacity() > KEPT_RESULTS || self.rerank.is_large(KEPT_RESULTS);
        if is_large || self.walk.pages.is_large() || self.walk.traversal.is_large(KEPT_RESULTS) {
            *self = QueryState { previous: std::mem::take(&mut self.previous), ..QueryState::default() };
        }
        self.walk.pages.reset(None);
        self.walk.traversal.events = None;
    }

    /// Forgets the results of the last query, on which a deterministic search must not depend.
    fn admit(&mut self, shared: &Shared<'_>) {
        if shared.params.deterministic {
            self.previous.clear();
        }
    }

    fn advance<'b>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
        let block_bytes = shared.graph.layout.block_bytes(); // a buffer also holds units of exact vectors
        if shared.plan.scans && !self.walk.traversal.scan(shared)? {
            return Ok(Step::Again);
        }
        if !self.rerank.is_active {
            self.walk.begin_turn();
            let step = match shared.params.policy {
                Policy::Pipeline => self.pipeline.advance(&mut self.walk, shared, |i| &buffer(i)[..block_bytes])?,
                _ => self.hop.advance(&mut self.walk, shared)?,
            };
            if step != Step::Done {
                return Ok(step);
            }
            if self.widen(shared) {
                return Ok(Step::Again);
            }
        }
        let Some(apart) = &shared.apart else { return Ok(Step::Done) };
        if !self.rerank.is_active {
            self.rerank.begin(apart, shared.goal, shared.params.beam_width, &mut self.walk.traversal);
        }
        Ok(self.rerank.advance(apart, &mut self.walk.traversal))
    }

    fn submit(&mut self, shared: &Shared<'_>, mut queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        if self.rerank.is_active {
            return self.rerank.submit(shared.files, queue);
        }
        let layout = &shared.graph.layout;
        for read in self.walk.reads.drain(..) {
            queue(read.buffer, layout.page_of(read.block), layout.block_bytes())?;
            if shared.notes == Notes::Blocks {
                self.blocks.push(read.block);
            }
        }
        Ok(())
    }

    /// Uses the time in which reads are in flight: builds the distance table, measures, expands pages.
    fn overlap<'b>(&mut self, shared: &Shared<'_>, _: impl Fn(usize) -> &'b [u8]) -> Result<bool> {
        if !self.rerank.is_active {
            self.hop.overlap(&mut self.walk, shared)?;
        }
        Ok(false)
    }

    fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        if self.rerank.is_active
            && let Some(apart) = &shared.apart
        {
            return self.rerank.arrive(apart, i, bytes, &mut self.walk.traversal);
        }
        let bytes = &bytes[..shared.graph.layout.block_bytes()];
        match shared.params.policy {
            Policy::Pipeline => Ok(self.pipeline.arrive(i)),
            _ => self.hop.arrive(&mut self.walk, shared, i, bytes),
        }
    }

    fn n_lacking(&self) -> usize {
        if self.rerank.is_active { 1 } else { self.hop.n_lacking() }
    }

    fn finish(&mut self, shared: &Shared<'_>, i: usize, times: Times, found: &mut Found) -> Result<()> {
        self.previous.clear();
        self.previous.extend(self.sorted.iter().take(shared.plan.list_size).map(|&key| slot_of(key)));
        let Times { latency_us, io_wait_us, rounds } = times;
        let counters = Counters { latency_us, io_wait_us, rounds, ..self.walk.traversal.counters };
        found.answers.add(&shared.graph.path, i, &self.sorted, shared.graph.metric, counters)?;
        found.blocks.append(&mut self.blocks);
        if let Some(events) = &self.walk.traversal.events {
            trace::finish(events, shared.params.policy, &mut found.events);
        }
        found.event_ends.push(found.events.len());
        Ok(())
    }
}

impl Finds for QueryState {
    fn end(&mut self) -> &[u64] {
        self.walk.traversal.results.drain_sorted(&mut self.sorted);
        &self.sorted
    }

    fn count_id_pages(&mut self, pages: u64) {
        self.walk.traversal.counters.id_pages_read += pages;
    }
}

impl QueryState {
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
        t.candidates.double(n);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::searches::{POLICIES, params, range_search, with_queries};
    use crate::common::{Spec, Written, write_index};
    use crate::graph::{Index, SearchParams};

    /// How often a query gives way that finds all blocks in the cache.
    fn turns(written: &Written, index: &Index, params: &SearchParams, goal: Goal) -> usize {
        static BLOCK: [u8; 4096] = [0; 4096];
        with_queries(written, 1, |queries| {
            let search = index.prepare(params, queries, goal).unwrap();
            let (shared, mut state, mut turns) = (&search.shared.kind, QueryState::default(), 0);
            state.start(shared, 0).unwrap();
            let last = loop {
                match state.advance(shared, |_| &BLOCK[..]).unwrap() {
                    Step::Again => turns += 1,
                    last => break last,
                }
            };
            assert_eq!(last, Step::Done);
            turns
        })
    }

    #[test]
    fn a_query_that_reads_nothing_gives_way_and_finds_the_same() {
        let n = 3000;
        let written = write_index(Spec { n, dim: 2, n_sample: 0, ..Spec::default() });
        let index = Index::open(written.path(), "pread").unwrap();
        for policy in POLICIES {
            let (wide, narrow, all) = (params(10, n, policy), params(1, 64, policy), f32::INFINITY);
            index.cache_around_entries(0).unwrap();
            let want = range_search(&written, &index, 1, all, &narrow).unwrap();
            index.cache_around_entries(1 << 20).unwrap();
            let found = range_search(&written, &index, 1, all, &narrow).unwrap();
            assert_eq!((found.slots.len(), found.counters[0].pages_read), (n, 0), "{policy:?}");
            assert_eq!((&found.slots, &found.scores), (&want.slots, &want.scores), "{policy:?}");
            assert_eq!(found.counters[0].expansions, want.counters[0].expansions, "{policy:?}");
            assert!(turns(&written, &index, &wide, Goal::Nearest(10)) > 1, "{policy:?}");
        }
    }
}
