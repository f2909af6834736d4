//! Page-aligned memory that the device writes into.

use std::mem::ManuallyDrop;

use crate::error::{Error, Result};
use crate::memory::Pages;

/// Equal buffers in one allocation, aligned for direct reads.
///
/// A forked child does not get them: while a read is in flight, a copy of its page would be made for one of the two, and
/// the bytes would arrive in the other's.
pub struct Buffers {
    pages: ManuallyDrop<Pages>,
    slots: usize,
    slot_bytes: usize,
    /// Process that has the memory.
    process: u32,
}

impl Buffers {
    /// Allocates `slots` zeroed buffers of `slot_bytes`.
    pub fn new(slots: usize, slot_bytes: usize) -> Result<Self> {
        let refused =
            || Error::Config(format!("{slots} read buffers of {slot_bytes} bytes: lower inflight or beam_width"));
        let bytes = slots.checked_mul(slot_bytes).filter(|&b| b > 0).ok_or_else(refused)?;
        let pages = Pages::new(bytes).map_err(|_| refused())?;
        #[cfg(target_os = "linux")]
        // SAFETY: whole pages that nothing else lies in. A refusal leaves them as they are.
        unsafe {
            libc::madvise(pages.start().cast(), pages.len(), libc::MADV_DONTFORK)
        };
        Ok(Buffers { pages: ManuallyDrop::new(pages), slots, slot_bytes, process: std::process::id() })
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
        libc::iovec { iov_base: self.pages.start().cast(), iov_len: self.pages.len() }
    }

    /// Address of a buffer, for a read into it.
    pub fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots);
        // SAFETY: within the allocation.
        unsafe { self.pages.start().add(slot * self.slot_bytes) }
    }

    /// Content of a buffer.
    ///
    /// # Safety
    /// No read into it is in flight while the slice lives, and the process is the one that allocated it.
    pub unsafe fn content(&self, slot: usize) -> &[u8] {
        // SAFETY: within the allocation, initialised, and not written to by the contract.
        unsafe { std::slice::from_raw_parts(self.address(slot), self.slot_bytes) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // In a child there may be other memory at the address.
        if self.process == std::process::id() {
            // SAFETY: dropped here alone.
            unsafe { ManuallyDrop::drop(&mut self.pages) };
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The flags of the map at `address`, two letters each.
    fn flags_at(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in maps.lines() {
            let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            if let Some((first, end)) = bounds
                && let (Ok(first), Ok(end)) = (usize::from_str_radix(first, 16), usize::from_str_radix(end, 16))
            {
                is_there = (first..end).contains(&address);
            }
            if is_there && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.to_owned();
            }
        }
        panic!("no map at {address:x}")
    }

    #[test]
    fn buffers_are_not_copied_into_a_forked_child() {
        let buffers = Buffers::new(3, 4096).unwrap();
        let flags = flags_at(buffers.address(2).addr());
        assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    }
}
