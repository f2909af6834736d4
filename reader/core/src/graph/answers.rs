//! The search of a graph as a thread runs it: [`Task`] for [`Shared`], and what a thread found.

use std::sync::Mutex;

use super::query::QueryState;
use super::search::{Counters, Notes, Shared};
use super::trace::Event;
use crate::engine::Engine;
use crate::error::Result;
use crate::search::task::{Step, Task, Times, Turns};
use crate::search::worker::Worker;

/// Answers of one thread, in the order in which its queries ended.
#[derive(Default)]
pub(crate) struct Answers {
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

impl Task for Shared<'_> {
    type State = QueryState;
    type Answers = Answers;

    fn turns(&self) -> &Turns {
        &self.turns
    }

    fn idle(&self) -> &Mutex<Vec<Worker<QueryState>>> {
        &self.index.idle
    }

    fn width(&self) -> usize {
        self.params.beam_width
    }

    fn slot_bytes(&self) -> usize {
        self.index.graph.layout.block_bytes()
    }

    fn start_engine(&self, slots: usize) -> Result<Box<dyn Engine>> {
        self.index.engine.start(&self.index.file, slots, self.slot_bytes())
    }

    fn admit(&self, state: &mut QueryState) {
        if self.params.deterministic {
            state.forget_previous();
        }
    }

    fn start(&self, state: &mut QueryState, i: usize) {
        state.start(self, i);
    }

    fn advance<'a>(&self, state: &mut QueryState, buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        state.advance(self, buffer)
    }

    fn submit(
        &self,
        state: &mut QueryState,
        answers: &mut Answers,
        mut queue: impl FnMut(usize, u64, usize) -> Result<()>,
    ) -> Result<()> {
        for read in state.take_reads() {
            queue(read.buffer, self.index.graph.layout.page_of(read.block), self.slot_bytes())?;
            if self.notes == Notes::Blocks {
                answers.blocks.push(read.block);
            }
        }
        Ok(())
    }

    fn overlap<'a>(&self, state: &mut QueryState, _buffer: impl Fn(usize) -> &'a [u8]) -> Result<bool> {
        state.overlap(self).map(|()| false)
    }

    fn arrive(&self, state: &mut QueryState, i: usize, bytes: &[u8]) -> Result<bool> {
        state.arrive(self, i, bytes)
    }

    fn finish(&self, state: &mut QueryState, i: usize, times: Times, answers: &mut Answers) {
        let counters = state.finish(self, &mut answers.slots, &mut answers.scores);
        let Times { latency_us, io_wait_us } = times;
        answers.counters.push(Counters { latency_us, io_wait_us, ..counters });
        answers.queries.push(i);
        answers.ends.push(answers.slots.len());
        state.take_events(self, &mut answers.events);
        answers.event_ends.push(answers.events.len());
    }

    fn shrink(state: &mut QueryState) {
        state.shrink();
    }
}
