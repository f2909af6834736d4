//! Ending searches early.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::guard;
use crate::pointers::{Room, release};

/// Ends the searches that it was given to, as ImSearchParams.cancel.
#[derive(Default)]
pub struct ImCancel {
    is_set: AtomicBool,
}

impl ImCancel {
    /// Whether its searches are to end.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}

/// Makes a handle that can end searches, and stores it in `*out`, null on failure. Give it to any number of searches,
/// as ImSearchParams.cancel. Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: release `*out` with im_cancel_free.
///
/// # Safety
/// `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_cancel_new(out: *mut *mut ImCancel) -> i32 {
    guard(|| {
        let room = Room::new("im_cancel_new: out", out)?;
        // SAFETY: writable by the caller's contract.
        unsafe { room.write(Box::into_raw(Box::default())) };
        Ok(0)
    })
}

/// Ends the searches that were given this handle: im_search, im_search_texts, im_range_search, im_cache_from_queries.
/// Unless they have their answers before, they return IM_ECANCELED within about a tenth of a second, or about a
/// second if the device does not answer. Searches that are given the handle later return IM_ECANCELED at once. Other
/// functions, such as im_open and im_verify, cannot be cancelled. Null is ignored.
///
/// Threads: any, at any time; also from a signal handler. Ownership: nothing changes hands.
///
/// # Safety
/// `cancel` is null or was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_cancel(cancel: *const ImCancel) {
    // SAFETY: null or alive by the caller's contract; a byte has no alignment.
    if let Some(cancel) = unsafe { cancel.as_ref() } {
        cancel.is_set.store(true, Ordering::Relaxed);
    }
}

/// Releases a handle; null is ignored.
///
/// Threads: any, but no other call may use the handle at that time or later. Ownership: `cancel` is gone.
///
/// # Safety
/// `cancel` is null or comes from im_cancel_new and was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_cancel_free(cancel: *mut ImCancel) {
    // SAFETY: null, or made by Box::into_raw in im_cancel_new, released once.
    unsafe { release(cancel) }
}
