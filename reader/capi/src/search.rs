//! Searching.

use std::ffi::c_void;
use std::slice;

use indexmill_core::ids::{IdType, UserId};
use indexmill_core::search::{Counters, Entry, Policy, Queries, SearchOutput, SearchParams, Values};

use crate::error::{Failure, guard};
use crate::index::{IM_FLOAT32, IM_INT8, IM_UINT8, ImIndex};

/// Policy: lock-step beam search.
pub const IM_POLICY_BEAM: u32 = 0;
/// Policy: page search.
pub const IM_POLICY_PAGE: u32 = 1;
/// Entry: the vertex nearest to the mean of all vectors.
pub const IM_ENTRY_MEDOID: u32 = 0;
/// Entry: the vertex of the centroid nearest to the query.
pub const IM_ENTRY_CENTROIDS: u32 = 1;

/// How to search. 10, 64, 4, IM_POLICY_PAGE, IM_ENTRY_CENTROIDS, 1, 8 is a good start.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ImSearchParams {
    /// Answers a query.
    pub k: u32,
    /// Candidates kept, at least k; larger is slower and finds more.
    pub search_list_size: u32,
    /// Reads of one query in flight, 1 .. 64.
    pub beam_width: u32,
    /// IM_POLICY_BEAM or IM_POLICY_PAGE.
    pub policy: u32,
    /// IM_ENTRY_MEDOID or IM_ENTRY_CENTROIDS.
    pub entry: u32,
    /// Search threads, 1 .. 1024.
    pub threads: u32,
    /// Queries that each thread interleaves, 1 .. 256.
    pub inflight: u32,
}

/// What one query cost.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ImCounters {
    /// Pages read from disk.
    pub pages_read: u64,
    /// Bytes read from disk.
    pub bytes_read: u64,
    /// Bytes of the nodes that were expanded.
    pub bytes_used: u64,
    /// Rounds of frontier selection.
    pub hops: u64,
    /// Exact distances.
    pub distances: u64,
    /// Distances by PQ codes.
    pub code_distances: u64,
    /// Vertices whose neighbour lists were followed.
    pub expansions: u64,
    /// Frontier vertices whose page was there already.
    pub page_heap_hits: u64,
    /// Frontier vertices whose page was taken from the cache of hot vertices.
    pub cache_hits: u64,
    /// From start to end.
    pub latency_us: f32,
    /// Part of it spent waiting for reads.
    pub io_wait_us: f32,
}

impl From<&Counters> for ImCounters {
    fn from(c: &Counters) -> Self {
        ImCounters {
            pages_read: c.pages_read,
            bytes_read: c.bytes_read,
            bytes_used: c.bytes_used,
            hops: c.hops,
            distances: c.distances,
            code_distances: c.code_distances,
            expansions: c.expansions,
            page_heap_hits: c.page_heap_hits,
            cache_hits: c.cache_hits,
            latency_us: c.latency_us,
            io_wait_us: c.io_wait_us,
        }
    }
}

/// Finds the k nearest vectors of each query, nearest first.
///
/// `queries` holds n_queries x dim components of type `dtype` (IM_FLOAT32, IM_UINT8 or IM_INT8, the index's
/// query_dtype), row after row. `out_ids` gets n_queries x k user ids: int64, uint64 as their bit pattern, or vector
/// ids where the index has none or its ids are text or bytes (see im_vector_user_id); -1 where fewer than k vectors
/// were reachable, which the NaN in `out_scores` tells from an id. `out_scores` gets n_queries x k scores in the
/// index's metric. `out_counters` gets n_queries entries, or is null. Returns 0 or an error code. Thread-safe.
///
/// # Safety
/// `index` is null or open, `params` is null or readable, the arrays have the sizes above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_search(
    index: *const ImIndex,
    queries: *const c_void,
    dtype: u32,
    n_queries: usize,
    dim: usize,
    params: *const ImSearchParams,
    out_ids: *mut i64,
    out_scores: *mut f32,
    out_counters: *mut ImCounters,
) -> i32 {
    let searched = guard(|| {
        // SAFETY: null or valid by the caller's contract.
        let (Some(index), Some(params)) = (unsafe { index.as_ref() }, unsafe { params.as_ref() }) else {
            return Err(Failure::invalid("im_search: index and params must not be null"));
        };
        if n_queries > 0 && (queries.is_null() || out_ids.is_null() || out_scores.is_null()) {
            return Err(Failure::invalid("im_search: queries, out_ids and out_scores must not be null"));
        }
        if n_queries == 0 {
            return Ok(0);
        }
        // SAFETY: `queries` holds the components by the caller's contract.
        let values = unsafe { query_values(queries, dtype, n_queries, dim) }?;
        let queries = Queries { values, n: n_queries, dim };
        let output = index.inner.search(&queries, &core_params(params)?, &mut || false)?;
        let ids = result_ids(index, &output)?;
        // SAFETY: the arrays have n_queries * k, or n_queries, entries by the caller's contract; `search` checked k.
        unsafe {
            slice::from_raw_parts_mut(out_ids, ids.len()).copy_from_slice(&ids);
            slice::from_raw_parts_mut(out_scores, output.scores.len()).copy_from_slice(&output.scores);
            if !out_counters.is_null() {
                let counters = slice::from_raw_parts_mut(out_counters, n_queries);
                counters.iter_mut().zip(&output.counters).for_each(|(to, from)| *to = from.into());
            }
        }
        Ok(0)
    });
    searched as i32
}

unsafe fn query_values<'a>(queries: *const c_void, dtype: u32, n: usize, dim: usize) -> Result<Values<'a>, Failure> {
    let components = n.checked_mul(dim).filter(|&c| c <= isize::MAX as usize / 4);
    let components = components.ok_or_else(|| Failure::invalid("im_search: n_queries x dim is too large"))?;
    if dtype == IM_FLOAT32 && !queries.cast::<f32>().is_aligned() {
        return Err(Failure::invalid("im_search: float32 queries must be aligned to 4 bytes"));
    }
    // SAFETY: valid for that many components by the caller's contract.
    unsafe {
        match dtype {
            IM_FLOAT32 => Ok(Values::Float32(slice::from_raw_parts(queries.cast(), components))),
            IM_UINT8 => Ok(Values::Uint8(slice::from_raw_parts(queries.cast(), components))),
            IM_INT8 => Ok(Values::Int8(slice::from_raw_parts(queries.cast(), components))),
            _ => Err(Failure::invalid(format!(
                "im_search: dtype: expected IM_FLOAT32, IM_UINT8 or IM_INT8, got {dtype}"
            ))),
        }
    }
}

fn core_params(params: &ImSearchParams) -> Result<SearchParams, Failure> {
    let policy = match params.policy {
        IM_POLICY_BEAM => Policy::Beam,
        IM_POLICY_PAGE => Policy::Page,
        other => return Err(Failure::invalid(format!("policy: expected 0 (beam) or 1 (page), got {other}"))),
    };
    let entry = match params.entry {
        IM_ENTRY_MEDOID => Entry::Medoid,
        IM_ENTRY_CENTROIDS => Entry::Centroids,
        other => return Err(Failure::invalid(format!("entry: expected 0 (medoid) or 1 (centroids), got {other}"))),
    };
    Ok(SearchParams {
        k: params.k as usize,
        list_size: params.search_list_size as usize,
        beam_width: params.beam_width as usize,
        policy,
        entry,
        threads: params.threads as usize,
        inflight: params.inflight as usize,
        deterministic: true,
        allow: None,
    })
}

/// Integer user ids of the results; vector ids where the index has no integer ids.
fn result_ids(index: &ImIndex, output: &SearchOutput) -> Result<Vec<i64>, Failure> {
    let ids = &index.inner.ids;
    if !matches!(ids.id_type, IdType::Int64 | IdType::Uint64) {
        return Ok(output.vector_ids.clone());
    }
    let present: Vec<u32> = output.slots.iter().filter_map(|&s| u32::try_from(s).ok()).collect();
    let mut found = ids.user_ids(&present)?.into_iter();
    let mut next = || match found.next() {
        Some(UserId::Int64(id)) => id,
        Some(UserId::Uint64(id)) => id as i64,
        _ => -1,
    };
    Ok(output.slots.iter().map(|&slot| if slot < 0 { -1 } else { next() }).collect())
}
