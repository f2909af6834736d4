//! Where one thread works: several queries in flight over one engine.
//!
//! The thread sleeps only when each of its queries waits for a read. Ready queries submit their reads, then work while
//! these are in flight, and then the thread handles completed reads. The queries may belong to several calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call::{ASK_EVERY, Call, Turn};
use super::task::{Query, Search, Step, Times};
use crate::engine::{Engine, Finished};
use crate::error::{Error, Result};

/// How long a thread with one query polls for finished reads before it sleeps: about as long as a read takes, because
/// waking up takes a good part of that time.
const WATCH_FOR: Duration = Duration::from_micros(100);
/// Query states that an idle desk keeps.
const KEPT_LANES: usize = 16;

/// A query that was taken from a call.
pub(super) type Task<Q> = (Arc<Call<Q>>, usize);

/// Where a desk gets its queries from.
pub(super) trait Turns<Q: Query> {
    /// The next query for a desk with a free lane.
    fn next(&mut self, desk: &Desk<Q>) -> Option<Task<Q>>;

    /// Whether the thread is to stop. It is asked now and then.
    fn must_stop(&mut self) -> bool;

    /// Whether the thread looks for the reads of its only query instead of sleeping: nothing else needs the processor.
    fn may_watch(&self) -> bool;
}

/// Buffers, engine and query states for one thread at a time, kept between calls.
pub(super) struct Desk<Q: Query> {
    engine: Box<dyn Engine>,
    lanes: Vec<Lane<Q>>,
    /// Buffers of a lane. Lane i owns buffers `i * width ..`.
    width: usize,
    /// Lanes without a query and without reads in flight, those that this run may use.
    free: Vec<usize>,
    /// Lanes that can go on.
    ready: Vec<usize>,
}

/// A place for one query in flight.
struct Lane<Q: Query> {
    state: Q,
    /// Number of the call that the state worked for last.
    admitted: u64,
    /// Its query; `None` when idle.
    task: Option<Task<Q>>,
    /// Its query that begins again, once no read is in flight.
    again: Option<Task<Q>>,
    /// Whether the query began again already.
    is_second: bool,
    has_started: bool,
    /// Reads that are. A query that failed leaves them behind.
    in_flight: usize,
    clock: Clock,
    rounds: Rounds,
}

/// The longest chain of reads each of which was asked for after the one before arrived.
#[derive(Default)]
struct Rounds {
    /// Of each buffer, the length of the chain before its read.
    of_buffer: Vec<u32>,
    /// Of the reads that arrived.
    most: u32,
}

impl Rounds {
    fn ask(&mut self, buffer: usize) {
        if self.of_buffer.len() <= buffer {
            self.of_buffer.resize(buffer + 1, 0);
        }
        self.of_buffer[buffer] = self.most;
    }

    /// A read arrived, which took a round unless its block was at hand.
    fn arrive(&mut self, buffer: usize, took_round: bool) {
        self.most = self.most.max(self.of_buffer[buffer] + u32::from(took_round));
    }
}

impl<Q: Query> Default for Lane<Q> {
    fn default() -> Self {
        let (state, clock, rounds) = (Q::default(), Clock::default(), Rounds::default());
        Lane {
            state,
            admitted: 0,
            task: None,
            again: None,
            is_second: false,
            has_started: false,
            in_flight: 0,
            clock,
            rounds,
        }
    }
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

/// What became of a lane.
enum Progress {
    /// Its reads are in flight.
    Waits,
    /// Its query goes on without a read.
    Works,
    /// Its query is answered.
    Answered,
}

impl<Q: Query> Desk<Q> {
    /// A desk with room for `lanes` queries of a search.
    pub fn new(search: &Search<'_, Q>, lanes: usize) -> Result<Self> {
        let slots = lanes.saturating_mul(search.width);
        let started = catch_unwind(AssertUnwindSafe(|| search.source.start(slots, search.slot_bytes)));
        let engine = started.unwrap_or_else(|panic| Err(Error::panicked(&*panic)))?;
        Ok(Desk { engine, lanes: Vec::new(), width: search.width, free: Vec::new(), ready: Vec::new() })
    }

    /// Whether an idle desk has room for `lanes` queries of a call.
    pub fn has_room(&self, call: &Call<Q>, lanes: usize) -> bool {
        self.engine.slots() / call.width >= lanes && self.engine.slot_bytes() >= call.slot_bytes
    }

    /// Divides the buffers of an idle desk among `lanes` queries of a call, or of a wider one for which there was room.
    pub fn divide(&mut self, call: &Call<Q>, lanes: usize) {
        if self.width < call.width || self.engine.slots() / self.width < lanes {
            self.width = call.width;
        }
        self.lanes.resize_with(lanes.max(self.lanes.len()), Lane::default);
        self.free.clear();
        self.free.extend((0..lanes).rev());
    }

    /// Whether a free lane has room for a query of a call.
    pub fn fits(&self, call: &Call<Q>) -> bool {
        self.width >= call.width && self.engine.slot_bytes() >= call.slot_bytes
    }

    /// Queries of a call that are here.
    pub fn count(&self, call: &Call<Q>) -> usize {
        self.tasks().filter(|(other, _)| other.number == call.number).count()
    }

    fn tasks(&self) -> impl Iterator<Item = &Task<Q>> {
        self.lanes.iter().filter_map(|lane| lane.task.as_ref().or(lane.again.as_ref()))
    }

    /// Whether no query is here.
    pub fn is_free(&self) -> bool {
        self.tasks().next().is_none()
    }

    /// Bytes of its buffers.
    pub fn bytes(&self) -> usize {
        self.engine.bytes()
    }

    /// Whether the desk can be kept: no read is in flight.
    pub fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.in_flight == 0)
    }

    /// Releases what an idle desk need not hold.
    pub fn shrink(&mut self) {
        self.lanes.truncate(KEPT_LANES);
        self.lanes.iter_mut().for_each(|lane| lane.state.shrink());
    }

    /// Answers queries until there are none. After an error the desk can only be dropped; its queries have ended.
    pub fn run(&mut self, turns: &mut impl Turns<Q>) -> Result<()> {
        let ran = catch_unwind(AssertUnwindSafe(|| self.work(turns)));
        let error = match ran {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(panic) => Error::panicked(&*panic),
        };
        let tasks = self.lanes.iter_mut().filter_map(|lane| lane.task.take().or_else(|| lane.again.take()));
        // In a forked child, a thread of its parent may have the lock of a call for ever.
        for (call, query) in tasks.filter(|(call, _)| !call.is_orphan()) {
            call.fail(query, error.again());
        }
        Err(error)
    }

    fn work(&mut self, turns: &mut impl Turns<Q>) -> Result<()> {
        let mut asked = Instant::now();
        let (mut waiting, mut now, mut finished) = (Vec::new(), Vec::new(), Finished::default());
        loop {
            std::mem::swap(&mut self.ready, &mut now);
            for i in now.drain(..) {
                match self.step(i, Lane::proceed) {
                    Some(Progress::Waits) => waiting.push(i),
                    Some(Progress::Works) => self.ready.push(i),
                    Some(Progress::Answered) => self.end(i),
                    None => {}
                }
            }
            for i in waiting.drain(..) {
                if self.step(i, Lane::overlap) == Some(true) {
                    self.go_on(i);
                }
            }
            if asked.elapsed() >= ASK_EVERY {
                if turns.must_stop() {
                    return Err(Error::Interrupted);
                }
                self.release_cancelled();
                asked = Instant::now();
            }
            while let Some(&i) = self.free.last() {
                let Some(task) = turns.next(self) else { break };
                self.free.pop();
                self.begin(i, task);
            }
            if self.is_free() {
                return Ok(());
            }
            let must_wait = self.ready.is_empty() && !(turns.may_watch() && self.watch(&mut finished)?);
            if must_wait {
                self.engine.reap_several(self.n_lacking(), &mut finished)?;
            } else {
                self.engine.poll_each(&mut finished)?;
            }
            for slot in finished.done.drain(..) {
                let Some(i) = self.landed(slot) else { continue };
                let goes_on = self.step(i, |lane, engine, first| lane.arrive(engine, first, slot - first));
                if goes_on == Some(true) && !self.ready.contains(&i) {
                    self.go_on(i);
                }
            }
            for (slot, error) in finished.failed.drain(..) {
                if let Some(i) = self.landed(slot) {
                    self.fail(i, error);
                }
            }
        }
    }

    /// Reads that must arrive before any query can go on. While a thread sleeps for these, it does not measure what arrives,
    /// which delays the only query of a desk, nor does it take up others.
    fn n_lacking(&self) -> usize {
        let queries = || self.lanes.iter().filter(|lane| lane.task.is_some());
        if !self.free.is_empty() || queries().count() == 1 {
            return 1;
        }
        queries().map(|lane| lane.state.n_lacking()).min().unwrap_or(1)
    }

    /// Polls for finished reads for a moment, so that a thread with one query need not be woken up; true if there are
    /// some.
    fn watch(&mut self, finished: &mut Finished) -> Result<bool> {
        if !self.engine.rewards_polling() {
            return Ok(false);
        }
        let began = Instant::now();
        while finished.is_empty() && began.elapsed() < WATCH_FOR {
            std::hint::spin_loop();
            self.engine.poll_each(finished)?;
        }
        Ok(!finished.is_empty())
    }

    /// Runs a part of a lane's query, with the engine and the lane's first buffer. An error, or a panic, ends the query.
    fn step<T>(&mut self, i: usize, work: impl FnOnce(&mut Lane<Q>, &mut dyn Engine, usize) -> Result<T>) -> Option<T> {
        let (lane, engine, first) = (&mut self.lanes[i], &mut *self.engine, i * self.width);
        lane.task.as_ref()?;
        // What a panic leaves of the state is dropped.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(lane, engine, first)));
        let error = match outcome {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => error,
            Err(panic) => Error::panicked(&*panic),
        };
        self.fail(i, error);
        None
    }

    /// Gives a free lane a query.
    fn begin(&mut self, i: usize, task: Task<Q>) {
        let lane = &mut self.lanes[i];
        (lane.task, lane.has_started) = (Some(task), false);
        self.ready.push(i);
        self.set_second(i, false);
    }

    /// Notes whether a lane's query begins for the second time, and so trusts nothing that is at hand.
    fn set_second(&mut self, i: usize, is_second: bool) {
        if self.lanes[i].is_second != is_second {
            self.lanes[i].is_second = is_second;
            self.engine.read_anew(i * self.width..(i + 1) * self.width, is_second);
        }
    }

    /// Frees a lane whose query is answered, unless its state belongs to the next query of the call.
    fn end(&mut self, i: usize) {
        let Some((call, _)) = self.lanes[i].task.take() else { return };
        debug_assert_eq!(self.lanes[i].in_flight, 0, "an answered query waits for nothing");
        if call.keeps_state
            && let Turn::Query(query, _) = call.take()
        {
            return self.begin(i, (call, query));
        }
        self.release(i);
    }

    /// Ends the query of a lane with an error. One that failed for bytes which may have been damaged on their way begins
    /// again, once.
    fn fail(&mut self, i: usize, error: Error) {
        let may_differ = !self.lanes[i].is_second && self.engine.forget(&error);
        if may_differ {
            self.lanes[i].again = self.lanes[i].task.take();
            self.clear(i);
        } else if let Some((call, query)) = self.abandon(i) {
            call.fail(query, error);
        }
    }

    /// Ends the queries of cancelled calls.
    fn release_cancelled(&mut self) {
        for i in 0..self.lanes.len() {
            let lane = &self.lanes[i];
            let task = lane.task.as_ref().or(lane.again.as_ref());
            if task.is_some_and(|(call, _)| call.is_cancelled())
                && let Some((call, _)) = self.abandon(i)
            {
                call.end(call.lock());
            }
        }
    }

    /// Takes a query out of its lane before it is answered.
    fn abandon(&mut self, i: usize) -> Option<Task<Q>> {
        let lane = &mut self.lanes[i];
        if let Some(task) = lane.again.take() {
            return Some(task); // the last of its reads frees the lane
        }
        let task = lane.task.take()?;
        self.clear(i);
        Some(task)
    }

    /// Clears a lane whose query was taken out.
    fn clear(&mut self, i: usize) {
        (self.lanes[i].state, self.lanes[i].admitted) = (Q::default(), 0);
        self.ready.retain(|&ready| ready != i);
        self.release(i);
    }

    /// Makes a lane free, once none of its buffers is in flight, or begins its query again.
    fn release(&mut self, i: usize) {
        if self.lanes[i].in_flight > 0 {
            return;
        }
        if self.engine.counts_rounds() {
            (i * self.width..(i + 1) * self.width).for_each(|slot| self.engine.release(slot));
        }
        match self.lanes[i].again.take() {
            Some(task) => {
                self.begin(i, task);
                self.set_second(i, true);
            }
            None => {
                self.set_second(i, false);
                self.free.push(i);
            }
        }
    }

    /// Takes note of a read that finished; its lane, if that still has the query.
    fn landed(&mut self, slot: usize) -> Option<usize> {
        let i = slot / self.width;
        let lane = &mut self.lanes[i];
        lane.in_flight -= 1;
        if lane.task.is_some() {
            return Some(i);
        }
        self.release(i);
        None
    }

    /// Makes a lane ready after its wait.
    fn go_on(&mut self, i: usize) {
        let clock = &mut self.lanes[i].clock;
        clock.io_wait += clock.waiting.elapsed();
        self.ready.push(i);
    }
}

/// Lanes without a query do nothing: [`Desk::step`] sees to it.
const NO_QUERY: &str = "a lane without a query";

impl<Q: Query> Lane<Q> {
    /// Runs the query until it waits for reads or is answered.
    fn proceed(&mut self, engine: &mut dyn Engine, first: usize) -> Result<Progress> {
        let Lane { state, admitted, task, is_second, has_started, in_flight, clock, rounds, .. } = self;
        let (call, query) = task.as_ref().expect(NO_QUERY);
        // SAFETY: the query was taken, and ends with this function at the earliest.
        let search = unsafe { call.search() };
        if !*has_started {
            if !*is_second {
                (*clock, rounds.most) = (Clock::default(), 0);
            }
            if *admitted != call.number {
                state.shrink();
                state.admit(&search.shared);
                *admitted = call.number;
            }
            state.start(&search.shared, *query)?;
            *has_started = true;
        }
        match state.advance(&search.shared, |b| engine.buffer(first + b))? {
            Step::Wait => {
                let counts_rounds = engine.counts_rounds();
                let queue = |buffer, unit, bytes| {
                    engine.queue_part(first + buffer, unit, bytes)?;
                    *in_flight += 1;
                    if counts_rounds {
                        rounds.ask(buffer);
                    }
                    Ok(())
                };
                state.submit(&search.shared, queue)?;
                // Submitted at once: with the reads of all queries in one submission the device is less evenly busy.
                engine.flush()?;
                clock.waiting = Instant::now();
                Ok(Progress::Waits)
            }
            Step::Again => Ok(Progress::Works),
            Step::Done => {
                let latency_us = clock.started.elapsed().as_secs_f32() * 1e6;
                let io_wait_us = clock.io_wait.as_secs_f32() * 1e6;
                let times = Times { latency_us, io_wait_us, rounds: rounds.most };
                let mut found = call.lock();
                state.finish(&search.shared, *query, times, &mut found.answers)?;
                // The search may be gone after this.
                call.end(found);
                Ok(Progress::Answered)
            }
        }
    }

    /// Works while reads are in flight; true if the query can continue.
    fn overlap(&mut self, engine: &mut dyn Engine, first: usize) -> Result<bool> {
        let (call, _) = self.task.as_ref().expect(NO_QUERY);
        // SAFETY: the query was taken and goes on.
        let search = unsafe { call.search() };
        self.state.overlap(&search.shared, |b| engine.buffer(first + b))
    }

    /// Takes a finished read into its buffer number `i`; true if the query can continue.
    fn arrive(&mut self, engine: &mut dyn Engine, first: usize, i: usize) -> Result<bool> {
        let (call, _) = self.task.as_ref().expect(NO_QUERY);
        // SAFETY: the query was taken and goes on.
        let search = unsafe { call.search() };
        if engine.counts_rounds() {
            self.rounds.arrive(i, engine.takes_round(first + i));
        }
        let goes_on = self.state.arrive(&search.shared, i, engine.buffer(first + i))?;
        if !self.state.looks_again() {
            engine.release(first + i);
        }
        Ok(goes_on)
    }
}
