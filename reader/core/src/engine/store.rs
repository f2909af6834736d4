//! Places that hold the files of an index as objects, read by ranges of bytes over a network.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::aligned::Aligned;
use super::answer::{Answer, Mailbox, Refusal};

/// Objects that are read by ranges, such as those of a bucket. Several threads call it at once, and none of its methods
/// waits for anything that takes long: requests are made elsewhere.
///
/// An object never changes: who replaces an index gives its objects other names.
pub trait Store: Send + Sync {
    /// Has a range read. It may take as long as it likes: who asks has a time-out, and asks again.
    fn read(&self, range: Range, reply: Reply);

    /// Finds out whether another index has taken the place of this one, so that objects of this one may be gone, and
    /// sends the answer. It is asked after a failure alone. Without an answer, `reply` is dropped.
    fn is_replaced(&self, reply: Sender<bool>);

    /// Where object `name` is, for messages.
    fn place_of(&self, name: &str) -> String;
}

/// Bytes of an object.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Range {
    /// Of the object.
    pub name: Arc<str>,
    /// From its start.
    pub offset: u64,
    /// How many. Fewer are an error.
    pub bytes: usize,
}

/// Where the answer to a request goes. Dropped without one, the request was refused, and may be made again.
pub struct Reply {
    pub(super) number: u64,
    pub(super) range: Range,
    /// When the request began, while it is waited for.
    pub(super) began: Weak<OnceLock<Instant>>,
    pub(super) mailbox: Weak<Mailbox>,
    pub(super) counted: Arc<Counted>,
    pub(super) is_given: bool,
}

impl Reply {
    /// Call this when the request is made; false if nobody waits for its answer any more, so that it need not be.
    pub fn begin(&self) -> bool {
        let Some(began) = self.began.upgrade() else { return false };
        let _ = began.set(Instant::now());
        Counted::add(&self.counted.requests, 1);
        true
    }

    /// Gives the answer.
    pub fn give(mut self, answer: Result<&[u8], Refusal>) {
        self.post(answer.and_then(|got| {
            Counted::add(&self.counted.bytes, got.len() as u64);
            let Range { name, offset, bytes } = &self.range;
            let message = || format!("{name}: {} bytes at offset {offset}, expected {bytes}", got.len());
            if got.len() != *bytes {
                return Err(Refusal { message: message(), passes: true });
            }
            Ok(Aligned::from(got))
        }));
    }

    fn post(&mut self, answer: Answer) {
        self.is_given = true;
        if let Some(mailbox) = self.mailbox.upgrade() {
            mailbox.post(self.number, answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_given {
            let message = format!("{}: a request ended without an answer", self.range.name);
            self.post(Err(Refusal { message, passes: true }));
        }
    }
}

/// Limits of the requests to a store, and of what is kept of its answers. Later versions may add fields: begin with
/// [`Limits::default`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// How long a request may take before it is made again; the answer of either counts.
    pub timeout: Duration,
    /// Times that a request is made.
    pub tries: u32,
    /// Pause before a refused request is made again; it doubles each time.
    pub pause: Duration,
    /// Bytes of blocks kept in memory, the ones read longest ago going first.
    pub cache_bytes: usize,
    /// Bytes between two blocks that are read along rather than making two requests.
    pub gap_bytes: u64,
    /// Longest request that several blocks share.
    pub request_bytes: u64,
    /// A look for answers reads so many bytes from the disk, and the rest of a block.
    pub look_bytes: usize,
}

impl Limits {
    /// The longest time-out: times are added to the clock.
    pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

    /// Makes a request again after so long.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Limits { timeout, ..self }
    }

    /// Makes a request so many times at most.
    #[must_use]
    pub fn tries(self, tries: u32) -> Self {
        Limits { tries, ..self }
    }

    /// Pauses so long after the first refusal.
    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        Limits { pause, ..self }
    }

    /// Keeps so many bytes of blocks in memory.
    #[must_use]
    pub fn cache_bytes(self, cache_bytes: usize) -> Self {
        Limits { cache_bytes, ..self }
    }

    /// Reads so many bytes between two blocks along.
    #[must_use]
    pub fn gap_bytes(self, gap_bytes: u64) -> Self {
        Limits { gap_bytes, ..self }
    }

    /// Lets several blocks share a request of so many bytes at most.
    #[must_use]
    pub fn request_bytes(self, request_bytes: u64) -> Self {
        Limits { request_bytes, ..self }
    }

    /// Reads so many bytes from the disk at each look for answers.
    #[must_use]
    pub fn look_bytes(self, look_bytes: usize) -> Self {
        Limits { look_bytes, ..self }
    }
}

impl Default for Limits {
    /// 10 s, 5 times, from 0.1 s on; 256 MiB; gaps of 64 KiB, requests of 4 MiB, looks of 4 MiB.
    fn default() -> Self {
        Limits {
            timeout: Duration::from_secs(10),
            tries: 5,
            pause: Duration::from_millis(100),
            cache_bytes: 256 << 20,
            gap_bytes: 64 << 10,
            request_bytes: 4 << 20,
            look_bytes: 4 << 20,
        }
    }
}

/// What all searches of an open index asked of its store so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Blocks that were found on disk.
    pub disk: u64,
    /// Blocks that were damaged there, or could not be read, and so were asked of the store.
    pub damaged: u64,
}

/// Counters that threads add to.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    pub retries: AtomicU64,
    pub timeouts: AtomicU64,
    pub cached: AtomicU64,
    pub disk: AtomicU64,
    pub damaged: AtomicU64,
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
            disk: of(&self.disk),
            damaged: of(&self.damaged),
        }
    }
}
