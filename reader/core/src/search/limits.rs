//! What every search may ask for.

/// Queries that one thread interleaves at most.
pub const MAX_INFLIGHT: usize = 256;
/// Search threads at most.
pub const MAX_THREADS: usize = 1024;
