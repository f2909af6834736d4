//! Searching for the k nearest.

use std::ffi::c_void;

use indexmill_core::ids::UserIds;
use indexmill_core::search::{Queries, Values};

use crate::counters::ImCounters;
use crate::error::{Failure, guard};
use crate::index::ImIndex;
use crate::info::{IM_FLOAT32, IM_INT8, IM_UINT8};
use crate::params::{Given, ImSearchParams};
use crate::pointers::{Room, array, borrow};
use crate::structures::Structures;

/// Finds the k nearest vectors of each query, nearest first.
///
/// `queries` holds n_queries x dim components of type `dtype` (IM_FLOAT32, IM_UINT8 or IM_INT8, the index's
/// query_dtype), row after row. `out_ids` gets n_queries x k user ids: int64, uint64 as their bit pattern, or vector
/// ids where the index has none or its ids are text or bytes (see im_search_texts); -1 where fewer than k vectors
/// were reachable: such an answer has NaN in `out_scores`, and no other has. `out_scores` gets n_queries x k scores
/// in the index's metric. `out_counters` gets n_queries entries, or is null; struct_bytes of its first entry is set.
/// Returns 0, or an error code and stores nothing.
///
/// Threads: any, at any time. While fewer threads search the index than there are processors, the calling thread
/// answers its queries itself, with others of the index if params->threads is above 1. Otherwise threads of the index
/// answer the queries of all calls together. The index starts them when they are needed, at most as many as there are
/// processors, or as the largest params->threads; they live until im_close. Ownership: all arrays are the caller's.
///
/// # Safety
/// `index` is null or open, `params` is null or as large as its struct_bytes says, the arrays have the sizes above.
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
            let given = unsafe { Given::new(params) }?;
            // SAFETY: as this function's.
            let queries = unsafe { core_queries(queries, dtype, n_queries, dim) }?;
            let ids_room = Room::for_array("im_search: out_ids", out_ids, n_queries)?;
            // SAFETY: as this function's.
            let rooms = unsafe { Rooms::new("im_search", out_scores, out_counters, n_queries) }?;
            let output = index.inner.search(&queries, &given)?;
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
    counters: Option<Structures<ImCounters>>,
}

impl Rooms {
    /// Checks the pointers that `function` was given; that to counters may be null.
    ///
    /// # Safety
    /// There is room for `n_queries` counters, and the first has its size.
    pub unsafe fn new(
        function: &str,
        scores: *mut f32,
        counters: *mut ImCounters,
        n_queries: usize,
    ) -> Result<Self, Failure> {
        let name = format!("{function}: out_counters");
        // SAFETY: by the contract.
        let of_counters = || unsafe { Structures::new(&name, counters) };
        Ok(Rooms {
            scores: Room::for_array(&format!("{function}: out_scores"), scores, n_queries)?,
            counters: (n_queries > 0 && !counters.is_null()).then(of_counters).transpose()?,
        })
    }

    /// Stores scores and counters.
    ///
    /// # Safety
    /// The pointers are valid for that many writes.
    pub unsafe fn write(self, scores: &[f32], counters: &[ImCounters]) {
        // SAFETY: by the contract.
        unsafe {
            self.scores.write_all(scores);
            if let Some(room) = self.counters {
                room.write(counters.iter().copied());
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
