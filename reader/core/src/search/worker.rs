//! One search thread: several queries in flight over one engine.
//!
//! The thread sleeps only when every query it holds waits for a read: ready queries submit their reads, do what can be
//! done while they are in flight, then completions are handled.

use std::sync::PoisonError;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::query::{QueryState, Step};
use super::trace::Event;
use super::{Counters, Notes, Shared};
use crate::engine::Engine;
use crate::error::{Error, Result};

/// How often the caller is asked whether to go on.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);
/// How long a thread with one query looks for finished reads before it sleeps: about as long as a read takes. Waking up
/// takes a good part of that time again.
const WATCH_FOR: Duration = Duration::from_micros(100);
/// Workers that an index keeps for later calls.
const MAX_IDLE: usize = 16;
/// Query states that an idle worker keeps.
const KEPT_LANES: usize = 16;

/// Buffers, engine and query states of one thread, kept between calls.
pub struct Worker {
    engine: Box<dyn Engine>,
    lanes: Vec<Lane>,
    beam_width: usize,
    /// A ring belongs to the thread and process that made it.
    owner: (u32, ThreadId),
}

/// A place for one query in flight. Lane i owns buffers `i * beam_width ..`.
#[derive(Default)]
struct Lane {
    state: QueryState,
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

/// Answers of one thread, in the order in which its queries ended.
#[derive(Default)]
pub struct Answers {
    pub queries: Vec<usize>,
    /// End of each query's results in `slots` and `scores`.
    pub ends: Vec<usize>,
    pub slots: Vec<i64>,
    pub scores: Vec<f32>,
    pub counters: Vec<Counters>,
    /// Blocks read, if they are noted.
    pub blocks: Vec<u32>,
    /// Events, if they are noted, and the end of each query's.
    pub events: Vec<Event>,
    pub event_ends: Vec<usize>,
}

impl Answers {
    /// Where the results of the i-th query are.
    pub fn results_of(&self, i: usize) -> std::ops::Range<usize> {
        i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]
    }
}

/// An error and the query it belongs to, or [`NO_QUERY`].
pub type Failure = (usize, Error);

/// Comes after every query.
const NO_QUERY: usize = usize::MAX;

/// Answers, or the first error of the thread.
pub type Outcome = std::result::Result<Answers, Failure>;

/// Answers queries until none is left. `interrupted` is asked now and then; it is there on the calling thread only,
/// whose worker is kept for its next call.
pub fn search(shared: &Shared<'_>, lanes: usize, interrupted: Option<&mut dyn FnMut() -> bool>) -> Outcome {
    let mut worker = Worker::take(shared, lanes).map_err(|e| {
        shared.stop();
        (0, e)
    })?;
    let mut answers = Answers::default();
    let keep = interrupted.is_some();
    let result = worker.run(shared, lanes, interrupted.unwrap_or(&mut || false), &mut answers);
    match result {
        Ok(()) if keep => worker.give_back(shared),
        Ok(()) => {}
        Err(error) => {
            shared.stop();
            return Err(error);
        }
    }
    Ok(answers)
}

impl Worker {
    /// One that is idle and fits, or a new one.
    fn take(shared: &Shared<'_>, lanes: usize) -> Result<Self> {
        let owner = (std::process::id(), std::thread::current().id());
        let (index, beam_width) = (shared.index, shared.params.beam_width);
        let slots = lanes * beam_width;
        let mut idle = index.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = idle.iter().position(|w| w.owner == owner && w.engine.slots() >= slots);
        let kept = fitting.map(|i| idle.swap_remove(i));
        drop(idle);
        let mut worker = match kept {
            Some(worker) => worker,
            None => {
                let engine = index.engine.start(&index.file, slots, index.graph.layout.block_bytes())?;
                Worker { engine, lanes: Vec::new(), beam_width, owner }
            }
        };
        worker.beam_width = beam_width;
        worker.lanes.resize_with(lanes.max(worker.lanes.len()), Lane::default);
        Ok(worker)
    }

    /// Keeps the worker for later calls of this thread, the newest ones first.
    fn give_back(mut self, shared: &Shared<'_>) {
        self.lanes.truncate(KEPT_LANES);
        self.lanes.iter_mut().for_each(|lane| lane.state.shrink());
        let mut idle = shared.index.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.insert(0, self);
        idle.truncate(MAX_IDLE);
    }

    fn run(
        &mut self,
        shared: &Shared<'_>,
        lanes: usize,
        interrupted: &mut dyn FnMut() -> bool,
        answers: &mut Answers,
    ) -> std::result::Result<(), Failure> {
        let mut asked = Instant::now();
        let (mut ready, mut waiting, mut done) = ((0..lanes).collect::<Vec<_>>(), Vec::new(), Vec::new());
        if shared.params.deterministic {
            self.lanes.iter_mut().for_each(|lane| lane.state.forget_previous());
        }
        let mut active = lanes;
        loop {
            for i in std::mem::take(&mut ready) {
                match self.proceed(shared, i, answers)? {
                    Progress::Waits => waiting.push(i),
                    Progress::Answered => ready.push(i),
                    Progress::Idle => active -= 1,
                }
            }
            for i in waiting.drain(..) {
                let lane = &mut self.lanes[i];
                lane.state.overlap(shared).map_err(|e| (lane.query.unwrap_or(NO_QUERY), e))?;
            }
            if active == 0 {
                return Ok(());
            }
            if asked.elapsed() >= INTERRUPT_EVERY {
                if interrupted() {
                    return Err((0, Error::Interrupted));
                }
                asked = Instant::now();
            }
            let must_wait = ready.is_empty() && !(lanes == 1 && self.watch(&mut done).map_err(of_no_query)?);
            let finished = if must_wait { self.engine.reap(&mut done) } else { self.engine.poll(&mut done) };
            finished.map_err(of_no_query)?;
            for slot in done.drain(..) {
                let i = slot / self.beam_width;
                if self.arrive(shared, slot)? && !ready.contains(&i) {
                    let clock = &mut self.lanes[i].clock;
                    clock.io_wait += clock.waiting.elapsed();
                    ready.push(i);
                }
            }
        }
    }

    /// Looks for finished reads for a moment, so that a thread with one query need not be woken up; true if it found
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
        shared: &Shared<'_>,
        index: usize,
        answers: &mut Answers,
    ) -> std::result::Result<Progress, Failure> {
        let (first, engine, lane) = (index * self.beam_width, &mut self.engine, &mut self.lanes[index]);
        let query = match lane.query {
            Some(query) => query,
            None => {
                let Some(query) = shared.take() else { return Ok(Progress::Idle) };
                lane.query = Some(query);
                lane.clock = Clock::default();
                lane.state.start(shared, query);
                query
            }
        };
        match lane.state.advance(shared, |i| engine.buffer(first + i)).map_err(|e| (query, e))? {
            Step::Wait => {
                for read in lane.state.take_reads() {
                    let page = shared.index.graph.layout.page_of(read.block);
                    engine.queue(first + read.buffer, page).map_err(|e| (query, e))?;
                    if shared.notes == Notes::Blocks {
                        answers.blocks.push(read.block);
                    }
                }
                // At once: with all queries' reads in one submission the device is less evenly busy.
                engine.flush().map_err(|e| (query, e))?;
                lane.clock.waiting = Instant::now();
                Ok(Progress::Waits)
            }
            Step::Done => {
                let mut counters = lane.state.finish(shared, &mut answers.slots, &mut answers.scores);
                counters.latency_us = lane.clock.started.elapsed().as_secs_f32() * 1e6;
                counters.io_wait_us = lane.clock.io_wait.as_secs_f32() * 1e6;
                answers.queries.push(query);
                answers.ends.push(answers.slots.len());
                lane.state.take_events(shared, &mut answers.events);
                answers.event_ends.push(answers.events.len());
                answers.counters.push(counters);
                lane.query = None;
                Ok(Progress::Answered)
            }
        }
    }

    /// Takes a finished read; true if its query can go on.
    fn arrive(&mut self, shared: &Shared<'_>, slot: usize) -> std::result::Result<bool, Failure> {
        let lane = &mut self.lanes[slot / self.beam_width];
        let arrived = lane.state.arrive(shared, slot % self.beam_width, self.engine.buffer(slot));
        arrived.map_err(|e| (lane.query.unwrap_or(NO_QUERY), e))
    }
}

/// What became of a lane.
enum Progress {
    /// Its reads are in flight.
    Waits,
    /// Its query is answered; it can take another.
    Answered,
    /// No query is left for it.
    Idle,
}

/// An error of the engine, which belongs to no query.
fn of_no_query(error: Error) -> Failure {
    (NO_QUERY, error)
}
