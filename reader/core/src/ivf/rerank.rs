//! Measuring the best candidates of lists of codes by their exact vectors, each page once.

use super::query::{QueryState, Read};
use super::search::Shared;
use crate::distance::kernels;
use crate::error::Result;
use crate::search::exact;
use crate::search::nearest::{key, slot_of};
use crate::search::queries::widen;
use crate::stored::Dtype;
use crate::vectors::Vectors;

impl QueryState {
    /// Turns to the exact vectors of the candidates; in memory they are measured at once.
    pub(super) fn begin_reranking(&mut self, shared: &Shared<'_>) {
        let Some(vectors) = &shared.index.vectors else { return };
        self.is_reranking = true;
        self.best.drain_sorted(&mut self.sorted);
        self.slots.clear();
        self.slots.extend(self.sorted.iter().map(|&key| slot_of(key)));
        self.slots.sort_unstable();
        self.best.reset(shared.params.k, false);
        self.counters.reranked = self.slots.len() as u64;
        if vectors.is_in_memory() {
            for i in 0..self.slots.len() {
                let slot = self.slots[i];
                let Some(row) = vectors.held(slot) else { continue };
                self.measure(vectors, row, slot);
            }
            return;
        }
        self.groups.clear();
        let mut start = 0;
        for group in self.slots.chunk_by(|&a, &b| vectors.unit_of(a) == vectors.unit_of(b)) {
            self.groups.push((start, start + group.len()));
            start += group.len();
        }
        self.n_groups_begun = 0;
        for buffer in 0..shared.width {
            self.read_group(shared, buffer);
        }
    }

    /// Begins the next read of vectors, into a buffer that is free, if there is one.
    pub(super) fn read_group(&mut self, shared: &Shared<'_>, buffer: usize) {
        let Some(vectors) = &shared.index.vectors else { return };
        let Some(&(first, _)) = self.groups.get(self.n_groups_begun) else { return };
        let page = vectors.page_of(vectors.unit_of(self.slots[first]));
        self.reads.push(Read { buffer, file: shared.index.batches.len(), page, bytes: vectors.unit_bytes() });
        self.in_buffer[buffer] = (self.n_groups_begun, None);
        self.n_groups_begun += 1;
        self.in_flight += 1;
        self.counters.vector_reads += 1;
        self.counters.bytes_read += vectors.unit_bytes() as u64;
    }

    /// Measures the vectors that a read brought.
    pub(super) fn measure_group(&mut self, shared: &Shared<'_>, buffer: usize, bytes: &[u8]) -> Result<()> {
        let Some(vectors) = &shared.index.vectors else { return Ok(()) };
        let (start, end) = self.groups[self.in_buffer[buffer].0];
        let unit = &bytes[..vectors.unit_bytes()];
        vectors.check_unit(vectors.unit_of(self.slots[start]), unit)?;
        for i in start..end {
            let slot = self.slots[i];
            self.measure(vectors, vectors.row(unit, slot), slot);
        }
        Ok(())
    }

    /// Queries of codes are floats, also where vectors are integers.
    fn measure(&mut self, vectors: &Vectors, row: &[u8], slot: u32) {
        let stored = vectors.stored();
        let distance = if let Dtype::Uint8 | Dtype::Int8 = stored.dtype {
            widen(&stored, row, &mut self.scratch);
            // SAFETY: both hold `dim` floats.
            unsafe { (kernels().l2_f32)(self.query.floats.as_ptr(), self.scratch.as_ptr(), stored.dim) }
        } else {
            exact::distance(&stored, &self.query, row, &mut self.scratch)
        };
        self.best.push(key(distance, slot));
    }
}
