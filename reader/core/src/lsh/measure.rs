//! Measures the vectors that a query met: in memory a little later, on storage after a batch of buckets was scanned,
//! each page once.

use super::files::VECTORS;
use super::shared::{Ledger, Shared};
use crate::distance::prefetch_row;
use crate::error::Result;
use crate::search::exact;
use crate::search::nearest::{Nearest, key};
use crate::search::queries::Prepared;
use crate::search::reads::Units;

/// Vectors in memory that are prefetched while an earlier one is measured, at least. With many more, the first vectors
/// of a large bucket would be evicted again before their turn.
const AHEAD: usize = 32;

/// Vectors to measure, and the nearest of the measured ones.
#[derive(Default)]
pub(super) struct Measure {
    pub query: Prepared,
    pub nearest: Nearest,
    /// Met, but not measured yet.
    fresh: Vec<u32>,
    units: Units,
    /// Whether reads of units are in flight.
    pub is_reading: bool,
    scratch: Vec<f32>,
}

impl Measure {
    /// Notes a vector to measure. One in memory is prefetched, and measured after some others were noted.
    pub fn soon(&mut self, shared: &Shared<'_>, slot: u32, ledger: &mut Ledger) {
        self.fresh.push(slot);
        if let Some(row) = shared.vectors.held(slot) {
            prefetch_row(row.as_ptr(), row.len());
            if self.fresh.len() == 2 * AHEAD {
                self.held(shared, AHEAD, ledger);
            }
        }
    }

    /// If vectors are in memory, measures the first `n` of the noted ones.
    pub fn held(&mut self, shared: &Shared<'_>, n: usize, ledger: &mut Ledger) {
        let vectors = shared.vectors;
        if !vectors.is_in_memory() {
            return;
        }
        let stored = vectors.stored();
        for slot in self.fresh.drain(..n.min(self.fresh.len())) {
            let Some(row) = vectors.held(slot) else { continue };
            self.nearest.push(key(exact::distance(&stored, &self.query, row, &mut self.scratch), slot));
            ledger.counters.distances += 1;
        }
    }

    /// Begins to read the noted vectors, each page once; false if there are none.
    pub fn begin_reading(&mut self, shared: &Shared<'_>, ledger: &mut Ledger) -> bool {
        if self.fresh.is_empty() {
            return false;
        }
        self.is_reading = true;
        self.units.begin(shared.vectors, self.fresh.drain(..), shared.width);
        (0..shared.width).all(|buffer| self.read_unit(shared, buffer, ledger));
        true
    }

    /// Asks for the next unit into a free buffer; false if there is none.
    pub fn read_unit(&mut self, shared: &Shared<'_>, buffer: usize, ledger: &mut Ledger) -> bool {
        let is_asked = self.units.ask(shared.vectors, VECTORS, buffer, &mut ledger.reads);
        if is_asked {
            ledger.counters.vector_reads += 1;
            ledger.counters.bytes_read += shared.vectors.unit_bytes() as u64;
        }
        is_asked
    }

    /// Measures the vectors that a read brought.
    pub fn arrive(&mut self, shared: &Shared<'_>, buffer: usize, bytes: &[u8], ledger: &mut Ledger) -> Result<()> {
        let stored = shared.vectors.stored();
        let Measure { query, nearest, units, scratch, .. } = self;
        units.arrive(shared.vectors, buffer, bytes, |slot, row| {
            nearest.push(key(exact::distance(&stored, query, row, scratch), slot));
            ledger.counters.distances += 1;
        })
    }

    /// Forgets what is to be measured, and the nearest.
    pub fn reset(&mut self, k: usize) {
        self.nearest.reset(k);
        self.fresh.clear();
        self.is_reading = false;
    }
}
