//! A block of queries on all threads: [`Index::search`] and its variants.
//!
//! One query is a small state machine (`query`): it chooses its next reads, and its work while they are in flight.
//! `hops` chooses reads in rounds (DiskANN++ Algorithms 1 and 5, AIO-ANN Algorithm 1), `pipeline` without rounds.
//!
//! In a deterministic search no decision of a query depends on when reads complete, so results and counters (times
//! excepted) are the same for every engine, number of threads and number of queries in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::cache::Cache;
use super::index::Index;
use super::params::{Entry, SearchParams};
use super::query::QueryState;
use super::results::{Counters, Goal, RangeOutput, SearchOutput};
use super::shared::{Notes, Plan, Shared};
use super::trace::{Event, Trace};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::search::Queries;
use crate::search::answers::{Answers, Output, places_of};
use crate::search::task::{Step, Task, Times, Worker};
use crate::search::threads::run;

/// One search of an index.
struct Search<'a> {
    index: &'a Index,
    shared: Shared<'a>,
}

/// What one thread found.
#[derive(Default)]
struct Found {
    answers: Answers<Counters>,
    /// Blocks read, if they are noted.
    blocks: Vec<u32>,
    /// Events, if they are noted, and the end of each query's.
    events: Vec<Event>,
    event_ends: Vec<usize>,
}

impl Index {
    /// Finds the k nearest vertices of each query, sorted by (distance, slot).
    ///
    /// `interrupted` is asked now and then, on the calling thread only; once it says true the search ends with
    /// [`Error::Interrupted`].
    pub fn search(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<SearchOutput> {
        let search = Search::new(self, params, queries, Goal::Nearest(params.k))?;
        search.nearest(interrupted).map(|(output, _)| output)
    }

    /// As [`Index::search`], with all events: 20 bytes each, one for each read and cache hit, each distance and each
    /// expansion.
    pub fn search_traced(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(SearchOutput, Trace)> {
        let mut search = Search::new(self, params, queries, Goal::Nearest(params.k))?;
        search.shared.notes = Notes::Events;
        let (output, parts) = search.nearest(interrupted)?;
        Ok((output, gather_events(queries.n, &parts)))
    }

    /// Finds for each query the vertices with a score at least as good as `radius` in the user's metric (at most this
    /// squared distance, at least this cosine or product), sorted by (distance, slot).
    ///
    /// L starts at `params.list_size` and doubles while more than half of the candidates are within the radius; k is
    /// ignored.
    pub fn range_search(
        &self,
        queries: &Queries<'_>,
        radius: f32,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<RangeOutput> {
        if radius.is_nan() {
            return Err(Error::Input("radius: expected a number, got NaN".into()));
        }
        let goal = Goal::Within(self.graph.metric.largest_distance(radius));
        let parts = Search::new(self, params, queries, goal)?.run(interrupted)?;
        let mut output = gather(queries.n, &parts);
        output.vector_ids = self.vector_ids_of(&output.slots)?;
        Ok(output)
    }

    /// Caches the blocks that a search for `queries` reads most often (ties: the smaller block), at most `bytes` of
    /// memory; 0 drops the cache. The training search uses no cache and counts in no statistics.
    pub fn cache_from_queries(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        bytes: usize,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Arc<Cache>> {
        let mut hottest: Vec<(u32, u32)> = Vec::new();
        if Cache::blocks_in(bytes, &self.graph.layout) > 0 {
            let mut search = Search::new(self, params, queries, Goal::Nearest(params.k))?;
            (search.shared.cache, search.shared.notes) = (None, Notes::Blocks);
            let mut counts: HashMap<u32, u32> = HashMap::new();
            for block in search.run(interrupted)?.into_iter().flat_map(|found| found.blocks) {
                *counts.entry(block).or_default() += 1;
            }
            hottest.extend(counts.into_iter().map(|(block, count)| (u32::MAX - count, block)));
            hottest.sort_unstable();
        }
        let blocks: Vec<u32> = hottest.into_iter().map(|(_, block)| block).collect();
        Ok(self.install(Cache::of_blocks(&self.graph, &self.storage, &blocks, bytes, interrupted)?))
    }

    fn vector_ids_of(&self, slots: &[i64]) -> Result<Vec<i64>> {
        let present: Vec<u32> = slots.iter().filter_map(|&s| u32::try_from(s).ok()).collect();
        let mut found = self.ids.vector_ids(&present)?.into_iter();
        Ok(slots.iter().map(|&s| if s < 0 { -1 } else { found.next().map_or(-1, i64::from) }).collect())
    }
}

impl<'a> Search<'a> {
    fn new(index: &'a Index, params: &'a SearchParams, queries: &'a Queries<'a>, goal: Goal) -> Result<Self> {
        let n = index.graph.layout.n_vertices;
        params.check(n, goal)?;
        queries.check(&index.graph.stored())?;
        if params.entry == Entry::Navigation && index.navigation.is_none() {
            let message = format!("entry \"navigation\": {} has no navigation graph", index.path.display());
            return Err(Error::Config(format!("{message}; use entry \"centroids\", or build it with one")));
        }
        let plan = match &params.allow {
            Some(filter) => {
                filter.check(&index.path, &index.graph)?;
                Plan::filtered(params.list_size, n, filter.n_allowed())
            }
            None => Plan { list_size: params.list_size, scans: false },
        };
        let Index { graph, codes, entries, navigation, .. } = index;
        let (navigation, cache, notes) = (navigation.as_ref(), index.cache(), Notes::Nothing);
        let shared = Shared { graph, codes, entries, navigation, params, queries, goal, plan, cache, notes };
        Ok(Search { index, shared })
    }

    fn run(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<Vec<Found>> {
        let SearchParams { threads, inflight, .. } = *self.shared.params;
        run(self, self.shared.queries.n, threads, inflight, interrupted)
    }

    /// The answers, and what each thread found.
    fn nearest(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<(SearchOutput, Vec<Found>)> {
        let mut output = Output::allocate(self.shared.queries.n, self.shared.params.k)?;
        let parts = self.run(interrupted)?;
        parts.iter().for_each(|part| output.scatter(&part.answers));
        let vector_ids = self.index.vector_ids_of(&output.slots)?;
        let Output { k, slots, scores, counters } = output;
        Ok((SearchOutput { k, slots, vector_ids, scores, counters }, parts))
    }
}

impl Task for Search<'_> {
    type State = QueryState;
    type Answers = Found;

    fn idle(&self) -> &Mutex<Vec<Worker<QueryState>>> {
        &self.index.idle
    }

    fn width(&self) -> usize {
        self.shared.params.beam_width
    }

    fn slot_bytes(&self) -> usize {
        self.shared.graph.layout.block_bytes()
    }

    fn start_engine(&self, slots: usize) -> Result<Box<dyn Engine>> {
        self.index.storage.start(slots, self.slot_bytes())
    }

    fn admit(&self, state: &mut QueryState) {
        if self.shared.params.deterministic {
            state.forget_previous();
        }
    }

    fn start(&self, state: &mut QueryState, i: usize) {
        state.start(&self.shared, i);
    }

    fn advance<'a>(&self, state: &mut QueryState, buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        state.advance(&self.shared, buffer)
    }

    fn submit(
        &self,
        state: &mut QueryState,
        found: &mut Found,
        mut queue: impl FnMut(usize, u64, usize) -> Result<()>,
    ) -> Result<()> {
        for read in state.take_reads() {
            queue(read.buffer, self.shared.graph.layout.page_of(read.block), self.slot_bytes())?;
            if self.shared.notes == Notes::Blocks {
                found.blocks.push(read.block);
            }
        }
        Ok(())
    }

    fn overlap<'a>(&self, state: &mut QueryState, _buffer: impl Fn(usize) -> &'a [u8]) -> Result<bool> {
        state.overlap(&self.shared).map(|()| false)
    }

    fn arrive(&self, state: &mut QueryState, i: usize, bytes: &[u8]) -> Result<bool> {
        state.arrive(&self.shared, i, bytes)
    }

    fn finish(&self, state: &mut QueryState, i: usize, times: Times, found: &mut Found) {
        let (keys, counters) = state.finish(&self.shared);
        let Times { latency_us, io_wait_us } = times;
        found.answers.add(i, keys, self.shared.graph.metric, Counters { latency_us, io_wait_us, ..counters });
        state.take_events(&self.shared, &mut found.events);
        found.event_ends.push(found.events.len());
    }

    fn shrink(state: &mut QueryState) {
        state.shrink();
    }
}

/// Puts the answers of all threads one after the other, in the order of the queries.
fn gather(n_queries: usize, parts: &[Found]) -> RangeOutput {
    let mut output = RangeOutput { starts: vec![0], ..RangeOutput::default() };
    for (thread, i) in places_of(n_queries, parts.iter().map(|part| &part.answers)) {
        let answers = &parts[thread].answers;
        let results = answers.results_of(i);
        output.slots.extend_from_slice(&answers.slots[results.clone()]);
        output.scores.extend_from_slice(&answers.scores[results]);
        output.starts.push(output.slots.len());
        output.counters.push(answers.counters[i]);
    }
    output
}

/// The same for events.
fn gather_events(n_queries: usize, parts: &[Found]) -> Trace {
    let mut trace = Trace { starts: vec![0], events: Vec::new() };
    for (thread, i) in places_of(n_queries, parts.iter().map(|part| &part.answers)) {
        let part = &parts[thread];
        let start = i.checked_sub(1).map_or(0, |before| part.event_ends[before]);
        trace.events.extend_from_slice(&part.events[start..part.event_ends[i]]);
        trace.starts.push(trace.events.len());
    }
    trace
}
