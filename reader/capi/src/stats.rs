//! `im_stats`: counters of all searches of an index since it was opened, and the memory that it holds.

use std::sync::atomic::{AtomicU64, Ordering};

use indexmill_core::ids::Inverse;

use crate::counters::ImCounters;
use crate::error::{Failure, guard};
use crate::index::ImIndex;
use crate::pointers::borrow;
use crate::structures::{Grows, Structures};

/// Counters of all searches of an index since it was opened, and the memory that it holds now.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ImStats {
    /// sizeof(ImStats), stored by the caller.
    pub struct_bytes: u32,
    /// 0.
    pub reserved: u32,
    /// Queries answered by im_search, im_search_texts and im_range_search.
    pub queries: u64,
    /// Graphs: pages that these read from disk.
    pub pages_read: u64,
    /// Bytes that these read from disk.
    pub bytes_read: u64,
    /// Pages of ids.imx that these read, from the page cache or from disk.
    pub id_pages_read: u64,
    /// Graphs: frontier vertices of these whose page was taken from the cache.
    pub cache_hits: u64,
    /// Calls of these that failed; their queries and reads count nowhere.
    pub errors: u64,
    /// What im_open read into memory, ids after im_hold_ids, and the table of im_vector_user_id once it was made. What
    /// searches use besides, such as read buffers, is not counted.
    pub memory_bytes: u64,
    /// Pages kept by im_cache or im_cache_from_queries, and their directory.
    pub cache_bytes: u64,
}

// SAFETY: it is repr(C), begins with its size and consists of numbers.
unsafe impl Grows for ImStats {
    const LEAST: usize = 72;
}

/// The sums in ImStats. Each is exact; they are not read at one instant.
#[derive(Default)]
pub struct Tally {
    queries: AtomicU64,
    pages_read: AtomicU64,
    bytes_read: AtomicU64,
    id_pages_read: AtomicU64,
    cache_hits: AtomicU64,
    errors: AtomicU64,
}

impl Tally {
    /// Runs a search that returns a value and what its queries cost, and adds that up.
    pub fn search<T>(&self, call: impl FnOnce() -> Result<(T, Vec<ImCounters>), Failure>) -> Result<T, Failure> {
        let add = |sum: &AtomicU64, more: u64| sum.fetch_add(more, Ordering::Relaxed);
        let (value, counters) = call().inspect_err(|_| {
            add(&self.errors, 1);
        })?;
        add(&self.queries, counters.len() as u64);
        add(&self.pages_read, counters.iter().map(|c| c.pages_read).sum());
        add(&self.bytes_read, counters.iter().map(|c| c.bytes_read).sum());
        add(&self.id_pages_read, counters.iter().map(|c| c.id_pages_read).sum());
        add(&self.cache_hits, counters.iter().map(|c| c.cache_hits).sum());
        Ok(value)
    }
}

/// Fills `*out`, whose struct_bytes is set. A search that ends at the same time may be counted in some of the sums
/// and not yet in others. Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: `*out` is the caller's.
///
/// # Safety
/// `index` is null or open, `out` is null or as large as its struct_bytes says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_stats(index: *const ImIndex, out: *mut ImStats) -> i32 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_stats: index", index) }?;
        // SAFETY: null or readable by the caller's contract.
        let room = unsafe { Structures::new("im_stats: out", out) }?;
        let slots_bytes = index.slots.get().map_or(0, Inverse::memory_bytes);
        let (tally, load) = (&index.tally, |sum: &AtomicU64| sum.load(Ordering::Relaxed));
        let stats = ImStats {
            queries: load(&tally.queries),
            pages_read: load(&tally.pages_read),
            bytes_read: load(&tally.bytes_read),
            id_pages_read: load(&tally.id_pages_read),
            cache_hits: load(&tally.cache_hits),
            errors: load(&tally.errors),
            memory_bytes: index.inner.memory_bytes() + slots_bytes,
            cache_bytes: index.inner.cache_bytes(),
            ..ImStats::default()
        };
        // SAFETY: writable by the caller's contract.
        unsafe { room.write([stats]) };
        Ok(0)
    })
}
