//! The parameters of a search, and their limits.

use std::sync::Arc;

use super::filter::Filter;
use super::results::Goal;
use crate::error::{Error, Result};
use crate::search::limits::{DEFAULT_INFLIGHT, check_k, check_threads};

/// Most reads of one query in flight; the device's queue is full long before.
pub const MAX_BEAM_WIDTH: usize = 64;

/// How vertices are chosen for expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Lock-step beam search: DiskANN++ Algorithm 1.
    Beam,
    /// Page search with a page heap: DiskANN++ Algorithm 5.
    Page,
    /// Each read handled when it arrives: AIO-ANN Algorithm 1.
    Completion,
    /// Page search without a barrier between reads.
    Pipeline,
    /// Page search in as few rounds of reads as it can: for storage that takes long to answer, such as a store of objects.
    Rounds,
}

/// Where a search starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry {
    /// At the vertex nearest to the mean of all vectors.
    Medoid,
    /// At the vertex of the centroid nearest to the query (DiskANN++ section III); under [`Policy::Rounds`] at those of
    /// several, one for every four reads of a round.
    Centroids,
    /// At the nearest vertices of a graph over a sample, held in memory (Starling, PipeANN).
    Navigation,
    /// At the results of the previous query on the same lane of the same thread (AIO-ANN, "result-based").
    Previous,
}

/// Candidates kept by default, or twice k.
const DEFAULT_LIST_SIZE: usize = 64;
/// Reads of a query in flight by default.
const DEFAULT_BEAM_WIDTH: usize = 8;

/// Everything a caller can choose. Later versions may add fields: begin with [`SearchParams::new`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SearchParams {
    /// Answers a query.
    pub k: usize,
    /// L: candidates kept while searching, at least k.
    pub list_size: usize,
    /// W: vertices a query chooses in one hop, so reads it has in flight.
    pub beam_width: usize,
    /// How vertices are chosen.
    pub policy: Policy,
    /// Where to start.
    pub entry: Entry,
    /// Search threads.
    pub threads: usize,
    /// Queries each thread interleaves.
    pub inflight: usize,
    /// Handle reads in the order in which they were chosen, so that a search repeats bit for bit.
    pub deterministic: bool,
    /// The vertices that may be returned; all if none.
    pub allow: Option<Arc<Filter>>,
}

impl Policy {
    const NAMES: [(&'static str, Self); 5] = [
        ("beam", Policy::Beam),
        ("page", Policy::Page),
        ("completion", Policy::Completion),
        ("pipeline", Policy::Pipeline),
        ("rounds", Policy::Rounds),
    ];

    /// The policy of that name.
    pub fn parse(name: &str) -> Result<Self> {
        parse("policy", name, &Self::NAMES)
    }
}

impl Entry {
    const NAMES: [(&'static str, Self); 4] = [
        ("medoid", Entry::Medoid),
        ("centroids", Entry::Centroids),
        ("navigation", Entry::Navigation),
        ("previous", Entry::Previous),
    ];

    /// The entry policy of that name.
    pub fn parse(name: &str) -> Result<Self> {
        parse("entry", name, &Self::NAMES)
    }
}

fn parse<T: Copy>(what: &str, name: &str, names: &[(&str, T)]) -> Result<T> {
    let found = names.iter().find(|(n, _)| *n == name);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let expected: Vec<String> = names.iter().map(|(n, _)| format!("{n:?}")).collect();
        Error::Config(format!("{what}: expected one of {}, got {name:?}", expected.join(", ")))
    })
}

impl SearchParams {
    /// Looks for `k` neighbours: 64 candidates, or twice k; `pipeline` with 8 reads in flight, from a centroid's vertex; one
    /// thread with 8 queries; results that repeat; no filter.
    pub fn new(k: usize) -> Self {
        SearchParams {
            k,
            list_size: DEFAULT_LIST_SIZE.max(k.saturating_mul(2)),
            beam_width: DEFAULT_BEAM_WIDTH,
            policy: Policy::Pipeline,
            entry: Entry::Centroids,
            threads: 1,
            inflight: DEFAULT_INFLIGHT,
            deterministic: true,
            allow: None,
        }
    }

    /// Keeps L candidates while searching, at least k. An index of fewer vectors takes no more of them.
    #[must_use]
    pub fn list_size(self, list_size: usize) -> Self {
        SearchParams { list_size, ..self }
    }

    /// Has at most W reads of a query in flight.
    #[must_use]
    pub fn beam_width(self, beam_width: usize) -> Self {
        SearchParams { beam_width, ..self }
    }

    /// Chooses vertices by another policy.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        SearchParams { policy, ..self }
    }

    /// Starts elsewhere.
    #[must_use]
    pub fn entry(self, entry: Entry) -> Self {
        SearchParams { entry, ..self }
    }

    /// Lets up to so many threads work for the search.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        SearchParams { threads, ..self }
    }

    /// Lets each thread interleave so many queries.
    #[must_use]
    pub fn inflight(self, inflight: usize) -> Self {
        SearchParams { inflight, ..self }
    }

    /// Says whether the search is to repeat bit for bit.
    #[must_use]
    pub fn deterministic(self, deterministic: bool) -> Self {
        SearchParams { deterministic, ..self }
    }

    /// Returns vertices of a filter only.
    #[must_use]
    pub fn allow(self, allow: impl Into<Option<Arc<Filter>>>) -> Self {
        SearchParams { allow: allow.into(), ..self }
    }

    /// Refuses parameters that do not fit an index of `n` vertices.
    pub(crate) fn check(&self, n: u32, goal: Goal) -> Result<()> {
        let (k, l) = (if let Goal::Nearest(k) = goal { k } else { 1 }, self.list_size);
        check_k(k, n)?;
        if l < k {
            return Err(Error::Input(format!(
                "L: expected at least k = {k}, got {l}; raise L (search_list_size) to {k}"
            )));
        }
        Error::expect_count("beam_width", self.beam_width, MAX_BEAM_WIDTH)?;
        check_threads(self.threads, self.inflight)?;
        if self.entry == Entry::Previous && self.deterministic && (self.threads > 1 || self.inflight > 1) {
            let message = "entry \"previous\": which query ended before another depends on the clock";
            return Err(Error::Config(format!(
                "{message}; use threads = 1 and inflight = 1, or deterministic = false"
            )));
        }
        Ok(())
    }
}
