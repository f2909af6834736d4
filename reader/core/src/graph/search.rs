//! Searching: four policies over blocks read from disk, for the k nearest vertices or all within a radius.
//!
//! One query is a small state machine (`query`) that says what to read next and what it can do meanwhile. `hops` chooses
//! reads in rounds (DiskANN++ Algorithms 1 and 5, AIO-ANN Algorithm 1), `pipeline` without rounds. A thread drives
//! several queries over one engine (`worker`); threads take queries from a shared counter.
//!
//! In a deterministic search nothing that a query decides depends on when reads complete, so results and counters (times
//! excepted) are the same for every engine, number of threads and number of queries in flight.

use std::sync::Arc;

use super::answers::Answers;
use super::cache::Cache;
use super::index::Index;
use super::params::{Entry, SearchParams};
use super::plan::Plan;
use super::results::Goal;
use crate::error::{Error, Result};
use crate::search::Queries;
use crate::search::task::Turns;
use crate::search::threads::run;

/// What one query cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Pages of graph.imx read from disk. Looking up the ids of the answers is not part of a query's cost: it happens
    /// for the whole batch afterwards, through the page cache.
    pub pages_read: u64,
    /// Bytes read from disk.
    pub bytes_read: u64,
    /// Bytes of the nodes that were expanded.
    pub bytes_used: u64,
    /// Rounds of frontier selection; under `pipeline` the longest chain of reads that had to wait for one another.
    pub hops: u64,
    /// Exact distances to stored vectors.
    pub distances: u64,
    /// Distances by PQ codes.
    pub code_distances: u64,
    /// Vertices whose neighbour lists were followed.
    pub expansions: u64,
    /// Frontier vertices whose page was there already (page and pipeline).
    pub page_heap_hits: u64,
    /// Frontier vertices whose page was taken from the cache of hot vertices.
    pub cache_hits: u64,
    /// From start to end, with the time in which the thread worked on other queries.
    pub latency_us: f32,
    /// Part of it from the submission of reads until the last one was taken up; meanwhile the thread may have worked on
    /// other queries.
    pub io_wait_us: f32,
}

/// Answers to a block of queries; row i belongs to query i.
#[derive(Debug, Default)]
pub struct SearchOutput {
    /// Columns of `slots`, `vector_ids` and `scores`.
    pub k: usize,
    /// Positions in the layout; -1 where fewer than k vertices were reachable.
    pub slots: Vec<i64>,
    /// Positions in the input; -1 where missing.
    pub vector_ids: Vec<i64>,
    /// In the user's metric; NaN where missing.
    pub scores: Vec<f32>,
    /// One entry a query.
    pub counters: Vec<Counters>,
}

/// Answers to a range search; those of query i are at `starts[i] .. starts[i + 1]`, nearest first.
#[derive(Debug, Default)]
pub struct RangeOutput {
    /// One more than queries.
    pub starts: Vec<usize>,
    /// Positions in the layout.
    pub slots: Vec<i64>,
    /// Positions in the input.
    pub vector_ids: Vec<i64>,
    /// In the user's metric.
    pub scores: Vec<f32>,
    /// One entry a query.
    pub counters: Vec<Counters>,
}

/// What a search notes besides its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notes {
    /// Nothing.
    Nothing,
    /// The blocks that are read.
    Blocks,
    /// Everything, for a trace.
    Events,
}

/// What all threads of one search share.
pub(crate) struct Shared<'a> {
    pub index: &'a Index,
    pub params: &'a SearchParams,
    pub queries: &'a Queries<'a>,
    pub goal: Goal,
    /// L, longer where a filter leaves few of the candidates.
    pub list_size: usize,
    /// Whether all allowed vertices are scored instead of following edges.
    pub scans: bool,
    pub cache: Option<Arc<Cache>>,
    pub notes: Notes,
    pub turns: Turns,
}

impl<'a> Shared<'a> {
    pub fn new(index: &'a Index, params: &'a SearchParams, queries: &'a Queries<'a>, goal: Goal) -> Result<Self> {
        let n = index.graph.layout.n_vertices;
        params.check(n, goal)?;
        queries.check(&index.graph.stored())?;
        if params.entry == Entry::Navigation && index.navigation.is_none() {
            let message = format!("entry \"navigation\": {} has no navigation graph", index.path.display());
            return Err(Error::Config(format!("{message}; use entry \"centroids\", or build it with one")));
        }
        let Plan { list_size, scans } = match &params.allow {
            Some(filter) => {
                filter.check(index)?;
                Plan::filtered(params.list_size, n, filter.n_allowed())
            }
            None => Plan { list_size: params.list_size, scans: false },
        };
        let (cache, notes, turns) = (index.cache(), Notes::Nothing, Turns::new(queries.n));
        Ok(Shared { index, params, queries, goal, list_size, scans, cache, notes, turns })
    }

    /// The same search with notes.
    pub fn noting(self, notes: Notes) -> Self {
        Shared { notes, ..self }
    }
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
        let shared = Shared::new(self, params, queries, Goal::Nearest(params.k))?;
        self.answer(&shared, interrupted).map(|(output, _)| output)
    }

    /// The answers, and what each thread noted.
    pub(super) fn answer(
        &self,
        shared: &Shared<'_>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(SearchOutput, Vec<Answers>)> {
        let mut output = allocate(shared.queries.n, shared.params.k)?;
        let parts = run(shared, shared.params.threads, shared.params.inflight, interrupted)?;
        merge(&mut output, &parts);
        output.vector_ids = self.vector_ids_of(&output.slots)?;
        Ok((output, parts))
    }

    /// Finds the vertices of each query whose score is at least as good as `radius` (in the user's metric: at most
    /// this squared distance, at least this cosine or product), sorted by (distance, slot).
    ///
    /// L starts at `params.list_size` and doubles while more than half of the candidates are within the radius; k
    /// plays no part.
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
        let shared = Shared::new(self, params, queries, goal)?;
        let mut output = gather(queries.n, run(&shared, params.threads, params.inflight, interrupted)?);
        output.vector_ids = self.vector_ids_of(&output.slots)?;
        Ok(output)
    }

    /// The blocks that a search reads, in no particular order, without the cache.
    pub(super) fn blocks_read(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<u32>> {
        let mut shared = Shared::new(self, params, queries, Goal::Nearest(params.k))?.noting(Notes::Blocks);
        shared.cache = None;
        Ok(run(&shared, params.threads, params.inflight, interrupted)?
            .into_iter()
            .flat_map(|answers| answers.blocks)
            .collect())
    }

    fn vector_ids_of(&self, slots: &[i64]) -> Result<Vec<i64>> {
        let present: Vec<u32> = slots.iter().filter_map(|&s| u32::try_from(s).ok()).collect();
        let mut found = self.ids.vector_ids(&present)?.into_iter();
        Ok(slots.iter().map(|&s| if s < 0 { -1 } else { found.next().map_or(-1, i64::from) }).collect())
    }
}

/// Room for the answers, before any work is done for them.
fn allocate(n_queries: usize, k: usize) -> Result<SearchOutput> {
    let mut output = SearchOutput { k, ..SearchOutput::default() };
    let too_many =
        || Error::Config(format!("k: {n_queries} queries x {k} neighbours do not fit in memory; search in blocks"));
    let n = n_queries.checked_mul(k).ok_or_else(too_many)?;
    output.slots.try_reserve_exact(n).map_err(|_| too_many())?;
    output.scores.try_reserve_exact(n).map_err(|_| too_many())?;
    output.counters.try_reserve_exact(n_queries).map_err(|_| too_many())?;
    output.slots.resize(n, -1);
    output.scores.resize(n, f32::NAN);
    output.counters.resize(n_queries, Counters::default());
    Ok(output)
}

/// Puts every thread's answers in their rows.
fn merge(output: &mut SearchOutput, parts: &[Answers]) {
    for part in parts {
        for (i, &query) in part.queries.iter().enumerate() {
            let from = part.results_of(i);
            let to = query * output.k..query * output.k + from.len();
            output.slots[to.clone()].copy_from_slice(&part.slots[from.clone()]);
            output.scores[to].copy_from_slice(&part.scores[from]);
            output.counters[query] = part.counters[i];
        }
    }
}

/// Puts every thread's answers one after the other in the order of the queries.
fn gather(n_queries: usize, parts: Vec<Answers>) -> RangeOutput {
    let mut places = vec![(0, 0); n_queries];
    for (thread, part) in parts.iter().enumerate() {
        part.queries.iter().enumerate().for_each(|(i, &query)| places[query] = (thread, i));
    }
    let mut output = RangeOutput { starts: vec![0], ..RangeOutput::default() };
    for (thread, i) in places {
        let (part, results) = (&parts[thread], parts[thread].results_of(i));
        output.slots.extend_from_slice(&part.slots[results.clone()]);
        output.scores.extend_from_slice(&part.scores[results]);
        output.starts.push(output.slots.len());
        output.counters.push(part.counters[i]);
    }
    output
}
