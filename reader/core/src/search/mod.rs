//! Searching: beam search (DiskANN++ Algorithm 1) and page search (Algorithm 5) over blocks read from disk.
//!
//! One query is a small state machine (`query`), a thread drives several of them over one engine (`worker`), and
//! threads take queries from a shared counter. Nothing a query decides depends on when reads complete, so results
//! and counters (times excepted) are the same for every engine, number of threads and number of queries in flight.

mod candidates;
mod exact;
pub(crate) mod marks;
pub(crate) mod nearest;
mod page_heap;
mod params;
mod query;
mod stamped;
mod vectors;
mod worker;

pub use params::{Entry, MAX_BEAM_WIDTH, MAX_INFLIGHT, MAX_THREADS, Policy, SearchParams};
pub use vectors::{Queries, Values};
pub use worker::Worker;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::index::Index;

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
    /// Rounds of frontier selection.
    pub hops: u64,
    /// Exact distances to stored vectors.
    pub distances: u64,
    /// Distances by PQ codes.
    pub code_distances: u64,
    /// Vertices whose neighbour lists were followed.
    pub expansions: u64,
    /// Frontier vertices whose page was there already (page policy).
    pub page_heap_hits: u64,
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

/// What all threads of one search share.
pub(crate) struct Shared<'a> {
    pub index: &'a Index,
    pub params: &'a SearchParams,
    pub queries: &'a Queries<'a>,
    next: AtomicUsize,
    stopped: AtomicBool,
}

impl Shared<'_> {
    /// The next query nobody took yet.
    pub fn take(&self) -> Option<usize> {
        if self.is_stopped() {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < self.queries.n)
    }

    /// Makes every thread end soon; what was found is dropped.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether a thread failed or was interrupted.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
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
        params.check(self.graph.layout.n_vertices)?;
        queries.check(&self.graph)?;
        let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Shared { index: self, params, queries, next, stopped };
        let threads = params.threads.min(queries.n).max(1);
        let lanes = params.inflight.min(queries.n.div_ceil(threads)).max(1);
        let mut output = allocate(queries.n, params.k)?;
        let mut parts = Vec::with_capacity(threads);
        std::thread::scope(|scope| {
            // Where the system gives no more threads, fewer do the work.
            let spawn =
                |_| std::thread::Builder::new().spawn_scoped(scope, || worker::search(&shared, lanes, None)).ok();
            let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
            parts.push(worker::search(&shared, lanes, Some(interrupted)));
            parts.extend(helpers.into_iter().map(|helper| {
                helper.join().unwrap_or_else(|_| Err((0, Error::Config("a search thread panicked: report it".into()))))
            }));
        });
        merge(&mut output, parts)?;
        output.vector_ids = self.vector_ids_of(&output.slots)?;
        Ok(output)
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

/// Puts every thread's answers in their rows; of several errors the one of the first query wins.
fn merge(output: &mut SearchOutput, parts: Vec<worker::Outcome>) -> Result<()> {
    let mut first: Option<(usize, Error)> = None;
    let k = output.k;
    for part in parts {
        match part {
            Ok(answers) => {
                for (i, &query) in answers.queries.iter().enumerate() {
                    let (from, to) = (i * k..(i + 1) * k, query * k..(query + 1) * k);
                    output.slots[to.clone()].copy_from_slice(&answers.slots[from.clone()]);
                    output.scores[to].copy_from_slice(&answers.scores[from]);
                    output.counters[query] = answers.counters[i];
                }
            }
            Err((query, error)) if first.as_ref().is_none_or(|f| query < f.0) => first = Some((query, error)),
            Err(_) => {}
        }
    }
    first.map_or(Ok(()), |(_, error)| Err(error))
}
