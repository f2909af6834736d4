//! Searching for everything within a radius.

use std::ffi::c_void;

use crate::counters::ImCounters;
use crate::error::guard;
use crate::index::ImIndex;
use crate::opened::all;
use crate::params::{Given, ImSearchParams};
use crate::pointers::{Room, borrow, release};
use crate::search::{core_queries, result_ids};
use crate::texts::{ImTexts, Texts};

/// Answers to a range search; those of query q are at `starts[q]..starts[q + 1]` of `ids` and `scores`, nearest first.
#[repr(C)]
pub struct ImRangeResult {
    /// sizeof(ImRangeResult) of the library.
    pub struct_bytes: u32,
    /// sizeof(ImCounters) of the library: entries of `counters` are that far apart.
    pub counters_bytes: u32,
    /// Number of queries.
    pub n_queries: u64,
    /// n_queries + 1 positions; the last one is the number of answers.
    pub starts: *const u64,
    /// As from im_search.
    pub ids: *const i64,
    /// As from im_search.
    pub scores: *const f32,
    /// One entry a query.
    pub counters: *const ImCounters,
    /// User ids that are text or bytes, released with the result; null for other ids.
    pub texts: *const ImTexts,
}

/// The result that a caller sees and, behind it, what its pointers point to.
#[repr(C)]
struct Owner {
    seen: ImRangeResult,
    starts: Vec<u64>,
    ids: Vec<i64>,
    scores: Vec<f32>,
    counters: Vec<ImCounters>,
    texts: Option<Box<Texts>>,
}

/// Graphs: finds for each query the vectors with a score at least as good as `radius`: at most this squared distance
/// (l2), at least this inner product or cosine. Queries and parameters are those of im_search; params->k is ignored.
/// The search begins with params->search_list_size candidates and keeps more while many are within the radius. Stores
/// the answers in `*out`, null on failure. Returns 0 or an error code.
///
/// Threads: any, at any time, as im_search. Ownership: release `*out` with im_range_free.
///
/// # Safety
/// `index` is null or open, `params` is null or as large as its struct_bytes says, `queries` has n_queries x dim
/// components, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_range_search(
    index: *const ImIndex,
    queries: *const c_void,
    dtype: u32,
    n_queries: usize,
    dim: usize,
    radius: f32,
    params: *const ImSearchParams,
    out: *mut *mut ImRangeResult,
) -> i32 {
    guard(|| {
        let room = Room::new("im_range_search: out", out);
        if let Ok(room) = room {
            // SAFETY: writable by the caller's contract.
            unsafe { room.write(std::ptr::null_mut()) };
        }
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_range_search: index", index) }?;
        index.tally.search(|| {
            let room = room?;
            // SAFETY: as this function's.
            let given = unsafe { Given::new(params) }?;
            // SAFETY: as this function's.
            let queries = unsafe { core_queries(queries, dtype, n_queries, dim) }?;
            let graph = index.inner.graph("im_range_search")?;
            let output =
                graph.range_search_unless(&queries, radius, &given.graph(graph)?, &mut || given.is_cancelled())?;
            let counters = all(&output.counters);
            let owner = Owner::new(
                output.starts.iter().map(|&start| start as u64).collect(),
                result_ids(&output.user_ids, output.vector_ids),
                output.scores,
                counters.clone(),
                Texts::of(output.user_ids),
            );
            // SAFETY: writable by the caller's contract.
            unsafe { room.write(Box::into_raw(owner).cast()) };
            Ok((0, counters))
        })
    })
}

/// Releases the answers of a range search; null is ignored.
///
/// Threads: any, but no other call may use the result at that time or later. Ownership: `result` and its arrays are
/// gone.
///
/// # Safety
/// `result` is null or comes from im_range_search and was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_range_free(result: *mut ImRangeResult) {
    // SAFETY: null, or the first field of an Owner that im_range_search made, released once.
    unsafe { release(result.cast::<Owner>()) }
}

impl Owner {
    fn new(
        starts: Vec<u64>,
        ids: Vec<i64>,
        scores: Vec<f32>,
        counters: Vec<ImCounters>,
        texts: Option<Box<Texts>>,
    ) -> Box<Self> {
        let seen = ImRangeResult {
            struct_bytes: size_of::<ImRangeResult>() as u32,
            counters_bytes: size_of::<ImCounters>() as u32,
            n_queries: counters.len() as u64,
            starts: starts.as_ptr(),
            ids: ids.as_ptr(),
            scores: scores.as_ptr(),
            counters: counters.as_ptr(),
            texts: texts.as_ref().map_or(std::ptr::null(), |texts| texts.seen()),
        };
        Box::new(Owner { seen, starts, ids, scores, counters, texts })
    }
}
