//! Large allocations, whose size comes from a file.

use std::path::Path;

use crate::error::{Error, Result};

/// An empty vector with room for `capacity` values, or an error where memory does not allow it.
pub fn reserve<T>(path: &Path, capacity: usize) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(capacity).map_err(|_| {
        let bytes = capacity.saturating_mul(size_of::<T>());
        Error::Config(format!("{}: {bytes} bytes of memory were refused; use a machine with more", path.display()))
    })?;
    #[cfg(target_os = "linux")]
    ask_for_huge_pages(&mut vec);
    Ok(vec)
}

/// Codes are read at random: with 4 KiB pages each look-up would miss the translation cache, too.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages<T>(vec: &mut Vec<T>) {
    const PAGE: usize = 4096;
    let bytes = vec.capacity() * size_of::<T>();
    let start = vec.as_mut_ptr().cast::<u8>();
    let skip = start.align_offset(PAGE);
    if bytes >= HUGE_BYTES && skip < bytes {
        // SAFETY: whole pages of memory that `vec` owns; the advice does not change their content, and a refusal
        // leaves them as they are.
        unsafe { libc::madvise(start.add(skip).cast(), (bytes - skip) / PAGE * PAGE, libc::MADV_HUGEPAGE) };
    }
}

/// Smaller allocations do not gain.
#[cfg(target_os = "linux")]
const HUGE_BYTES: usize = 4 << 20;
