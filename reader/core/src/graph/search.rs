//! A block of queries on all threads: [`Index::search`] and its variants.
//!
//! One query is a small state machine (`query`): it chooses its next reads, and its work while they are in flight.
//! `hops` chooses reads in rounds (DiskANN++ Algorithms 1 and 5, AIO-ANN Algorithm 1), `pipeline` without rounds.
//!
//! In a deterministic search no decision of a query depends on when reads complete, so results and counters (times
//! excepted) are the same for every engine, number of threads and number of queries in flight.

use std::collections::HashMap;
use std::sync::Arc;

use super::apart::Apart;
use super::cache::Cache;
use super::index::Index;
use super::params::{Entry, SearchParams};
use super::query::{Found, QueryState};
use super::results::{Goal, RangeOutput, SearchOutput};
use super::shared::{Notes, Plan, Shared};
use super::trace::Trace;
use crate::error::{Error, Result};
use crate::search::Queries;
use crate::search::answers::{Output, places_of};
use crate::search::task::Search;
use crate::search::threads::run;
use crate::search::with_ids::{self, IdSource, WithIds, buffers_with_ids, ids_in_order};

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
        let search = self.prepare(params, queries, Goal::Nearest(params.k))?;
        self.nearest(&search, interrupted).map(|(output, _)| output)
    }

    /// As [`Index::search`], with all events: 20 bytes each, one for each read and cache hit, each distance and each
    /// expansion. What a search reads and measures at its end, where exact vectors lie apart, is no event.
    pub fn search_traced(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(SearchOutput, Trace)> {
        let mut search = self.prepare(params, queries, Goal::Nearest(params.k))?;
        search.shared.kind.notes = Notes::Events;
        let (output, parts) = self.nearest(&search, interrupted)?;
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
        let parts = found(&self.prepare(params, queries, goal)?, interrupted)?;
        let mut output = gather(queries.n, &parts);
        (output.vector_ids, output.user_ids) = ids_in_order(&self.ids, queries.n, &parts, |part| &part.answers, None);
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
            let mut search = self.prepare(params, queries, Goal::Nearest(params.k))?;
            search.shared.ids = None;
            (search.shared.kind.cache, search.shared.kind.notes) = (None, Notes::Blocks);
            let mut counts: HashMap<u32, u32> = HashMap::new();
            for block in found(&search, interrupted)?.into_iter().flat_map(|found| found.kind.blocks) {
                *counts.entry(block).or_default() += 1;
            }
            hottest.extend(counts.into_iter().map(|(block, count)| (u32::MAX - count, block)));
            hottest.sort_unstable();
        }
        let blocks: Vec<u32> = hottest.into_iter().map(|(_, block)| block).collect();
        Ok(self.install(Cache::of_blocks(&self.graph, &self.storage, &blocks, bytes, interrupted)?))
    }

    pub(super) fn prepare<'a>(
        &'a self,
        params: &'a SearchParams,
        queries: &'a Queries<'a>,
        goal: Goal,
    ) -> Result<Search<'a, WithIds<QueryState>>> {
        let n = self.graph.layout.n_vertices;
        params.check(n, goal)?;
        queries.check(&self.graph.stored())?;
        let needs_codes = matches!(params.entry, Entry::Navigation | Entry::Previous);
        if needs_codes && !self.codes.are_held() {
            let message = format!("entry: {} has its codes in the nodes, not in memory", self.path.display());
            return Err(Error::Config(format!("{message}; use entry \"centroids\" or \"medoid\"")));
        }
        if params.entry == Entry::Navigation && self.navigation.is_none() {
            let message = format!("entry \"navigation\": {} has no navigation graph", self.path.display());
            return Err(Error::Config(format!("{message}; use entry \"centroids\", or build it with one")));
        }
        let plan = match &params.allow {
            Some(filter) => {
                filter.check(&self.path, &self.graph)?;
                let (list_size, n_allowed) = (params.list_size, filter.n_allowed());
                if self.codes.are_held() {
                    Plan::filtered(list_size, n, n_allowed)
                } else {
                    Plan::filtered_by_reads(list_size, n, n_allowed)
                }
            }
            None => Plan { list_size: params.list_size, scans: false },
        };
        let Index { graph, codes, entries, navigation, ids, storage, idle, .. } = self;
        let (navigation, cache, notes) = (navigation.as_ref(), self.cache(), Notes::Nothing);
        let (apart, files) = (self.apart(), &*storage.file);
        let slot_bytes = graph.layout.block_bytes().max(apart.as_ref().map_or(0, Apart::unit_bytes));
        let kind =
            Shared { graph, codes, entries, navigation, apart, files, params, queries, goal, plan, cache, notes };
        let k = if let Goal::Nearest(k) = goal { Some(k) } else { None };
        let width = buffers_with_ids(ids, params.beam_width, k);
        let shared = with_ids::Shared { kind, ids: Some(IdSource { ids, files: Some(files), width }) };
        Ok(Search { shared, source: storage, idle, width, slot_bytes })
    }

    /// The exact vectors, where they were kept apart; a view has them in memory.
    fn apart(&self) -> Option<Apart<'_>> {
        let (vectors, homes) = match &self.pages {
            Some(pages) => (pages.nodes.vectors.as_ref()?, Some(&*pages.order)),
            None => (self.vectors.as_ref()?, None),
        };
        Some(Apart::new(vectors, homes, &self.graph.stored()))
    }

    /// The answers, and what each thread found.
    fn nearest(
        &self,
        search: &Search<'_, WithIds<QueryState>>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(SearchOutput, Vec<Part>)> {
        let (n, k) = (search.shared.kind.queries.n, search.shared.kind.params.k);
        let mut output = Output::allocate(n, k)?;
        let parts = found(search, interrupted)?;
        parts.iter().for_each(|part| output.scatter(&part.kind.answers));
        let (vector_ids, user_ids) = ids_in_order(&self.ids, n, &parts, |part| &part.answers, Some(k));
        let Output { slots, scores, counters, .. } = output;
        Ok((SearchOutput { k, slots, vector_ids, user_ids, scores, counters }, parts))
    }
}

/// What one thread found, with ids.
type Part = with_ids::Found<Found>;

/// What each thread found.
fn found(search: &Search<'_, WithIds<QueryState>>, interrupted: &mut dyn FnMut() -> bool) -> Result<Vec<Part>> {
    let SearchParams { threads, inflight, .. } = *search.shared.kind.params;
    run(search, search.shared.kind.queries.n, threads, inflight, interrupted)
}

/// Puts the answers of all threads one after the other, in the order of the queries.
fn gather(n_queries: usize, parts: &[Part]) -> RangeOutput {
    let mut output = RangeOutput { starts: vec![0], ..RangeOutput::default() };
    for (thread, i) in places_of(n_queries, parts.iter().map(|part| &part.kind.answers)) {
        let answers = &parts[thread].kind.answers;
        let results = answers.results_of(i);
        output.slots.extend_from_slice(&answers.slots[results.clone()]);
        output.scores.extend_from_slice(&answers.scores[results]);
        output.starts.push(output.slots.len());
        output.counters.push(answers.counters[i]);
    }
    output
}

/// The same for events.
fn gather_events(n_queries: usize, parts: &[Part]) -> Trace {
    let mut trace = Trace { starts: vec![0], events: Vec::new() };
    for (thread, i) in places_of(n_queries, parts.iter().map(|part| &part.kind.answers)) {
        let part = &parts[thread].kind;
        let start = i.checked_sub(1).map_or(0, |before| part.event_ends[before]);
        trace.events.extend_from_slice(&part.events[start..part.event_ends[i]]);
        trace.starts.push(trace.events.len());
    }
    trace
}
