//! Keeping pages of hot vertices in memory.

use std::ffi::c_void;

use crate::error::guard;
use crate::index::ImIndex;
use crate::params::{Given, ImSearchParams};
use crate::pointers::borrow;
use crate::search::core_queries;

/// Graphs: caches the pages that a breadth-first walk from the entry vertices meets first, for all later searches.
/// The cache takes at most `bytes` bytes of memory and replaces the one there was; 0 drops that. Returns 0 or an
/// error code; after an error the old cache stays.
///
/// Threads: any, at any time; running searches keep the cache that they began with; of two calls at once the one that
/// ends last wins. Ownership: the cache belongs to the index.
///
/// # Safety
/// `index` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_cache(index: *const ImIndex, bytes: u64) -> i32 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_cache: index", index) }?;
        index.inner.graph("im_cache")?.cache_around_entries(limit(bytes))?;
        Ok(0)
    })
}

/// Graphs: the same with the pages that a search for a sample of queries reads most often. Queries and parameters are
/// those of im_search; this search counts in no ImStats.
///
/// Threads: any, at any time, as im_cache. Ownership: the cache belongs to the index, `queries` is the caller's.
///
/// # Safety
/// `index` is null or open, `params` is null or as large as its struct_bytes says, `queries` has n_queries x dim
/// components.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_cache_from_queries(
    index: *const ImIndex,
    queries: *const c_void,
    dtype: u32,
    n_queries: usize,
    dim: usize,
    params: *const ImSearchParams,
    bytes: u64,
) -> i32 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_cache_from_queries: index", index) }?;
        // SAFETY: as this function's.
        let given = unsafe { Given::new(params) }?;
        // SAFETY: as this function's.
        let queries = unsafe { core_queries(queries, dtype, n_queries, dim) }?;
        let graph = index.inner.graph("im_cache_from_queries")?;
        graph.cache_from_queries_unless(&queries, &given.graph(graph)?, limit(bytes), &mut || given.is_cancelled())?;
        Ok(0)
    })
}

/// More than can be addressed is as good as all that can.
fn limit(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
