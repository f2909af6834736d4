//! One search thread: several queries in flight over one engine.
//!
//! The thread sleeps only when every query it holds waits for a read: ready queries queue their reads, all reads are
//! submitted together, page expansion runs while they are in flight, then completions are handled.

use std::sync::PoisonError;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use super::query::{QueryState, Step};
use super::{Counters, Policy, Shared};
use crate::engine::Engine;
use crate::error::{Error, Result};

/// How often the caller is asked whether to go on.
const INTERRUPT_EVERY: Duration = Duration::from_millis(50);
/// Workers that an index keeps for later calls.
const MAX_IDLE: usize = 16;

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
    /// Reads in flight.
    pending: usize,
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
    pub slots: Vec<i64>,
    pub scores: Vec<f32>,
    pub counters: Vec<Counters>,
}

/// An error and the query it belongs to (0 where it belongs to none).
pub type Failure = (usize, Error);

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
    fn give_back(self, shared: &Shared<'_>) {
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
        let (mut ready, mut done): (Vec<usize>, Vec<usize>) = ((0..lanes).collect(), Vec::new());
        let mut active = lanes;
        while active > 0 {
            let mut kept = 0;
            for i in 0..ready.len() {
                if self.proceed(shared, ready[i], answers)? {
                    ready[kept] = ready[i];
                    kept += 1;
                } else {
                    active -= 1;
                }
            }
            ready.truncate(kept);
            if shared.params.policy == Policy::Page {
                self.expand_while_reading(shared, &ready)?;
            }
            ready.clear();
            if asked.elapsed() >= INTERRUPT_EVERY {
                if interrupted() {
                    return Err((0, Error::Interrupted));
                }
                asked = Instant::now();
            }
            self.engine.reap(&mut done).map_err(|e| (0, e))?;
            for slot in done.drain(..) {
                if self.arrive(shared, slot)? {
                    ready.push(slot / self.beam_width);
                }
            }
        }
        Ok(())
    }

    /// Submits what was queued and expands pages of the lanes that wait for it.
    fn expand_while_reading(&mut self, shared: &Shared<'_>, waiting: &[usize]) -> std::result::Result<(), Failure> {
        self.engine.flush().map_err(|e| (0, e))?;
        for &i in waiting {
            let lane = &mut self.lanes[i];
            lane.state.expand_pages(shared).map_err(|e| (lane.query.unwrap_or(0), e))?;
            lane.clock.waiting = Instant::now();
        }
        Ok(())
    }

    /// Runs a ready lane until it waits for reads (true) or no query is left for it (false).
    fn proceed(
        &mut self,
        shared: &Shared<'_>,
        index: usize,
        answers: &mut Answers,
    ) -> std::result::Result<bool, Failure> {
        let (first_slot, lane) = (index * self.beam_width, &mut self.lanes[index]);
        loop {
            let query = match lane.query {
                Some(query) => query,
                None => {
                    let Some(query) = shared.take() else { return Ok(false) };
                    lane.query = Some(query);
                    lane.clock = Clock::default();
                    lane.state.start(shared, query);
                    query
                }
            };
            match lane.state.advance(shared).map_err(|e| (query, e))? {
                Step::Read => {
                    lane.pending = lane.state.reads().len();
                    for (i, &block) in lane.state.reads().iter().enumerate() {
                        let page = shared.index.graph.layout.page_of(block);
                        self.engine.queue(first_slot + i, page).map_err(|e| (query, e))?;
                    }
                    lane.clock.waiting = Instant::now();
                    return Ok(true);
                }
                Step::Done => {
                    let mut counters = lane.state.finish(shared, &mut answers.slots, &mut answers.scores);
                    counters.latency_us = lane.clock.started.elapsed().as_secs_f32() * 1e6;
                    counters.io_wait_us = lane.clock.io_wait.as_secs_f32() * 1e6;
                    answers.queries.push(query);
                    answers.counters.push(counters);
                    lane.query = None;
                }
            }
        }
    }

    /// Handles a finished read; true when it was the last one of its hop, and the frontier was expanded.
    fn arrive(&mut self, shared: &Shared<'_>, slot: usize) -> std::result::Result<bool, Failure> {
        let index = slot / self.beam_width;
        let lane = &mut self.lanes[index];
        let query = lane.query.unwrap_or(0);
        let first = index * self.beam_width;
        if lane.pending == 1 {
            lane.clock.io_wait += lane.clock.waiting.elapsed();
        }
        lane.state.arrive(shared, slot - first, self.engine.buffer(slot)).map_err(|e| (query, e))?;
        lane.pending -= 1;
        if lane.pending > 0 {
            return Ok(false);
        }
        let engine = &self.engine;
        lane.state.expand_frontier(shared, |i| engine.buffer(first + i)).map_err(|e| (query, e))?;
        Ok(true)
    }
}
