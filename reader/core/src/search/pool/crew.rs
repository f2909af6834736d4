//! The threads that serve an index in one process, and the calls that wait for them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism, current};

use super::shelf::Shelf;
use crate::error::{Error, Result};
use crate::interrupt::Stop;
use crate::search::call::{Call, Turn};
use crate::search::desk::{Desk, Task, Turns};
use crate::search::task::{Query, Search};

thread_local! {
    /// Whether this is a search thread of an index.
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// See [`super`].
pub(crate) struct Crew<Q: Query> {
    /// Processors of the machine.
    pub(super) cores: usize,
    /// Threads at work, callers among them.
    pub(super) busy: AtomicUsize,
    /// Calls in the queue, to be looked at without the lock.
    pub(super) queued: AtomicUsize,
    /// Without a thread.
    pub(super) desks: Shelf<Q>,
    state: Mutex<State<Q>>,
    /// A thread is to wake up.
    work: Condvar,
}

pub(super) struct State<Q: Query> {
    /// Calls that may have queries which no thread has taken, in the order of their turns.
    pub(super) calls: VecDeque<Arc<Call<Q>>>,
    threads: Vec<JoinHandle<()>>,
    /// Threads without work.
    pub(super) parked: usize,
    /// How many of those that sleep are to wake up.
    pub(super) wakes: usize,
    /// How many were started and have not looked for work yet.
    pub(super) starting: usize,
    is_closed: bool,
}

/// Whether a desk takes a query of a call.
enum Fit {
    /// It does.
    Fits,
    /// It has as many as the call allows.
    HasEnough,
    /// Its buffers are too small: it takes none, and so is soon exchanged.
    TooSmall,
}

impl<Q: Query> Crew<Q> {
    pub(super) fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let (calls, threads) = (VecDeque::new(), Vec::new());
        let state = State { calls, threads, parked: 0, wakes: 0, starting: 0, is_closed: false };
        let (busy, queued, work) = (AtomicUsize::new(0), AtomicUsize::new(0), Condvar::new());
        Crew { cores, busy, queued, desks: Shelf::default(), state: Mutex::new(state), work }
    }

    /// A panicking thread cannot leave the state half changed, so a poisoned lock can be used.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a call; whether its caller is to work for it. A search thread is, whose `done` searches: all others may be
    /// as busy, and it would wait for itself.
    pub(super) fn enter(self: &Arc<Self>, call: &Arc<Call<Q>>) -> Option<Busy<'_>> {
        let mut state = self.lock();
        let is_calm = state.calls.is_empty() && self.busy.load(Ordering::Relaxed) < self.cores;
        let works = is_calm || SERVES.get();
        let helpers = call.threads - usize::from(works);
        let is_helped = helpers == 0 || self.queue(&mut state, call, helpers).is_ok();
        (works || !is_helped).then(|| Busy::new(&self.busy))
    }

    /// Takes up a call that has no caller.
    pub(crate) fn leave(self: &Arc<Self>, call: &Arc<Call<Q>>) {
        let queued = self.queue(&mut self.lock(), call, call.threads);
        if let Err(error) = queued {
            call.refuse(Error::Config(format!("threads: the system starts none for the search: {error}; end others")));
        }
    }

    /// Puts a call into the queue and wakes threads for it, or starts some. Fewer are slower, not wrong; without any this
    /// is an error, and the call is not queued.
    fn queue(
        self: &Arc<Self>,
        state: &mut State<Q>,
        call: &Arc<Call<Q>>,
        helpers: usize,
    ) -> std::result::Result<(), std::io::Error> {
        let woken = helpers.min(state.parked);
        state.parked -= woken;
        state.wakes += woken;
        (0..woken).for_each(|_| self.work.notify_one());
        for _ in woken..helpers {
            if state.threads.len() >= self.cores.max(helpers) {
                break;
            }
            let crew = self.clone();
            match Builder::new().name("indexmill-search".to_owned()).spawn(move || crew.serve()) {
                Ok(thread) => {
                    state.threads.push(thread);
                    state.starting += 1;
                }
                Err(error) if state.threads.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        state.calls.push_back(call.clone());
        self.queued.store(state.calls.len(), Ordering::Release);
        Ok(())
    }

    /// Works for the calls in the queue until the index is closed.
    fn serve(&self) {
        SERVES.set(true);
        let mut state = self.lock();
        state.starting -= 1;
        while !state.is_closed {
            if let Some(task) = self.turn(&mut state, |_| Fit::Fits) {
                let busy = Busy::new(&self.busy);
                drop(state);
                self.attend(task);
                drop(busy);
                state = self.lock();
                continue;
            }
            state.parked += 1;
            while state.wakes == 0 && !state.is_closed {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.wakes = state.wakes.saturating_sub(1);
        }
    }

    /// A query of the first call that has one for a desk of this `fit`. That call's next turn comes after all others'.
    fn turn(&self, state: &mut State<Q>, fit: impl Fn(&Call<Q>) -> Fit) -> Option<Task<Q>> {
        let (mut i, mut task) = (0, None);
        while task.is_none()
            && let Some(call) = state.calls.get(i)
        {
            match fit(call) {
                Fit::TooSmall => break,
                Fit::HasEnough => i += 1,
                Fit::Fits => match call.take() {
                    Turn::Later => i += 1,
                    Turn::Over => drop(state.calls.remove(i)),
                    Turn::Query(query, has_more) => {
                        let call = call.clone();
                        state.calls.remove(i);
                        if has_more {
                            state.calls.push_back(call.clone());
                        }
                        task = Some((call, query));
                    }
                },
            }
        }
        self.queued.store(state.calls.len(), Ordering::Release);
        task
    }

    /// Works at a desk, from this query on, until no call has one for it.
    fn attend(&self, task: Task<Q>) {
        let (call, query) = (task.0.clone(), task.1);
        // SAFETY: the query was taken and has not ended.
        match self.desk(&call, unsafe { call.search() }, call.shared_lanes) {
            Ok(mut desk) => {
                drop(call);
                let worked = desk.run(&mut Shift { crew: self, first: Some(task) });
                // Its queries know of an error.
                if worked.is_ok() {
                    self.give_back(desk);
                }
            }
            Err(error) => call.fail(query, error),
        }
    }

    /// Works for a call on the thread of its caller.
    pub(super) fn answer(&self, call: &Arc<Call<Q>>, search: &Search<'_, Q>, interrupted: Stop<'_>, busy: Busy<'_>) {
        let mut desk = match self.desk(call, search, call.lanes) {
            Ok(desk) => desk,
            Err(error) => return call.refuse(error),
        };
        let worked = desk.run(&mut Own { call, interrupted, crew: self });
        if call.is_orphan() {
            return;
        }
        drop(busy);
        // After an error its other threads end amid their queries, while the desk waits for its reads.
        match worked {
            Ok(()) => self.give_back(desk),
            Err(Error::Interrupted) => call.cancel(),
            Err(error) => call.refuse(error),
        }
    }

    /// A desk for `lanes` queries: an idle one that has room, or a new one.
    fn desk(&self, call: &Call<Q>, search: &Search<'_, Q>, lanes: usize) -> Result<Desk<Q>> {
        let mut desk = self.desks.take(call, lanes).map_or_else(|| Desk::new(search, lanes), Ok)?;
        desk.divide(call, lanes);
        Ok(desk)
    }

    /// Keeps a desk for later calls, of which no more are at work than threads.
    fn give_back(&self, desk: Desk<Q>) {
        let most = self.cores + self.lock().threads.len();
        self.desks.put(desk, most);
    }

    /// Ends the threads, which have no calls: these keep the index open. A thread that closes the index itself ends later.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.work.notify_all();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != current().id()) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// A thread at work.
pub(crate) struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Busy(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The queries of one call, for its caller.
struct Own<'a, 'b, Q: Query> {
    call: &'a Arc<Call<Q>>,
    interrupted: Stop<'b>,
    crew: &'a Crew<Q>,
}

impl<Q: Query> Turns<Q> for Own<'_, '_, Q> {
    fn next(&mut self, _: &Desk<Q>) -> Option<Task<Q>> {
        match self.call.take() {
            Turn::Query(query, _) => Some((self.call.clone(), query)),
            Turn::Later | Turn::Over => None,
        }
    }

    fn must_stop(&mut self) -> bool {
        // The caller may have forked a child meanwhile, which has neither engines nor threads.
        (self.interrupted)() || self.call.is_orphan()
    }

    fn may_watch(&self) -> bool {
        self.call.lanes == 1 && self.crew.busy.load(Ordering::Relaxed) <= self.crew.cores
    }
}

/// The queries of all calls in the queue, for a thread of the pool.
struct Shift<'a, Q: Query> {
    crew: &'a Crew<Q>,
    first: Option<Task<Q>>,
}

impl<Q: Query> Turns<Q> for Shift<'_, Q> {
    fn next(&mut self, desk: &Desk<Q>) -> Option<Task<Q>> {
        let first = self.first.take();
        if first.is_some() || self.crew.queued.load(Ordering::Acquire) == 0 {
            return first;
        }
        let mut state = self.crew.lock();
        // What is in the queue is for those that come.
        if state.wakes + state.starting > 0 && !desk.is_free() {
            return None;
        }
        self.crew.turn(&mut state, |call| match desk.fits(call) {
            false => Fit::TooSmall,
            true if desk.count(call) == call.lanes => Fit::HasEnough,
            true => Fit::Fits,
        })
    }

    fn must_stop(&mut self) -> bool {
        false
    }

    fn may_watch(&self) -> bool {
        false
    }
}
