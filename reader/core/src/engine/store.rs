//! Places that hold the files of an index as objects, read by ranges of bytes over a network.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Objects that are read by ranges, such as those of a bucket. Several threads call it at once.
///
/// An object never changes: who replaces an index gives its objects other names.
pub trait Store: Send + Sync {
    /// `bytes` bytes of object `name` from `offset` on. It may take as long as it likes: who calls it has a time-out, and
    /// asks again.
    ///
    /// # Errors
    /// What the place refused. Fewer bytes are an error, too.
    fn read(&self, name: &str, offset: u64, bytes: usize) -> Result<Vec<u8>, Refusal>;

    /// Where object `name` is, for messages.
    fn place_of(&self, name: &str) -> String;

    /// Whether another index has taken the place of this one, so that objects of this one may be gone. It is asked after a
    /// failure alone.
    fn is_replaced(&self) -> bool;
}

/// Why a range could not be read.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The object, what happened, and what to do.
    pub message: String,
    /// Whether the same request may succeed later.
    pub passes: bool,
}

/// Limits of the requests to a store, and of what is kept of its answers.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long a request may take before it is made again; the answer of either counts.
    pub timeout: Duration,
    /// Times that a request is made.
    pub tries: u32,
    /// Pause before a refused request is made again; it doubles each time.
    pub pause: Duration,
    /// Requests at a time, of all searches.
    pub parallel: usize,
    /// Bytes of blocks kept in memory, the ones read longest ago going first.
    pub cache_bytes: usize,
    /// Bytes between two blocks that are read along rather than making two requests.
    pub gap_bytes: u64,
    /// Longest request that several blocks share.
    pub request_bytes: u64,
}

impl Default for Limits {
    /// 10 s, 5 times, from 0.1 s on; 128 at a time; 256 MiB; gaps of 64 KiB, requests of 4 MiB.
    fn default() -> Self {
        Limits {
            timeout: Duration::from_secs(10),
            tries: 5,
            pause: Duration::from_millis(100),
            parallel: 128,
            cache_bytes: 256 << 20,
            gap_bytes: 64 << 10,
            request_bytes: 4 << 20,
        }
    }
}

/// What all searches of an open index asked of its store so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests, repeated ones included.
    pub requests: u64,
    /// Bytes of the answers.
    pub bytes: u64,
    /// Requests made again after a refusal.
    pub retries: u64,
    /// Requests made again after a time-out.
    pub timeouts: u64,
    /// Blocks that were found in memory.
    pub cached: u64,
}

/// Counters that threads add to.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    pub retries: AtomicU64,
    pub timeouts: AtomicU64,
    pub cached: AtomicU64,
}

impl Counted {
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    pub fn now(&self) -> Traffic {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            requests: of(&self.requests),
            bytes: of(&self.bytes),
            retries: of(&self.retries),
            timeouts: of(&self.timeouts),
            cached: of(&self.cached),
        }
    }
}
