//! A block of queries on all threads: [`Index::search`] and its variants.
//!
//! One query is a small state machine (`query`): it chooses its next reads, and its work while they are in flight.
//! `hops` chooses reads in rounds (DiskANN++ Algorithms 1 and 5, AIO-ANN Algorithm 1), `pipeline` without rounds.
//!
//! In a deterministic search no decision of a query depends on when reads complete, so results and counters (times
//! excepted) are the same for every engine, number of threads and number of queries in flight.

use std::collections::HashMap;
use std::iter::once;
use std::sync::Arc;

use super::apart::Apart;
use super::cache::Cache;
use super::index::Index;
use super::params::{Entry, SearchParams};
use super::query::{Found, QueryState};
use super::results::{Counters, Goal, RangeOutput, SearchOutput};
use super::shared::{Notes, Plan, Shared};
use super::trace::Trace;
use crate::error::{Error, Result};
use crate::living::{Living, Slots};
use crate::memory::append;
use crate::search::answers::Output;
use crate::search::later::{Ticket, start};
use crate::search::task::Search;
use crate::search::with_ids::{self, IdSource, WithIds, buffers_with_ids, ids_in_order};
use crate::search::{OwnedQueries, Queries};

/// What a search that runs by itself belongs to.
type Owned = (Arc<Index>, OwnedQueries, SearchParams);

/// What was found, with ids.
type FoundWithIds = with_ids::Found<Found>;

impl Index {
    /// Finds the k nearest vertices of each query, sorted by (distance, slot).
    pub fn search(&self, queries: &Queries<'_>, params: &SearchParams) -> Result<SearchOutput> {
        self.search_unless(queries, params, &mut || false)
    }

    /// As [`Index::search`]. `interrupted` is asked now and then, on the calling thread only; once it says true the search
    /// ends with [`Error::Interrupted`].
    pub fn search_unless(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<SearchOutput> {
        let search = self.prepare(params, queries, Goal::Nearest(params.k))?;
        self.nearest(&search, interrupted).map(|(output, _)| output)
    }

    /// Begins an [`Index::search`] and returns; a thread that [`Ticket`] names calls `done` with its outcome. After
    /// [`Ticket::cancel`] that is [`Error::Interrupted`], unless the search had ended.
    ///
    /// # Errors
    /// Those of parameters and queries; then `done` is not called.
    pub fn search_later(
        self: &Arc<Self>,
        queries: OwnedQueries,
        params: SearchParams,
        done: impl FnOnce(Result<SearchOutput>) + Send + 'static,
    ) -> Result<Ticket> {
        let prepare = |(index, queries, params): &'static Owned| {
            index.prepare(params, &queries.borrow(), Goal::Nearest(params.k))
        };
        let gather = |(index, queries, params): &Owned, found: FoundWithIds| {
            index.with_ids(Output::gather(queries.borrow().n, params.k, &found.kind.answers)?, &found)
        };
        // SAFETY: what is prepared borrows from its argument alone.
        unsafe { start((self.clone(), queries, params), |(index, ..)| &index.pool, prepare, gather, done) }
    }

    /// Begins an [`Index::range_search`] as [`Index::search_later`] begins a search.
    pub fn range_search_later(
        self: &Arc<Self>,
        queries: OwnedQueries,
        radius: f32,
        params: SearchParams,
        done: impl FnOnce(Result<RangeOutput>) + Send + 'static,
    ) -> Result<Ticket> {
        let goal = self.within(radius)?;
        let prepare = move |(index, queries, params): &'static Owned| index.prepare(params, &queries.borrow(), goal);
        let gather = |(index, ..): &Owned, found: FoundWithIds| index.gather(&found);
        // SAFETY: what is prepared borrows from its argument alone.
        unsafe { start((self.clone(), queries, params), |(index, ..)| &index.pool, prepare, gather, done) }
    }

    /// As [`Index::search`], with all events: 20 bytes each, one for each read and cache hit, each distance and each
    /// expansion. What a search reads and measures at its end, where exact vectors lie apart, is no event.
    pub fn search_traced(&self, queries: &Queries<'_>, params: &SearchParams) -> Result<(SearchOutput, Trace)> {
        self.search_traced_unless(queries, params, &mut || false)
    }

    /// As [`Index::search_traced`], with `interrupted` as in [`Index::search_unless`].
    pub fn search_traced_unless(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(SearchOutput, Trace)> {
        let mut search = self.prepare(params, queries, Goal::Nearest(params.k))?;
        search.shared.kind.notes = Notes::Events;
        let (output, found) = self.nearest(&search, interrupted)?;
        Ok((output, gather_events(&found.kind)))
    }

    /// Finds for each query the vertices with a score at least as good as `radius` in the user's metric (at most this
    /// squared distance, at least this cosine or product), sorted by (distance, slot).
    ///
    /// L starts at `params.list_size` and doubles while more than half of the candidates are within the radius; k is
    /// ignored.
    pub fn range_search(&self, queries: &Queries<'_>, radius: f32, params: &SearchParams) -> Result<RangeOutput> {
        self.range_search_unless(queries, radius, params, &mut || false)
    }

    /// As [`Index::range_search`], with `interrupted` as in [`Index::search_unless`].
    pub fn range_search_unless(
        &self,
        queries: &Queries<'_>,
        radius: f32,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<RangeOutput> {
        let search = self.prepare(params, queries, self.within(radius)?)?;
        self.gather(&self.pool.run(&search, interrupted)?)
    }

    /// All vertices with a score at least as good as `radius`.
    fn within(&self, radius: f32) -> Result<Goal> {
        if radius.is_nan() {
            return Err(Error::Input("radius: expected a number, got NaN".into()));
        }
        Ok(Goal::Within(self.graph.metric.largest_distance(radius)))
    }

    /// Caches the blocks that a search for `queries` reads most often (ties: the smaller block), at most `bytes` of
    /// memory; 0 drops the cache. The training search uses no cache and counts in no statistics.
    pub fn cache_from_queries(&self, queries: &Queries<'_>, params: &SearchParams, bytes: usize) -> Result<Arc<Cache>> {
        self.cache_from_queries_unless(queries, params, bytes, &mut || false)
    }

    /// As [`Index::cache_from_queries`], with `interrupted` as in [`Index::search_unless`].
    pub fn cache_from_queries_unless(
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
            for block in self.pool.run(&search, interrupted)?.kind.blocks {
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
        queries: &Queries<'a>,
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
        let living = self.living.as_deref();
        let (allowed, is_filtered) = match &params.allow {
            Some(filter) => {
                filter.check(&self.path, &self.graph, living)?;
                (Some(filter.allowed()), true)
            }
            None => (living.map(Living::slots), false),
        };
        let (list_size, n_allowed) = (params.list_size, allowed.map_or(n, Slots::len));
        let within = params.allow.as_ref().and_then(|filter| filter.within());
        let walk = match within {
            Some(label) => Plan::within(list_size, label.len(), n_allowed),
            None => Plan::walk(list_size, n, n_allowed),
        };
        let plan = if allowed.is_none() {
            Plan::unfiltered(list_size)
        } else if !is_filtered && n_allowed >= n.div_ceil(2) {
            walk
        } else if self.codes.are_held() {
            walk.or_scan(n, n_allowed)
        } else {
            walk.or_scan_by_reads(n_allowed)
        };
        let Index { graph, codes, entries, navigation, ids, storage, .. } = self;
        let (navigation, cache, notes) = (navigation.as_ref(), self.cache(), Notes::Nothing);
        let (apart, files) = (self.apart(), &*storage.file);
        let slot_bytes = graph.layout.block_bytes().max(apart.as_ref().map_or(0, Apart::unit_bytes));
        let (n, queries) = (queries.n, *queries);
        let kind = Shared {
            graph,
            codes,
            entries,
            navigation,
            apart,
            files,
            params,
            queries,
            goal,
            allowed,
            within,
            plan,
            cache,
            notes,
        };
        let k = if let Goal::Nearest(k) = goal { Some(k) } else { None };
        let width = buffers_with_ids(ids, params.beam_width, k);
        let shared = with_ids::Shared { kind, ids: Some(IdSource { ids, files: Some(files), width }) };
        let (&SearchParams { threads, inflight, .. }, keeps_state) = (params, params.entry == Entry::Previous);
        Ok(Search { shared, source: storage, n, threads, inflight, width, slot_bytes, keeps_state })
    }

    /// The exact vectors, where they were kept apart; a view has them in memory.
    fn apart(&self) -> Option<Apart<'_>> {
        let (vectors, homes) = match &self.pages {
            Some(pages) => (pages.nodes.vectors.as_ref()?, Some(&**pages.order)),
            None => (self.vectors.as_ref()?, None),
        };
        Some(Apart::new(vectors, homes, &self.graph.stored()))
    }

    /// The answers, and all that was found.
    fn nearest(
        &self,
        search: &Search<'_, WithIds<QueryState>>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(SearchOutput, FoundWithIds)> {
        let mut output = Output::allocate(search.n, search.shared.kind.params.k)?;
        let found = self.pool.run(search, interrupted)?;
        output.scatter(&found.kind.answers);
        Ok((self.with_ids(output, &found)?, found))
    }

    fn with_ids(&self, output: Output<Counters>, found: &FoundWithIds) -> Result<SearchOutput> {
        let Output { k, slots, scores, counters, .. } = output;
        let (vector_ids, user_ids) = ids_in_order(&self.ids, found, &found.kind.answers, Some(k))?;
        Ok(SearchOutput { k, slots, vector_ids, user_ids, scores, counters })
    }

    /// Puts the answers of a range search one after the other, in the order of the queries.
    fn gather(&self, found: &FoundWithIds) -> Result<RangeOutput> {
        let path = &self.graph.path;
        let (answers, mut output) = (&found.kind.answers, RangeOutput { starts: vec![0], ..RangeOutput::default() });
        for i in answers.places() {
            let results = answers.results_of(i);
            append(path, &mut output.slots, answers.slots[results.clone()].iter().copied())?;
            append(path, &mut output.scores, answers.scores[results].iter().copied())?;
            append(path, &mut output.starts, once(output.slots.len()))?;
            append(path, &mut output.counters, once(answers.counters[i]))?;
        }
        (output.vector_ids, output.user_ids) = ids_in_order(&self.ids, found, answers, None)?;
        Ok(output)
    }
}

/// Puts the events of all queries one after the other, in the order of the queries.
fn gather_events(found: &Found) -> Trace {
    let mut trace = Trace { starts: vec![0], events: Vec::new() };
    for i in found.answers.places() {
        let start = i.checked_sub(1).map_or(0, |before| found.event_ends[before]);
        trace.events.extend_from_slice(&found.events[start..found.event_ends[i]]);
        trace.starts.push(trace.events.len());
    }
    trace
}
