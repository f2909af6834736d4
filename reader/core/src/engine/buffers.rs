//! Page-aligned memory that the device writes into.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use crate::error::{Error, Result};
use crate::pagefile::PAGE_BYTES;

/// Equal buffers in one allocation, aligned for direct reads.
pub struct Buffers {
    start: *mut u8,
    layout: Layout,
    slots: usize,
    slot_bytes: usize,
}

// SAFETY: the memory is owned; access is coordinated by the engine that holds it.
unsafe impl Send for Buffers {}
// SAFETY: as above; shared access only reads buffers that no read is in flight for.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// Allocates `slots` zeroed buffers of `slot_bytes`.
    pub fn new(slots: usize, slot_bytes: usize) -> Result<Self> {
        let refused =
            || Error::Config(format!("{slots} read buffers of {slot_bytes} bytes: lower inflight or beam_width"));
        let bytes = slots.checked_mul(slot_bytes).filter(|&b| b > 0).ok_or_else(refused)?;
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| refused())?;
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(refused());
        }
        Ok(Buffers { start, layout, slots, slot_bytes })
    }

    /// Number of buffers.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of one.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Panics if a buffer has no room for `bytes` bytes.
    pub fn check_fits(&self, bytes: usize) {
        assert!(bytes <= self.slot_bytes, "{bytes} bytes into a buffer of {}", self.slot_bytes);
    }

    /// All of them.
    #[cfg(target_os = "linux")]
    pub fn as_iovec(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.cast(), iov_len: self.layout.size() }
    }

    /// Address of a buffer, for a read into it.
    pub fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots);
        // SAFETY: within the allocation.
        unsafe { self.start.add(slot * self.slot_bytes) }
    }

    /// Content of a buffer.
    ///
    /// # Safety
    /// No read into it is in flight while the slice lives.
    pub unsafe fn content(&self, slot: usize) -> &[u8] {
        // SAFETY: within the allocation, initialised, and not written to by the contract.
        unsafe { std::slice::from_raw_parts(self.address(slot), self.slot_bytes) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}
