//! Large allocations, with sizes that come from files.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::{Deref, DerefMut};
use std::path::Path;

use crate::error::{Error, Result};

/// Bytes of a page, in files and in memory.
pub const PAGE_BYTES: usize = 4096;
/// Smaller allocations do not gain.
const HUGE_BYTES: usize = 4 << 20;

/// An empty vector with room for `capacity` values, or an error where memory does not allow it.
pub fn reserve<T>(path: &Path, capacity: usize) -> Result<Vec<T>> {
    let mut vec: Vec<T> = Vec::new();
    vec.try_reserve_exact(capacity).map_err(|_| refused(path, capacity.saturating_mul(size_of::<T>())))?;
    // SAFETY: memory that `vec` owns.
    unsafe { ask_for_huge_pages(vec.as_mut_ptr().cast(), vec.capacity() * size_of::<T>()) };
    Ok(vec)
}

/// The `n` values that an iterator gives, or an error where memory does not allow them.
pub fn collect<T>(path: &Path, n: usize, values: impl Iterator<Item = T>) -> Result<Vec<T>> {
    let mut vec = reserve(path, n)?;
    vec.extend(values);
    Ok(vec)
}

/// The error for memory that the system refuses.
fn refused(path: &Path, bytes: usize) -> Error {
    Error::Config(format!("{}: the system refused {bytes} bytes of memory; use a machine with more", path.display()))
}

/// Asks for huge pages: codes are read at random, and with 4 KiB pages each look-up would also miss the translation
/// cache.
///
/// # Safety
/// The caller owns `bytes` bytes from `start` on.
unsafe fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
    let skip = start.align_offset(PAGE_BYTES);
    if cfg!(target_os = "linux") && bytes >= HUGE_BYTES && skip < bytes {
        // SAFETY: whole pages of the caller's memory; the advice does not change their content, and a refusal
        // leaves them as they are.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(start.add(skip).cast(), (bytes - skip) / PAGE_BYTES * PAGE_BYTES, libc::MADV_HUGEPAGE)
        };
    }
}

/// Zeroed bytes that begin at a page, so that rows and blocks lie on as few cache lines as in their file. Large regions
/// are in huge pages where the system has them.
pub struct Region {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: the memory is owned, and shared references only read it.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// `bytes` bytes, for the file at `path`; an error where memory does not allow it.
    pub fn new(path: &Path, bytes: usize) -> Result<Self> {
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| refused(path, bytes))?;
        if bytes == 0 {
            return Ok(Region { start: std::ptr::without_provenance_mut(PAGE_BYTES), layout });
        }
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(refused(path, bytes));
        }
        // SAFETY: fresh memory of that size. Advice comes before the first touch, which chooses the size of pages.
        unsafe {
            ask_for_huge_pages(start, bytes);
            start.write_bytes(0, bytes);
        }
        Ok(Region { start, layout })
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: owned and initialised.
        unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: owned and initialised, and borrowed for writing by the caller alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.start, self.layout) };
        }
    }
}
