//! The end of a search among nodes of codes: candidates whose interval reaches over the border of the answer are measured
//! exactly.
//!
//! The others are in or out by their codes, and keep the distances that these give. Vectors that are measured, few of
//! them, are read together, as many at a time as the query has buffers.

use super::interval::Apart;
use crate::engine::DataFile;
use crate::error::Result;
use crate::graph::results::Goal;
use crate::graph::walk::traversal::Traversal;
use crate::search::exact;
use crate::search::nearest::{key, slot_of};
use crate::search::reads::{HELD_AT_ONCE, Reads, Units};
use crate::search::task::Step;

/// Which file of the index's storage vectors.imx is.
const FILE: usize = 1;

/// The end of one query. Memory: 8 bytes a candidate kept, 4 and a little a vector read.
#[derive(Default)]
pub(crate) struct Rerank {
    /// Whether exact vectors are measured now, or have been.
    pub is_active: bool,
    reads: Reads,
    units: Units,
    keys: Vec<u64>,
    scratch: Vec<f32>,
}

impl Rerank {
    /// Forgets everything.
    pub fn reset(&mut self) {
        self.is_active = false;
        self.reads.reset();
    }

    /// Whether the state has grown beyond `results` candidates.
    pub fn is_large(&self, results: usize) -> bool {
        self.keys.capacity() > results
    }

    /// Sorts the results of the search into those that are certain and those that are measured, and asks for the
    /// vectors of these, at most `width` at a time.
    pub fn begin(&mut self, apart: &Apart<'_>, goal: Goal, width: usize, t: &mut Traversal) {
        self.is_active = true;
        t.results.drain_sorted(&mut self.keys);
        t.results.reset(goal);
        let open = apart.open(&t.query, goal, &self.keys);
        self.keys[..open.start].iter().for_each(|&key| t.results.push(key, None));
        self.units.begin(apart.vectors, self.keys[open].iter().map(|&key| slot_of(key)), width);
        if apart.vectors.is_in_memory() {
            (0..self.units.n_units()).for_each(|_| count_read(apart, t));
        } else {
            (0..width).all(|buffer| self.read_unit(apart, buffer, t));
        }
        t.counters.hops += u64::from(self.units.n_units() > 0);
    }

    /// Measures the next vectors, where they are in memory.
    pub fn advance(&mut self, apart: &Apart<'_>, t: &mut Traversal) -> Step {
        if !apart.vectors.is_in_memory() {
            return if self.reads.in_flight() > 0 { Step::Wait } else { Step::Done };
        }
        for &slot in self.units.take(HELD_AT_ONCE) {
            let Some(row) = apart.held(slot) else { continue };
            measure(apart, t, slot, row, &mut self.scratch);
        }
        if self.units.are_taken() { Step::Done } else { Step::Again }
    }

    /// Asks for the next unit of vectors into a free buffer; false if there is none.
    fn read_unit(&mut self, apart: &Apart<'_>, buffer: usize, t: &mut Traversal) -> bool {
        let is_asked = self.units.ask(apart.vectors, FILE, buffer, &mut self.reads);
        if is_asked {
            count_read(apart, t);
        }
        is_asked
    }

    /// Measures the vectors that a read brought, and asks for others; true if nothing is in flight or reads are new.
    pub fn arrive(&mut self, apart: &Apart<'_>, buffer: usize, bytes: &[u8], t: &mut Traversal) -> Result<bool> {
        self.reads.arrive();
        let scratch = &mut self.scratch;
        self.units.arrive(apart.vectors, buffer, bytes, |slot, row| measure(apart, t, slot, row, scratch))?;
        self.read_unit(apart, buffer, t);
        Ok(self.reads.in_flight() == 0 || self.reads.has_new())
    }

    /// Queues the new reads; see [`Reads::submit`].
    pub fn submit(&mut self, files: &DataFile, queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        self.reads.submit(files, queue)
    }
}

fn count_read(apart: &Apart<'_>, t: &mut Traversal) {
    t.counters.pages_read += apart.vectors.pages_per_unit;
    t.counters.bytes_read += apart.unit_bytes() as u64;
}

fn measure(apart: &Apart<'_>, t: &mut Traversal, slot: u32, row: &[u8], scratch: &mut Vec<f32>) {
    t.counters.distances += 1;
    let distance = exact::distance(&apart.vectors.stored(), &t.query, row, scratch);
    t.results.push(key(distance, slot), None);
}
