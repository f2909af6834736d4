//! The parameters of a search and what they may be.

use super::LshIndex;
use crate::error::{Error, Result};
use crate::search::limits::{MAX_INFLIGHT, MAX_THREADS};

/// Further buckets of each table at most.
const MAX_PROBES: usize = 65535;
/// Buckets of one radius that a query looks at, at most: what it takes to list them.
const MAX_TARGETS: usize = 1 << 18;

/// Everything a caller can choose.
#[derive(Debug, Clone)]
pub struct LshParams {
    /// Answers a query.
    pub k: usize,
    /// S: vectors that a radius may measure, k - 1 more for k neighbours; what the index says if none.
    pub candidates: Option<u64>,
    /// T: further buckets of each table; what the index says if none.
    pub probes: Option<usize>,
    /// Search threads.
    pub threads: usize,
    /// Queries each thread interleaves.
    pub inflight: usize,
}

impl LshParams {
    /// Refuses what cannot be searched in `index`; S + k - 1 and T otherwise.
    pub(super) fn resolve(&self, index: &LshIndex) -> Result<(u64, usize)> {
        let (n, k) = (index.functions.n_vectors, self.k);
        if k == 0 {
            return Err(Error::Input("k: expected at least 1, got 0; ask for one neighbour or more".into()));
        }
        if k > n as usize {
            return Err(Error::Input(format!("k: the index has {n} vectors, got {k}; ask for at most {n} neighbours")));
        }
        for (name, value, most) in [("threads", self.threads, MAX_THREADS), ("inflight", self.inflight, MAX_INFLIGHT)] {
            if !(1..=most).contains(&value) {
                let message = format!("{name}: expected 1..{most}, got {value}; choose one in that range");
                return Err(Error::Config(message));
            }
        }
        let candidates = self.candidates.unwrap_or(index.functions.candidates);
        if candidates == 0 {
            return Err(Error::Config(
                "candidates: expected at least 1, got 0; twice the number of tables is usual".into(),
            ));
        }
        let (probes, tables) = (self.probes.unwrap_or(index.functions.probes), index.functions.n_tables);
        let most = MAX_PROBES.min(MAX_TARGETS / tables - 1); // L is below 2^16
        if probes > most {
            let message = format!("probes: expected at most {most} with {tables} tables, got {probes}");
            return Err(Error::Config(format!("{message}; fewer are enough")));
        }
        Ok((candidates.saturating_add(k as u64 - 1), probes))
    }
}
