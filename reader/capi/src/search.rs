//! Searching for the k nearest.

use std::ffi::c_void;

use indexmill_core::graph::Counters;
use indexmill_core::ids::UserIds;
use indexmill_core::search::{Queries, Values};

use crate::error::{Failure, guard};
use crate::index::ImIndex;
use crate::info::{IM_FLOAT32, IM_INT8, IM_UINT8};
use crate::params::{ImSearchParams, core_params};
use crate::pointers::{Room, array, borrow};

/// What one query cost.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ImCounters {
    /// Pages of vectors and their neighbours read from disk.
    pub pages_read: u64,
    /// Bytes of these pages.
    pub bytes_read: u64,
    /// Pages of ids.imx read, from the page cache or from disk, for the ids of the answers; 0 after im_hold_ids.
    pub id_pages_read: u64,
    /// Bytes of the nodes that were expanded.
    pub bytes_used: u64,
    /// Rounds of frontier selection; under IM_POLICY_PIPELINE the longest chain of reads that waited for one another.
    pub hops: u64,
    /// Exact distances.
    pub distances: u64,
    /// Distances by PQ codes.
    pub code_distances: u64,
    /// Vertices with a followed neighbour list.
    pub expansions: u64,
    /// Frontier vertices with a page already in memory.
    pub page_heap_hits: u64,
    /// Frontier vertices with a page in the cache of hot vertices.
    pub cache_hits: u64,
    /// From start to end, ids included.
    pub latency_us: f32,
    /// Part of it spent waiting for reads.
    pub io_wait_us: f32,
}

impl From<&Counters> for ImCounters {
    fn from(counters: &Counters) -> Self {
        // Named one by one, without "..", so that a counter that the core gains is not forgotten here.
        let &Counters {
            pages_read,
            bytes_read,
            id_pages_read,
            bytes_used,
            hops,
            distances,
            code_distances,
            expansions,
            page_heap_hits,
            cache_hits,
            latency_us,
            io_wait_us,
        } = counters;
        ImCounters {
            pages_read,
            bytes_read,
            id_pages_read,
            bytes_used,
            hops,
            distances,
            code_distances,
            expansions,
            page_heap_hits,
            cache_hits,
            latency_us,
            io_wait_us,
        }
    }
}

/// Finds the k nearest vectors of each query, nearest first.
///
/// `queries` holds n_queries x dim components of type `dtype` (IM_FLOAT32, IM_UINT8 or IM_INT8, the index's
/// query_dtype), row after row. `out_ids` gets n_queries x k user ids: int64, uint64 as their bit pattern, or vector
/// ids where the index has none or its ids are text or bytes (see im_search_texts); -1 where fewer than k vectors
/// were reachable, which the NaN in `out_scores` tells from an id. `out_scores` gets n_queries x k scores in the
/// index's metric. `out_counters` gets n_queries entries, or is null. Returns 0, or an error code and stores nothing.
///
/// Threads: any, at any time; a call runs in params->threads threads of its own, the calling one among them, and
/// returns when all of them have ended. Ownership: all arrays are the caller's.
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
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_search: index", index) }?;
        index.tally.search(|| {
            // SAFETY: as this function's.
            let params = unsafe { core_params(params, &index.inner) }?;
            // SAFETY: as this function's.
            let queries = unsafe { core_queries(queries, dtype, n_queries, dim) }?;
            let ids_room = Room::for_array("im_search: out_ids", out_ids, n_queries)?;
            let rooms = Rooms::new("im_search", out_scores, out_counters, n_queries)?;
            let output = index.inner.search(&queries, &params, &mut || false)?;
            let ids = result_ids(&output.user_ids, output.vector_ids);
            // SAFETY: room for n_queries x k and n_queries entries by the caller's contract.
            unsafe {
                ids_room.write_all(&ids);
                rooms.write(&output.scores, &output.counters);
            }
            Ok((0, output.counters))
        })
    })
}

/// Room for what every search for the k nearest returns.
pub struct Rooms {
    scores: Room<f32>,
    counters: Option<Room<ImCounters>>,
}

impl Rooms {
    /// Checks the pointers that `function` was given; that to counters may be null.
    pub fn new(function: &str, scores: *mut f32, counters: *mut ImCounters, n_queries: usize) -> Result<Self, Failure> {
        let of_counters = (!counters.is_null()).then(|| Room::new(&format!("{function}: out_counters"), counters));
        Ok(Rooms {
            scores: Room::for_array(&format!("{function}: out_scores"), scores, n_queries)?,
            counters: of_counters.transpose()?,
        })
    }

    /// Stores scores and counters.
    ///
    /// # Safety
    /// The pointers are valid for that many writes.
    pub unsafe fn write(self, scores: &[f32], counters: &[Counters]) {
        let counters: Vec<ImCounters> = counters.iter().map(ImCounters::from).collect();
        // SAFETY: by the contract.
        unsafe {
            self.scores.write_all(scores);
            if let Some(room) = self.counters {
                room.write_all(&counters);
            }
        }
    }
}

/// The queries as the core takes them.
///
/// # Safety
/// `queries` is null or holds `n` x `dim` components of type `dtype` for `'a`.
pub unsafe fn core_queries<'a>(
    queries: *const c_void,
    dtype: u32,
    n: usize,
    dim: usize,
) -> Result<Queries<'a>, Failure> {
    let too_many = || Failure::invalid(format!("queries: {n} x {dim} components are too many; check the sizes"));
    let components = n.checked_mul(dim).ok_or_else(too_many)?;
    // SAFETY: that many components by the contract.
    let values = unsafe {
        match dtype {
            IM_FLOAT32 => Values::Float32(array("queries", queries.cast(), components)?),
            IM_UINT8 => Values::Uint8(array("queries", queries.cast(), components)?),
            IM_INT8 => Values::Int8(array("queries", queries.cast(), components)?),
            _ => {
                let message = format!("dtype: expected IM_FLOAT32, IM_UINT8 or IM_INT8 (1, 3, 4), got {dtype}");
                return Err(Failure::invalid(format!("{message}; pass the index's query_dtype")));
            }
        }
    };
    Ok(Queries { values, n, dim })
}

/// Integer user ids of the results; vector ids where the index has no integer ids.
pub fn result_ids(user_ids: &UserIds, vector_ids: Vec<i64>) -> Vec<i64> {
    match user_ids {
        UserIds::Int64(ids) => ids.clone(),
        UserIds::Uint64(ids) => ids.iter().map(|&id| id as i64).collect(),
        _ => vector_ids,
    }
}
