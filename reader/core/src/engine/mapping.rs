//! A map of a whole file, read without ever touching its pages.
//!
//! Touching a mapped page after its file was truncated or its device failed kills the process with SIGBUS. So the
//! kernel touches the page: process_vm_readv on this process itself faults the page in as a load would, holds it,
//! copies from it, and answers EFAULT where the load would have been fatal. (MADV_POPULATE_READ before a load would
//! leave a gap between the two.) One case remains: a file that was cut inside a page reads as zeros to the end of that
//! page, which its checksum finds.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::error::{Error, Result};

/// A map of a file; see the module's documentation.
pub struct Mapping {
    start: *mut libc::c_void,
    bytes: usize,
    /// Asked for its size after a read failed.
    file: File,
}

// SAFETY: the map is never written to nor read directly; the kernel copies from it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `file`, which is not empty, telling the kernel to expect no sequence.
    pub fn new(file: &File, path: &Path) -> Result<Self> {
        let refused = |e| Error::Config(format!("engine mmap: {}: {e}; use another engine", path.display()));
        let file = file.try_clone().map_err(refused)?;
        let bytes =
            usize::try_from(file.metadata().map_err(refused)?.len()).map_err(|e| refused(io::Error::other(e)))?;
        // SAFETY: a new read-only map of a descriptor that is open.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(refused(io::Error::last_os_error()));
        }
        let mapping = Mapping { start, bytes, file };
        // SAFETY: the map made above; the advice changes no content.
        if unsafe { libc::madvise(start, bytes, libc::MADV_RANDOM) } != 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        // Some sandboxes forbid the call that reads do.
        let mut probe = 0u8;
        // SAFETY: one byte for one byte.
        unsafe { mapping.read_at(&mut probe, 1, 0) }.map_err(refused)?;
        Ok(mapping)
    }

    /// What a refused copy up to `end` means: the end of the file as it is now, or a failure of the device.
    fn why_refused(&self, end: u64) -> io::Result<usize> {
        if end > self.file.metadata()?.len() { Ok(0) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }

    /// One read of up to `bytes` bytes; returns how many came.
    ///
    /// # Safety
    /// The caller owns `bytes` bytes at `address` for the length of the call.
    #[cfg(target_os = "linux")]
    pub unsafe fn read_at(&self, address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize> {
        let Some(left) = usize::try_from(offset).ok().and_then(|at| self.bytes.checked_sub(at)).filter(|&n| n > 0)
        else {
            return Ok(0);
        };
        let bytes = bytes.min(left);
        let into = libc::iovec { iov_base: address.cast(), iov_len: bytes };
        let from = libc::iovec { iov_base: self.start.wrapping_byte_add(offset as usize), iov_len: bytes };
        // SAFETY: the caller owns `into`, and `from` lies in the map, whatever became of the file.
        let got = unsafe { libc::process_vm_readv(libc::getpid(), &into, 1, &from, 1, 0) };
        if got >= 0 {
            return Ok(got as usize);
        }
        match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::EFAULT) => self.why_refused(offset + bytes as u64),
            e => Err(e),
        }
    }

    /// # Safety
    /// None here, where nothing is read; elsewhere room for `bytes` bytes.
    #[cfg(not(target_os = "linux"))]
    pub unsafe fn read_at(&self, _address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize> {
        self.why_refused(offset + bytes as u64).and(Err(io::Error::other("this is not Linux")))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the map any more.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
