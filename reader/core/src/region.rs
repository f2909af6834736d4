//! Large memory that begins at a page: rows and blocks in it lie on as few cache lines as in their file.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::{Deref, DerefMut};
use std::path::Path;

use crate::error::Result;
use crate::memory::{ask_for_huge_pages, refused};
use crate::pagefile::PAGE_BYTES;

/// Zeroed bytes, in huge pages where they are many and the system has such.
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
