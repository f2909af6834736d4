//! The parameters of a search, and their limits.

use super::functions::Functions;
use crate::error::{Error, Result};
use crate::search::limits::{DEFAULT_INFLIGHT, check_k, check_threads};

/// Further buckets of each table at most.
const MAX_PROBES: usize = 65535;
/// Most buckets of one radius that a query may look at: memory for their list limits it.
const MAX_TARGETS: usize = 1 << 18;

/// Everything a caller can choose. Later versions may add fields: begin with [`LshParams::new`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LshParams {
    /// Answers a query.
    pub k: usize,
    /// S: vectors that a radius may measure, k - 1 more for k neighbours; by default that of the index.
    pub candidates: Option<u64>,
    /// T: further buckets of each table; by default that of the index.
    pub probes: Option<usize>,
    /// Search threads.
    pub threads: usize,
    /// Queries each thread interleaves.
    pub inflight: usize,
}

impl LshParams {
    /// Looks for `k` neighbours with S and T of the index; one thread with 8 queries.
    pub fn new(k: usize) -> Self {
        LshParams { k, candidates: None, probes: None, threads: 1, inflight: DEFAULT_INFLIGHT }
    }

    /// Measures up to S vectors of a radius.
    #[must_use]
    pub fn candidates(self, candidates: impl Into<Option<u64>>) -> Self {
        LshParams { candidates: candidates.into(), ..self }
    }

    /// Looks into T further buckets of each table.
    #[must_use]
    pub fn probes(self, probes: impl Into<Option<usize>>) -> Self {
        LshParams { probes: probes.into(), ..self }
    }

    /// Lets up to so many threads work for the search.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        LshParams { threads, ..self }
    }

    /// Lets each thread interleave so many queries.
    #[must_use]
    pub fn inflight(self, inflight: usize) -> Self {
        LshParams { inflight, ..self }
    }

    /// Refuses parameters that do not fit an index of `functions`; returns S + k - 1 and T.
    pub(super) fn resolve(&self, functions: &Functions) -> Result<(u64, usize)> {
        check_k(self.k, functions.n_vectors)?;
        check_threads(self.threads, self.inflight)?;
        let candidates = self.candidates.unwrap_or(functions.candidates);
        if candidates == 0 {
            return Err(Error::Config(
                "candidates: expected at least 1, got 0; twice the number of tables is usual".into(),
            ));
        }
        let (probes, tables) = (self.probes.unwrap_or(functions.probes), functions.n_tables);
        let most = MAX_PROBES.min(MAX_TARGETS / tables - 1); // L is below 2^16
        if probes > most {
            let message = format!("probes: expected at most {most} with {tables} tables, got {probes}");
            return Err(Error::Config(format!("{message}; fewer are enough")));
        }
        Ok((candidates.saturating_add(self.k as u64 - 1), probes))
    }
}
