//! Large allocations, whose size comes from a file.

use std::path::Path;

use crate::error::{Error, Result};

/// An empty vector with room for `capacity` values, or an error where memory does not allow it.
pub fn reserve<T>(path: &Path, capacity: usize) -> Result<Vec<T>> {
    let mut vec: Vec<T> = Vec::new();
    vec.try_reserve_exact(capacity).map_err(|_| refused(path, capacity.saturating_mul(size_of::<T>())))?;
    // SAFETY: memory that `vec` owns.
    unsafe { ask_for_huge_pages(vec.as_mut_ptr().cast(), vec.capacity() * size_of::<T>()) };
    Ok(vec)
}

/// The error for memory that is not to be had.
pub fn refused(path: &Path, bytes: usize) -> Error {
    Error::Config(format!("{}: {bytes} bytes of memory were refused; use a machine with more", path.display()))
}

/// Codes are read at random: with 4 KiB pages each look-up would miss the translation cache, too.
///
/// # Safety
/// The caller owns `bytes` bytes from `start` on.
pub unsafe fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
    const PAGE: usize = 4096;
    let skip = start.align_offset(PAGE);
    if cfg!(target_os = "linux") && bytes >= HUGE_BYTES && skip < bytes {
        // SAFETY: whole pages of the caller's memory; the advice does not change their content, and a refusal
        // leaves them as they are.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(start.add(skip).cast(), (bytes - skip) / PAGE * PAGE, libc::MADV_HUGEPAGE)
        };
    }
}

/// Smaller allocations do not gain.
const HUGE_BYTES: usize = 4 << 20;
