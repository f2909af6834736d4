//! Which vectors a search may return.

use std::sync::Arc;

use indexmill_core::graph::Filter;

use crate::error::guard;
use crate::index::ImIndex;
use crate::pointers::{Room, array, borrow, release};

/// A set of vectors, for ImSearchParams.allow.
pub struct ImFilter {
    pub(crate) inner: Arc<Filter>,
}

/// Graphs: makes a filter from a bitmap over vector ids (positions in the input), and stores it in `*out`, null on
/// failure. Vector `id` is bit `id % 8` of byte `id / 8`, where bit 0 has the value 1; `n_bytes` is n_vectors / 8,
/// rounded up. Deleted vectors stay out. The filter serves all handles of the same generation of the index, even after
/// this one was closed. Making it reads 4 bytes a vector, so make it once and use it often; it takes n_vectors / 8
/// bytes. Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: release `*out` with im_filter_free; `bitmap` is copied.
///
/// # Safety
/// `index` is null or open, `bitmap` is null or has `n_bytes` bytes, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_filter_new(
    index: *const ImIndex,
    bitmap: *const u8,
    n_bytes: usize,
    out: *mut *mut ImFilter,
) -> i32 {
    guard(|| {
        let room = Room::new("im_filter_new: out", out)?;
        // SAFETY: writable by the caller's contract.
        unsafe { room.write(std::ptr::null_mut()) };
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_filter_new: index", index) }?;
        // SAFETY: null or that long by the caller's contract.
        let bitmap = unsafe { array("im_filter_new: bitmap", bitmap, n_bytes) }?;
        let filter = Box::new(ImFilter { inner: Arc::new(index.inner.graph("im_filter_new")?.filter(bitmap)?) });
        // SAFETY: writable by the caller's contract.
        unsafe { room.write(Box::into_raw(filter)) };
        Ok(0)
    })
}

/// Returns the number of vectors that may be returned, or a negative error code.
///
/// Threads: any, at any time. Ownership: nothing changes hands.
///
/// # Safety
/// `filter` is null or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_filter_count(filter: *const ImFilter) -> i64 {
    // SAFETY: null or alive by the caller's contract.
    guard(|| Ok(unsafe { borrow("im_filter_count: filter", filter) }?.inner.n_allowed().into()))
}

/// Releases a filter; null is ignored.
///
/// Threads: any, but no other call may use the filter at that time or later. Ownership: `filter` is gone.
///
/// # Safety
/// `filter` is null or comes from im_filter_new and was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_filter_free(filter: *mut ImFilter) {
    // SAFETY: null, or made by Box::into_raw in im_filter_new, released once.
    unsafe { release(filter) }
}
