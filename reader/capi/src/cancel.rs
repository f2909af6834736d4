//! Ending searches early.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::guard;
use crate::pointers::{Room, borrow, release};

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

/// Makes a handle that ends searches, and stores it in `*out`, null on failure. Give it to any number of calls, as
/// ImSearchParams.cancel. Returns 0 or an error code.
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

/// Ends the calls that were given this handle, and those that are given it later: they return IM_ECANCELED within about
/// 50 milliseconds, also while they wait for a device, unless they have their answers before. Returns 0 or an error code.
///
/// Threads: any, at any time; also from a signal handler. Ownership: nothing changes hands.
///
/// # Safety
/// `cancel` is null or was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_cancel(cancel: *const ImCancel) -> i32 {
    guard(|| {
        // SAFETY: null or alive by the caller's contract.
        unsafe { borrow("im_cancel: cancel", cancel) }?.is_set.store(true, Ordering::Relaxed);
        Ok(0)
    })
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
