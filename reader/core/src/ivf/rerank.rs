//! Measures the best candidates of lists of codes by their exact vectors, reading each page once.

use super::shared::{Progress, Shared};
use crate::distance::kernels;
use crate::error::Result;
use crate::search::exact;
use crate::search::nearest::{key, slot_of};
use crate::search::queries::Prepared;
use crate::search::reads::{HELD_AT_ONCE, Units};
use crate::stored::{Dtype, Stored};

/// The candidates of one query.
#[derive(Default)]
pub(super) struct Rerank {
    /// Whether exact vectors are measured now.
    pub is_active: bool,
    units: Units,
    sorted: Vec<u64>,
    scratch: Vec<f32>,
}

impl Rerank {
    /// Turns to the exact vectors of the candidates, and asks for as many as there are buffers, unless they are in memory.
    pub fn begin(&mut self, shared: &Shared<'_>, progress: &mut Progress) {
        let Some(vectors) = shared.vectors else { return };
        self.is_active = true;
        progress.best.drain_sorted(&mut self.sorted);
        progress.best.reset(shared.params.k, false);
        progress.counters.reranked = self.sorted.len() as u64;
        self.units.begin(vectors, self.sorted.iter().map(|&key| slot_of(key)), shared.width);
        if !vectors.is_in_memory() {
            (0..shared.width).all(|buffer| self.read_unit(shared, buffer, progress));
        }
    }

    /// Measures the next vectors, if they are in memory; true if none is left.
    pub fn measure_held(&mut self, shared: &Shared<'_>, progress: &mut Progress) -> bool {
        let Some(vectors) = shared.vectors.filter(|vectors| vectors.is_in_memory()) else { return true };
        let stored = vectors.stored();
        for &slot in self.units.take(HELD_AT_ONCE) {
            let Some(row) = vectors.held(slot) else { continue };
            progress.best.push(key(distance(&stored, &progress.query, row, &mut self.scratch), slot));
        }
        self.units.are_taken()
    }

    /// Asks for the next unit of vectors into a free buffer; false if there is none.
    fn read_unit(&mut self, shared: &Shared<'_>, buffer: usize, progress: &mut Progress) -> bool {
        let Some(vectors) = shared.vectors else { return false };
        let is_asked = self.units.ask(vectors, shared.batches.len(), buffer, &mut progress.reads);
        if is_asked {
            progress.counters.vector_reads += 1;
            progress.counters.bytes_read += vectors.unit_bytes() as u64;
        }
        is_asked
    }

    /// Measures the vectors that a read brought, and asks for others.
    pub fn arrive(&mut self, shared: &Shared<'_>, buffer: usize, bytes: &[u8], progress: &mut Progress) -> Result<()> {
        let Some(vectors) = shared.vectors else { return Ok(()) };
        let (stored, Progress { query, best, .. }) = (vectors.stored(), &mut *progress);
        self.units.arrive(vectors, buffer, bytes, |slot, row| {
            best.push(key(distance(&stored, query, row, &mut self.scratch), slot));
        })?;
        self.read_unit(shared, buffer, progress);
        Ok(())
    }
}

/// Queries of codes are floats, also where vectors are integers.
fn distance(stored: &Stored<'_>, query: &Prepared, row: &[u8], scratch: &mut Vec<f32>) -> f32 {
    if let Dtype::Uint8 | Dtype::Int8 = stored.dtype {
        stored.widen(row, scratch);
        assert!(query.floats.len() == stored.dim && scratch.len() == stored.dim);
        // SAFETY: both hold `dim` floats.
        unsafe { (kernels().l2_f32)(query.floats.as_ptr(), scratch.as_ptr(), stored.dim) }
    } else {
        exact::distance(stored, query, row, scratch)
    }
}
