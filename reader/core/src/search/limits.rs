//! What every search may ask for.

use crate::error::{Error, Result};

/// Queries that one thread interleaves by default.
pub(crate) const DEFAULT_INFLIGHT: usize = 8;
/// Queries that one thread interleaves at most.
pub const MAX_INFLIGHT: usize = 256;
/// Search threads at most.
pub const MAX_THREADS: usize = 1024;

/// Refuses to look for `k` neighbours among `n` vectors.
pub fn check_k(k: usize, n: u32) -> Result<()> {
    if k == 0 {
        return Err(Error::Input("k: expected at least 1, got 0; ask for one neighbour or more".into()));
    }
    if k > n as usize {
        return Err(Error::Input(format!("k: the index has {n} vectors, got {k}; ask for at most {n} neighbours")));
    }
    Ok(())
}

/// Refuses what no machine has or needs.
pub fn check_threads(threads: usize, inflight: usize) -> Result<()> {
    Error::expect_count("threads", threads, MAX_THREADS)?;
    Error::expect_count("inflight", inflight, MAX_INFLIGHT)
}
