//! One search that threads of a pool work for: which queries are left, what was found, and whether it has ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::task::{Query, Search};
use crate::error::{Error, Result};
use crate::interrupt::Stop;

/// How often a caller is asked whether to go on.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(50);

/// An error and the query it belongs to.
type Failure = (usize, Error);

/// What is done with the answers of a search that nobody waits for. It must not panic: threads that serve others call it.
pub(super) type Then<A> = Box<dyn FnOnce(Result<A>) + Send>;

/// A search and how far it is.
///
/// It borrows the search from its caller, without a lifetime: [`Call::search`] is asked between [`Call::take`] and the end
/// of that query alone, and the caller keeps the search until the call has ended. Everything else that threads ask of a
/// call is copied, so that they may look at one that has ended.
pub(crate) struct Call<Q: Query> {
    search: *const Search<'static, Q>,
    /// Tells calls of a process apart.
    pub number: u64,
    /// Process that has the threads.
    process: u32,
    n: usize,
    /// Threads that work for it at most.
    pub threads: usize,
    /// Queries that each of them interleaves.
    pub lanes: usize,
    /// Queries that a thread may interleave when it works for others as well.
    pub shared_lanes: usize,
    /// Buffers of a query, and bytes of each.
    pub width: usize,
    pub slot_bytes: usize,
    /// See [`Search::keeps_state`].
    pub keeps_state: bool,
    cancelled: AtomicBool,
    state: Mutex<State<Q::Answers>>,
    ended: Condvar,
}

// SAFETY: `search` is shared by threads only while its owner keeps it, and a Search is Sync: its parts are.
unsafe impl<Q: Query> Send for Call<Q> {}
// SAFETY: as above.
unsafe impl<Q: Query> Sync for Call<Q> {}

pub(crate) struct State<A> {
    /// The next query that no thread has taken.
    next: usize,
    /// Queries that were taken and have not ended.
    in_flight: usize,
    /// Of the first query that failed.
    failure: Option<Failure>,
    pub answers: A,
    then: Option<Then<A>>,
    has_ended: bool,
}

/// What a call has for a thread that asks for a query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// This query; whether other threads may ask for the next one.
    Query(usize, bool),
    /// Nothing until one of its queries has ended.
    Later,
    /// Nothing any more.
    Over,
}

impl<Q: Query> Call<Q> {
    /// A call for a search of one query or more. `then`, if any, gets the answers from the thread that ends it.
    ///
    /// # Safety
    /// `search` stays where it is until the call has ended: [`Call::wait`] has returned, or `then` was called.
    pub unsafe fn new(search: *const Search<'_, Q>, then: Option<Then<Q::Answers>>) -> Arc<Self> {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        // SAFETY: as the caller says.
        let asked = unsafe { &*search };
        let answers = Q::Answers::default();
        let state = State { next: 0, in_flight: 0, failure: None, answers, then, has_ended: false };
        Arc::new(Call {
            number: CALLS.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            n: asked.n,
            threads: asked.threads(),
            lanes: asked.lanes(),
            shared_lanes: asked.shared_lanes(),
            width: asked.width,
            slot_bytes: asked.slot_bytes,
            keeps_state: asked.keeps_state,
            search: search.cast(),
            cancelled: AtomicBool::new(false),
            state: Mutex::new(state),
            ended: Condvar::new(),
        })
    }

    /// The search.
    ///
    /// # Safety
    /// A query of the call that was taken has not ended, and does not while the reference is in use.
    pub unsafe fn search(&self) -> &Search<'_, Q> {
        // SAFETY: the owner keeps it until all queries have ended. The lifetime gets shorter.
        unsafe { &*self.search.cast::<Search<'_, Q>>() }
    }

    /// What was found so far, for a query that ends: hand it to [`Call::end`].
    pub fn lock(&self) -> MutexGuard<'_, State<Q::Answers>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A query that no thread has taken. After a failure there are none, so that all queries before the one that failed
    /// are answered: the first failure is the same whatever the threads do.
    pub fn take(&self) -> Turn {
        let mut state = self.lock();
        // The outcome of a call that has ended took its failure, and its search is gone.
        if state.has_ended || state.next == self.n || state.failure.is_some() || self.is_cancelled() {
            return Turn::Over;
        }
        if state.in_flight == self.threads * self.lanes {
            return Turn::Later;
        }
        state.in_flight += 1;
        state.next += 1;
        let is_full = self.keeps_state && state.in_flight == self.threads * self.lanes;
        Turn::Query(state.next - 1, state.next < self.n && !is_full)
    }

    /// Whether the caller wants no answers any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Takes no more queries. Those in flight end soon.
    pub fn cancel(&self) {
        let state = self.lock();
        self.cancelled.store(true, Ordering::Relaxed);
        self.settle(state);
    }

    /// Ends a query.
    pub fn end(&self, mut state: MutexGuard<'_, State<Q::Answers>>) {
        state.in_flight -= 1;
        self.settle(state);
    }

    /// Ends a query with an error. Of several errors that of the first query stays.
    pub fn fail(&self, query: usize, error: Error) {
        let mut state = self.lock();
        if state.failure.as_ref().is_none_or(|first| query < first.0) {
            state.failure = Some((query, error));
        }
        self.end(state);
    }

    /// Takes no more queries because no thread can work for it.
    pub fn refuse(&self, error: Error) {
        let mut state = self.lock();
        state.failure.get_or_insert((0, error));
        self.settle(state);
    }

    /// Ends the call after its last query.
    fn settle(&self, mut state: MutexGuard<'_, State<Q::Answers>>) {
        let is_over = state.next == self.n || state.failure.is_some() || self.is_cancelled();
        if !is_over || state.in_flight > 0 || state.has_ended {
            return;
        }
        state.has_ended = true;
        let later = state.then.take().map(|then| (then, self.outcome(&mut state)));
        drop(state);
        match later {
            Some((then, outcome)) => then(outcome),
            None => self.ended.notify_all(),
        }
    }

    fn outcome(&self, state: &mut State<Q::Answers>) -> Result<Q::Answers> {
        let answers = std::mem::take(&mut state.answers);
        match state.failure.take() {
            Some((_, error)) => Err(error),
            None if self.is_cancelled() => Err(Error::Interrupted),
            None => Ok(answers),
        }
    }

    /// Waits for the end. `interrupted` is asked now and then; once it says true the call is cancelled.
    pub fn wait(&self, interrupted: Stop<'_>) -> Result<Q::Answers> {
        let mut asked = Instant::now();
        if self.is_orphan() {
            return Err(Error::Interrupted);
        }
        let mut state = self.lock();
        while !state.has_ended {
            let left = ASK_EVERY.saturating_sub(asked.elapsed());
            if !left.is_zero() {
                let waited = self.ended.wait_timeout_while(state, left, |state| !state.has_ended);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(state);
            // The caller may have forked a child meanwhile, which has none of the threads: its copy of the lock may be
            // held for ever.
            if interrupted() || self.is_orphan() {
                return Err(Error::Interrupted);
            }
            asked = Instant::now();
            state = self.lock();
        }
        self.outcome(&mut state)
    }

    /// Whether this is a forked child, where no thread works for the call.
    pub fn is_orphan(&self) -> bool {
        std::process::id() != self.process
    }
}

/// What a caller on the stack holds while threads may use its search: when it is dropped, they do so no more.
pub(super) struct Presence<Q: Query>(pub Arc<Call<Q>>);

impl<Q: Query> Drop for Presence<Q> {
    fn drop(&mut self) {
        if self.0.is_orphan() {
            return;
        }
        self.0.cancel();
        let mut state = self.0.lock();
        while !state.has_ended {
            state = self.0.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A search that runs while its caller does other things.
pub trait Cancel: Send + Sync {
    /// Makes it end soon.
    fn cancel(&self);
}

impl<Q: Query> Cancel for Call<Q> {
    fn cancel(&self) {
        if !self.is_orphan() {
            Call::cancel(self);
        }
    }
}
