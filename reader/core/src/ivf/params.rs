//! The parameters of a search, and their limits.

use super::centroids::{Centroids, Codec};
use crate::error::{Error, Result};
use crate::search::limits::{DEFAULT_INFLIGHT, check_k, check_threads};

/// Everything a caller can choose. Later versions may add fields: begin with [`IvfParams::new`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IvfParams {
    /// Answers a query.
    pub k: usize,
    /// Lists of nearest centroids, of every batch.
    pub nprobe: usize,
    /// Leave out lists with a centroid farther than 1 + this times the nearest one (SPANN's query-aware pruning).
    pub prune: Option<f32>,
    /// Candidates measured exactly; 0 for none.
    pub rerank: usize,
    /// Search threads.
    pub threads: usize,
    /// Queries each thread interleaves.
    pub inflight: usize,
}

impl IvfParams {
    /// Looks for `k` neighbours in the lists of the `nprobe` nearest centroids, all of them, without exact vectors; one
    /// thread with 8 queries.
    pub fn new(k: usize, nprobe: usize) -> Self {
        IvfParams { k, nprobe, prune: None, rerank: 0, threads: 1, inflight: DEFAULT_INFLIGHT }
    }

    /// Probes the lists of so many nearest centroids.
    #[must_use]
    pub fn nprobe(self, nprobe: usize) -> Self {
        IvfParams { nprobe, ..self }
    }

    /// Leaves out lists with a centroid farther than 1 + this times the nearest one.
    #[must_use]
    pub fn prune(self, prune: impl Into<Option<f32>>) -> Self {
        IvfParams { prune: prune.into(), ..self }
    }

    /// Measures so many candidates exactly.
    #[must_use]
    pub fn rerank(self, rerank: usize) -> Self {
        IvfParams { rerank, ..self }
    }

    /// Lets up to so many threads work for the search.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        IvfParams { threads, ..self }
    }

    /// Lets each thread interleave so many queries.
    #[must_use]
    pub fn inflight(self, inflight: usize) -> Self {
        IvfParams { inflight, ..self }
    }

    /// Refuses parameters that do not fit an index of `centroids`, with exact vectors or without.
    pub(super) fn check(&self, centroids: &Centroids, has_vectors: bool) -> Result<()> {
        let (n, lists, k) = (centroids.n_vectors, centroids.n_lists, self.k);
        check_k(k, n)?;
        if !(1..=lists).contains(&self.nprobe) {
            let message = format!("nprobe: expected 1..{lists}, the lists of the index, got {}", self.nprobe);
            return Err(Error::Config(format!("{message}; {lists} scans all of them")));
        }
        if let Some(prune) = self.prune.filter(|prune| !(prune.is_finite() && *prune >= 0.0)) {
            return Err(Error::Config(format!("prune: expected 0 or more, got {prune}; 0.3 is usual")));
        }
        check_threads(self.threads, self.inflight)?;
        if self.rerank == 0 {
            return Ok(());
        }
        if let Codec::Flat = centroids.codec {
            return Err(Error::Config("rerank: flat lists are scanned exactly; leave it out".into()));
        }
        if !has_vectors {
            let message = "rerank: the index keeps no exact vectors beside its codes";
            return Err(Error::Config(format!("{message}; leave it out, or build with --keep-vectors")));
        }
        if self.rerank < k || self.rerank > n as usize {
            let message = format!("rerank: expected {k}..{n}, k to the vectors of the index, got {}", self.rerank);
            return Err(Error::Config(format!("{message}; ten times k is usual")));
        }
        Ok(())
    }
}
