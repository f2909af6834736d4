//! The search threads of an index, and the desks at which they and the callers work. Both live as long as the index.
//!
//! While there are fewer threads at work than processors, a caller works for its search itself, at a desk of its own: no
//! other thread needs to be woken up for a query. Otherwise it leaves its search to the threads of the pool and sleeps.
//! Each of these has queries of many callers in flight at one desk, so that 64 callers with a query each cost about as
//! much as one with 64. They take a query of each waiting search in turn: a single query does not wait for the end of a
//! long search, unless each of that one's queries enters where the one before it ended ([`Search::keeps_state`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism, current};

use super::call::{Call, Presence, Then, Turn};
use super::desk::{Desk, Task, Turns};
use super::task::{Query, Search};
use crate::error::{Error, Result};
use crate::interrupt::Stop;

/// Bytes of the buffers at desks that an index keeps for later calls.
const IDLE_BYTES: usize = 256 << 20;

/// Answers all queries of a search. `interrupted` is asked now and then, on this thread; once it says true this ends with
/// [`Error::Interrupted`]. Of several errors that of the first query is returned.
pub(crate) fn run<Q: Query>(search: &Search<'_, Q>, interrupted: Stop<'_>) -> Result<Q::Answers> {
    if search.n == 0 {
        return Ok(Q::Answers::default());
    }
    let crew = search.pool.crew();
    // SAFETY: the presence waits for the end of the call before the search can go.
    let present = Presence(unsafe { Call::new(search, None) });
    let call = &present.0;
    if let Some(busy) = crew.enter(call) {
        crew.answer(call, search, interrupted, busy);
    }
    call.wait(interrupted)
}

/// Begins to answer all queries of a search, one or more; a thread of the pool gives `then` the answers.
///
/// # Safety
/// `search` stays where it is until `then` was called.
pub(super) unsafe fn begin<Q: Query>(search: *const Search<'_, Q>, then: Then<Q::Answers>) -> Arc<Call<Q>> {
    // SAFETY: as the caller says; the pool belongs to the index of the search.
    let (crew, call) = unsafe { ((*search).pool.crew().clone(), Call::new(search, Some(then))) };
    crew.leave(&call);
    call
}

/// The threads and desks of an index, for each process that searches it: a forked child has none of its parent's.
pub(crate) struct Pool<Q: Query>(OnceLock<Box<Generation<Q>>>);

impl<Q: Query> Default for Pool<Q> {
    fn default() -> Self {
        Pool(OnceLock::new())
    }
}

/// What belongs to one process. A child looks for its own behind its parent's, whose locks it must not touch.
struct Generation<Q: Query> {
    process: u32,
    crew: Arc<Crew<Q>>,
    child: OnceLock<Box<Generation<Q>>>,
}

impl<Q: Query> Pool<Q> {
    /// What belongs to this process.
    fn crew(&self) -> &Arc<Crew<Q>> {
        let process = std::process::id();
        let mut place = &self.0;
        loop {
            let found = place.get_or_init(|| {
                let (crew, child) = (Arc::new(Crew::new()), OnceLock::new());
                Box::new(Generation { process, crew, child })
            });
            if found.process == process {
                return &found.crew;
            }
            place = &found.child;
        }
    }
}

impl<Q: Query> Drop for Generation<Q> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.crew.close();
        } else {
            // Its threads are the parent's, and what they had in their hands may be half changed: it stays.
            std::mem::forget(self.crew.clone());
        }
    }
}

#[cfg(test)]
impl<Q: Query> Pool<Q> {
    /// Makes this process believe in so many processors.
    fn limit_to(&mut self, cores: usize) {
        self.crew();
        let crew = self.0.get_mut().and_then(|generation| Arc::get_mut(&mut generation.crew));
        crew.expect("not in use yet").cores = cores;
    }
}

struct Crew<Q: Query> {
    /// Processors of the machine.
    cores: usize,
    /// Threads at work, callers among them.
    busy: AtomicUsize,
    /// Calls in the queue, to be looked at without the lock.
    queued: AtomicUsize,
    state: Mutex<State<Q>>,
    /// A thread is to wake up.
    work: Condvar,
}

struct State<Q: Query> {
    /// Calls that may have queries which no thread has taken, in the order of their turns.
    calls: VecDeque<Arc<Call<Q>>>,
    /// Desks without a thread, the newest first.
    desks: Vec<Desk<Q>>,
    threads: Vec<JoinHandle<()>>,
    /// Threads without work.
    parked: usize,
    /// How many of those that sleep are to wake up.
    wakes: usize,
    /// How many were started and have not looked for work yet.
    starting: usize,
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
    fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let (calls, desks, threads) = (VecDeque::new(), Vec::new(), Vec::new());
        let state = State { calls, desks, threads, parked: 0, wakes: 0, starting: 0, is_closed: false };
        let (busy, queued, work) = (AtomicUsize::new(0), AtomicUsize::new(0), Condvar::new());
        Crew { cores, busy, queued, state: Mutex::new(state), work }
    }

    /// A panicking thread cannot leave the state half changed, so a poisoned lock can be used.
    fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a call; whether its caller is to work for it.
    fn enter(self: &Arc<Self>, call: &Arc<Call<Q>>) -> Option<Busy<'_>> {
        let mut state = self.lock();
        let is_calm = state.calls.is_empty() && self.busy.load(Ordering::Relaxed) < self.cores;
        let helpers = call.threads - usize::from(is_calm);
        let is_helped = helpers == 0 || self.queue(&mut state, call, helpers).is_ok();
        (is_calm || !is_helped).then(|| Busy::new(&self.busy))
    }

    /// Takes up a call that has no caller.
    fn leave(self: &Arc<Self>, call: &Arc<Call<Q>>) {
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
    fn answer(&self, call: &Arc<Call<Q>>, search: &Search<'_, Q>, interrupted: Stop<'_>, busy: Busy<'_>) {
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
        let mut state = self.lock();
        let roomy = state.desks.iter().position(|desk| desk.has_room(call, lanes));
        let kept = roomy.map(|i| state.desks.remove(i));
        drop(state);
        let mut desk = kept.map_or_else(|| Desk::new(search, lanes), Ok)?;
        desk.divide(call, lanes);
        Ok(desk)
    }

    /// Keeps a desk for later calls. No lock is held while one ends, for it may wait for its reads.
    fn give_back(&self, mut desk: Desk<Q>) {
        if !desk.is_idle() {
            return;
        }
        desk.shrink();
        let mut state = self.lock();
        state.desks.insert(0, desk);
        let at_work = self.cores + state.threads.len();
        let mut bytes = 0;
        let fitting = state.desks.iter().take(at_work).take_while(|desk| {
            bytes += desk.bytes();
            bytes <= IDLE_BYTES
        });
        let n_kept = fitting.count().max(1);
        let oldest = state.desks.split_off(n_kept);
        drop(state);
        drop(oldest);
    }

    /// Ends the threads, which have no calls: these keep the index open. A thread that closes the index itself ends later.
    fn close(&self) {
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
struct Busy<'a>(&'a AtomicUsize);

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

#[cfg(test)]
mod tests;
