//! The goal of a query (the k nearest vertices, or all within a distance, among those that may be returned), and what a
//! search returns.

use crate::ids::UserIds;
use crate::living::Slots;
use crate::search::nearest::{Nearest, distance_of, slot_of};

/// Which vertices a search returns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// The k nearest.
    Nearest(usize),
    /// All up to this distance (of `exact::distance`).
    Within(f32),
}

/// Cost of one query.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Pages of graph.imx and vectors.imx read from disk.
    pub pages_read: u64,
    /// Bytes of these pages.
    pub bytes_read: u64,
    /// Pages of ids.imx read, from the page cache or from disk, for the ids of the results; 0 if these are in memory.
    pub id_pages_read: u64,
    /// Bytes of the nodes that were expanded.
    pub bytes_used: u64,
    /// Rounds of frontier selection; under `pipeline` the longest chain of reads that waited for one another. One more
    /// where exact vectors are read at the end.
    pub hops: u64,
    /// Exact distances to stored vectors.
    pub distances: u64,
    /// Distances by PQ codes.
    pub code_distances: u64,
    /// Vertices with a followed neighbour list.
    pub expansions: u64,
    /// Frontier vertices with a page already in memory (page and pipeline).
    pub page_heap_hits: u64,
    /// Frontier vertices with a page in the cache of hot vertices.
    pub cache_hits: u64,
    /// Time from start to end, including work of the thread on other queries.
    pub latency_us: f32,
    /// Part of it between the submission of reads and the handling of the last one; the thread may have worked on other
    /// queries meanwhile.
    pub io_wait_us: f32,
    /// Rounds of requests that followed one another, with blocks in a store; else 0.
    pub rounds: u32,
}

/// Answers to a block of queries; row i belongs to query i.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SearchOutput {
    /// Columns of `slots`, `vector_ids` and `scores`.
    pub k: usize,
    /// Positions in the layout; -1 where fewer than k vertices were reachable.
    pub slots: Vec<i64>,
    /// Positions in the input; -1 where missing.
    pub vector_ids: Vec<i64>,
    /// Of the results, unless these are known by their vector ids.
    pub user_ids: UserIds,
    /// In the user's metric; NaN where missing.
    pub scores: Vec<f32>,
    /// One entry a query.
    pub counters: Vec<Counters>,
}

/// Answers to a range search; those of query i are at `starts[i] .. starts[i + 1]`, nearest first.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RangeOutput {
    /// One entry more than queries.
    pub starts: Vec<usize>,
    /// Positions in the layout.
    pub slots: Vec<i64>,
    /// Positions in the input.
    pub vector_ids: Vec<i64>,
    /// Of the results, unless these are known by their vector ids.
    pub user_ids: UserIds,
    /// In the user's metric.
    pub scores: Vec<f32>,
    /// One entry a query.
    pub counters: Vec<Counters>,
}

/// The result list R, by exact distance.
#[derive(Debug, Default)]
pub(super) struct Results {
    radius: Option<f32>,
    nearest: Nearest,
    within: Vec<u64>,
    /// Vertices within the radius that are not allowed.
    n_filtered: usize,
}

impl Results {
    /// Forgets everything.
    pub fn reset(&mut self, goal: Goal) {
        self.within.clear();
        self.n_filtered = 0;
        (self.radius, _) = match goal {
            Goal::Nearest(k) => (None, self.nearest.reset(k)),
            Goal::Within(radius) => (Some(radius), self.nearest.reset(0)),
        };
    }

    /// Takes a measured vertex, once.
    pub fn push(&mut self, key: u64, allowed: Option<&Slots>) {
        let is_allowed = allowed.is_none_or(|allowed| allowed.contains(slot_of(key)));
        match self.radius {
            None if is_allowed => self.nearest.push(key),
            Some(radius) if distance_of(key) <= radius && is_allowed => self.within.push(key),
            Some(radius) if distance_of(key) <= radius => self.n_filtered += 1,
            _ => {}
        }
    }

    /// Results within the radius.
    pub fn n_within(&self) -> usize {
        self.within.len()
    }

    /// Vertices within the radius, whether allowed or not.
    pub fn n_met(&self) -> usize {
        self.within.len() + self.n_filtered
    }

    /// Moves the results to `out`, nearest first.
    pub fn drain_sorted(&mut self, out: &mut Vec<u64>) {
        match self.radius {
            None => self.nearest.drain_sorted(out),
            Some(_) => {
                out.clear();
                out.append(&mut self.within);
                out.sort_unstable();
            }
        }
    }
}
