//! A search thread, with several queries in flight over one engine, and what a kind of index must provide for it.
//!
//! The thread sleeps only when each of its queries waits for a read. Ready queries submit their reads, then work while
//! these are in flight, and then the thread handles completed reads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::engine::{Engine, Start};
use crate::error::{Error, Result};
use crate::interrupt::Stop;

/// How often the caller is asked whether to go on.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);
/// How long a thread with one query polls for finished reads before it sleeps: about as long as a read takes, because
/// waking up takes a good part of that time.
const WATCH_FOR: Duration = Duration::from_micros(100);
/// Workers that an index keeps for later calls.
const MAX_IDLE: usize = 16;
/// Query states that an idle worker keeps.
const KEPT_LANES: usize = 16;

/// What a query does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// [`Query::submit`], then [`Query::overlap`], then wait for a read, unless `overlap` returns true.
    Wait,
    /// More work without reads, after other queries had their turn and the caller was asked whether to go on.
    Again,
    /// Nothing more: [`Query::finish`].
    Done,
}

/// Times of a query in microseconds, as in its counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub latency_us: f32,
    pub io_wait_us: f32,
}

/// One query as a state machine that never waits. Its state is reused for the next query.
pub(crate) trait Query: Default + Send {
    /// What all queries of one search share.
    type Shared<'a>: Sync;
    /// What one thread found.
    type Answers: Default + Send;

    /// Prepares a state that another search may have used.
    fn admit(&mut self, _shared: &Self::Shared<'_>) {}

    /// Takes query `i`.
    fn start(&mut self, shared: &Self::Shared<'_>, i: usize) -> Result<()>;

    /// Works until reads are needed; `buffer(i)` is the content of buffer i after its read arrived.
    fn advance<'b>(&mut self, shared: &Self::Shared<'_>, buffer: impl Fn(usize) -> &'b [u8]) -> Result<Step>;

    /// Calls `queue(buffer, unit, bytes)` for each read that was chosen since the last call.
    fn submit(&mut self, shared: &Self::Shared<'_>, queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()>;

    /// Works while reads are in flight, with `buffer` as in [`Query::advance`]; true if the query can continue before a
    /// read arrives.
    fn overlap<'b>(&mut self, _shared: &Self::Shared<'_>, _buffer: impl Fn(usize) -> &'b [u8]) -> Result<bool> {
        Ok(false)
    }

    /// Takes the read into buffer `i`, which fills the front of `bytes`; true if [`Query::advance`] can continue.
    fn arrive(&mut self, shared: &Self::Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool>;

    /// Adds the results of query `i`, nearest first, and what it cost.
    fn finish(&mut self, shared: &Self::Shared<'_>, i: usize, times: Times, answers: &mut Self::Answers);

    /// Releases what an idle state need not hold, such as the memory of an unusually long search.
    fn shrink(&mut self);
}

/// A search for a block of queries, shared by its threads.
pub(crate) struct Search<'a, Q: Query> {
    pub shared: Q::Shared<'a>,
    /// Starts the engines of the threads.
    pub source: &'a dyn Start,
    /// Workers that the index keeps for later calls.
    pub idle: &'a Idle<Q>,
    /// Buffers of one query, and so its most reads in flight.
    pub width: usize,
    /// Bytes of a buffer.
    pub slot_bytes: usize,
}

/// Hands out queries to threads.
pub(crate) struct Turns {
    n: usize,
    next: AtomicUsize,
    stopped: AtomicBool,
    interrupted: AtomicBool,
}

impl Turns {
    /// For queries 0 .. n.
    pub fn new(n: usize) -> Self {
        Turns { n, next: AtomicUsize::new(0), stopped: AtomicBool::new(false), interrupted: AtomicBool::new(false) }
    }

    /// The next query that no thread has taken.
    pub fn take(&self) -> Option<usize> {
        if self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < self.n)
    }

    /// Makes every thread end after the queries that it has; results are dropped. So all queries before one that failed
    /// are answered, and the first failure is the same whatever the threads do. After an interruption they end sooner,
    /// amid their queries.
    fn stop(&self, because: &Error) {
        self.interrupted.fetch_or(matches!(because, Error::Interrupted), Ordering::Relaxed);
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Workers that an index keeps for later calls.
pub struct Idle<Q>(Mutex<Vec<Worker<Q>>>);

impl<Q> Default for Idle<Q> {
    fn default() -> Self {
        Idle(Mutex::default())
    }
}

impl<Q> Idle<Q> {
    fn lock(&self) -> MutexGuard<'_, Vec<Worker<Q>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q> Drop for Idle<Q> {
    /// In a child that was forked while a thread of its parent held the lock, the list may be half changed: it stays.
    fn drop(&mut self) {
        let is_held = matches!(self.0.try_lock(), Err(TryLockError::WouldBlock));
        if is_held {
            std::mem::forget(std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner)));
        }
    }
}

/// Buffers, engine and query states of one thread, kept between calls.
struct Worker<Q> {
    engine: Box<dyn Engine>,
    lanes: Vec<Lane<Q>>,
    width: usize,
    /// A ring belongs to the thread and process that made it.
    owner: (u32, ThreadId),
}

/// A place for one query in flight. Lane i owns buffers `i * width ..`.
#[derive(Default)]
struct Lane<Q> {
    state: Q,
    /// Index of its query; `None` when idle.
    query: Option<usize>,
    clock: Clock,
}

struct Clock {
    started: Instant,
    waiting: Instant,
    io_wait: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        let now = Instant::now();
        Clock { started: now, waiting: now, io_wait: Duration::ZERO }
    }
}

/// An error and the query it belongs to, or [`NO_QUERY`].
pub(crate) type Failure = (usize, Error);

/// Comes after every query.
const NO_QUERY: usize = usize::MAX;

/// Answers, or the first error of the thread.
pub(crate) type Outcome<A> = std::result::Result<A, Failure>;

/// Answers queries until none is left. Only the calling thread has `interrupted`, which it asks now and then and of which
/// the others learn, and keeps its worker for the next call.
pub(crate) fn answer<Q: Query>(
    search: &Search<'_, Q>,
    turns: &Turns,
    lanes: usize,
    interrupted: Option<Stop<'_>>,
) -> Outcome<Q::Answers> {
    let mut worker = Worker::take(search, lanes).map_err(|e| {
        turns.stop(&e);
        (0, e)
    })?;
    let mut answers = Q::Answers::default();
    let (keep, mut by_caller) = (interrupted.is_some(), || turns.interrupted.load(Ordering::Relaxed));
    let interrupted: Stop<'_> = match interrupted {
        Some(asked) => asked,
        None => &mut by_caller,
    };
    let result = worker.run(search, turns, lanes, interrupted, &mut answers);
    match result {
        Ok(()) if keep => worker.give_back(search.idle),
        Ok(()) => {}
        Err(failure) => {
            turns.stop(&failure.1);
            return Err(failure);
        }
    }
    Ok(answers)
}

impl<Q: Query> Worker<Q> {
    /// An idle worker that fits, or a new one.
    fn take(search: &Search<'_, Q>, lanes: usize) -> Result<Self> {
        let owner = (std::process::id(), std::thread::current().id());
        let &Search { width, slot_bytes, .. } = search;
        let slots = lanes * width;
        let fits = |engine: &dyn Engine| engine.slots() >= slots && engine.slot_bytes() >= slot_bytes;
        let mut idle = search.idle.lock();
        let fitting = idle.iter().position(|w| w.owner == owner && fits(&*w.engine));
        let kept = fitting.map(|i| idle.swap_remove(i));
        drop(idle);
        let mut worker = match kept {
            Some(worker) => worker,
            None => Worker { engine: search.source.start(slots, slot_bytes)?, lanes: Vec::new(), width, owner },
        };
        worker.width = width;
        worker.lanes.resize_with(lanes.max(worker.lanes.len()), Lane::default);
        worker.lanes.iter_mut().for_each(|lane| lane.state.admit(&search.shared));
        Ok(worker)
    }

    /// Keeps the worker for later calls of this thread, the newest ones first. The oldest may wait for its reads when it
    /// ends, so no lock is held then.
    fn give_back(mut self, idle: &Idle<Q>) {
        self.lanes.truncate(KEPT_LANES);
        self.lanes.iter_mut().for_each(|lane| lane.state.shrink());
        let mut idle = idle.lock();
        idle.insert(0, self);
        let oldest = (idle.len() > MAX_IDLE).then(|| idle.pop());
        drop(idle);
        drop(oldest);
    }

    fn run(
        &mut self,
        search: &Search<'_, Q>,
        turns: &Turns,
        lanes: usize,
        interrupted: Stop<'_>,
        answers: &mut Q::Answers,
    ) -> std::result::Result<(), Failure> {
        let mut asked = Instant::now();
        let (mut ready, mut turns_now) = ((0..lanes).collect::<Vec<_>>(), Vec::new());
        let (mut waiting, mut done) = (Vec::new(), Vec::new());
        let mut active = lanes;
        loop {
            std::mem::swap(&mut ready, &mut turns_now);
            for i in turns_now.drain(..) {
                match self.proceed(search, turns, i, answers)? {
                    Progress::Waits => waiting.push(i),
                    Progress::Answered | Progress::Works => ready.push(i),
                    Progress::Idle => active -= 1,
                }
            }
            for i in waiting.drain(..) {
                let (first, engine, lane) = (i * self.width, &self.engine, &mut self.lanes[i]);
                let overlapped = lane.state.overlap(&search.shared, |b| engine.buffer(first + b));
                if overlapped.map_err(|e| (lane.query.unwrap_or(NO_QUERY), e))? {
                    lane.clock.io_wait += lane.clock.waiting.elapsed();
                    ready.push(i);
                }
            }
            if active == 0 {
                return Ok(());
            }
            if asked.elapsed() >= INTERRUPT_EVERY {
                // The caller may have forked a child meanwhile, which has neither engines nor threads.
                if interrupted() || std::process::id() != self.owner.0 {
                    return Err((0, Error::Interrupted));
                }
                asked = Instant::now();
            }
            let must_wait = ready.is_empty() && !(lanes == 1 && self.watch(&mut done).map_err(of_no_query)?);
            let finished = if must_wait { self.engine.reap(&mut done) } else { self.engine.poll(&mut done) };
            finished.map_err(of_no_query)?;
            for slot in done.drain(..) {
                let i = slot / self.width;
                if self.arrive(search, slot)? && !ready.contains(&i) {
                    let clock = &mut self.lanes[i].clock;
                    clock.io_wait += clock.waiting.elapsed();
                    ready.push(i);
                }
            }
        }
    }

    /// Polls for finished reads for a moment, so that a thread with one query need not be woken up; true if there are
    /// some.
    fn watch(&mut self, done: &mut Vec<usize>) -> Result<bool> {
        if !self.engine.rewards_polling() {
            return Ok(false);
        }
        let began = Instant::now();
        while done.is_empty() && began.elapsed() < WATCH_FOR {
            std::hint::spin_loop();
            self.engine.poll(done)?;
        }
        Ok(!done.is_empty())
    }

    /// Runs a ready lane until it waits for reads or has answered a query.
    fn proceed(
        &mut self,
        search: &Search<'_, Q>,
        turns: &Turns,
        index: usize,
        answers: &mut Q::Answers,
    ) -> std::result::Result<Progress, Failure> {
        let (first, engine, lane) = (index * self.width, &mut self.engine, &mut self.lanes[index]);
        let query = match lane.query {
            Some(query) => query,
            None => {
                let Some(query) = turns.take() else { return Ok(Progress::Idle) };
                lane.query = Some(query);
                lane.clock = Clock::default();
                lane.state.start(&search.shared, query).map_err(|e| (query, e))?;
                query
            }
        };
        match lane.state.advance(&search.shared, |i| engine.buffer(first + i)).map_err(|e| (query, e))? {
            Step::Wait => {
                let queue = |buffer, unit, bytes| engine.queue_part(first + buffer, unit, bytes);
                lane.state.submit(&search.shared, queue).map_err(|e| (query, e))?;
                // Submitted at once: with the reads of all queries in one submission the device is less evenly busy.
                engine.flush().map_err(|e| (query, e))?;
                lane.clock.waiting = Instant::now();
                Ok(Progress::Waits)
            }
            Step::Again => Ok(Progress::Works),
            Step::Done => {
                let latency_us = lane.clock.started.elapsed().as_secs_f32() * 1e6;
                let times = Times { latency_us, io_wait_us: lane.clock.io_wait.as_secs_f32() * 1e6 };
                lane.state.finish(&search.shared, query, times, answers);
                lane.query = None;
                Ok(Progress::Answered)
            }
        }
    }

    /// Takes a finished read; true if its query can continue.
    fn arrive(&mut self, search: &Search<'_, Q>, slot: usize) -> std::result::Result<bool, Failure> {
        let lane = &mut self.lanes[slot / self.width];
        let arrived = lane.state.arrive(&search.shared, slot % self.width, self.engine.buffer(slot));
        arrived.map_err(|e| (lane.query.unwrap_or(NO_QUERY), e))
    }
}

/// What became of a lane.
enum Progress {
    /// Its reads are in flight.
    Waits,
    /// Its query is answered; it can take another.
    Answered,
    /// Its query goes on without a read.
    Works,
    /// No query is left for it.
    Idle,
}

/// An error of the engine, which belongs to no query.
fn of_no_query(error: Error) -> Failure {
    (NO_QUERY, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Hanging;

    #[test]
    fn workers_in_the_hands_of_a_thread_that_a_fork_left_behind_stay() {
        let hanging = Hanging::default();
        let kept = || {
            let idle: Idle<()> = Idle::default();
            let (engine, owner) = (Box::new(hanging.clone()), (1, std::thread::current().id()));
            idle.lock().push(Worker { engine, lanes: Vec::new(), width: 1, owner });
            idle
        };
        drop(kept());
        assert_eq!(hanging.ended.load(Ordering::Relaxed), 1);
        let idle = kept();
        std::mem::forget(idle.lock());
        drop(idle);
        assert_eq!(hanging.ended.load(Ordering::Relaxed), 1);
    }
}
