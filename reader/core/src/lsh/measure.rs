//! Measuring what was met: in memory a little later, on storage when a batch of buckets was scanned, each page once.

use super::VECTORS;
use super::query::{QueryState, Read};
use super::search::Shared;
use crate::distance::prefetch_row;
use crate::error::Result;
use crate::search::exact;
use crate::search::nearest::key;

/// Vectors in memory that are on their way to the cache, at least, while the one before them is measured: with many more
/// the first of a large bucket are evicted again before their turn.
const AHEAD: usize = 32;

impl QueryState {
    /// Notes a vector to measure. One in memory is sent for, and its turn comes when some others were.
    pub(super) fn measure_soon(&mut self, shared: &Shared<'_>, slot: u32) {
        self.fresh.push(slot);
        if let Some(row) = shared.index.vectors.held(slot) {
            prefetch_row(row.as_ptr(), row.len());
            if self.fresh.len() == 2 * AHEAD {
                self.measure_held(shared, AHEAD);
            }
        }
    }

    /// Measures the first `n` of what was met, or all, if vectors are in memory.
    pub(super) fn measure_held(&mut self, shared: &Shared<'_>, n: usize) {
        let vectors = &shared.index.vectors;
        if !vectors.is_in_memory() {
            return;
        }
        let stored = vectors.stored();
        for slot in self.fresh.drain(..n.min(self.fresh.len())) {
            let Some(row) = vectors.held(slot) else { continue };
            self.nearest.push(key(exact::distance(&stored, &self.query, row, &mut self.scratch), slot));
            self.counters.distances += 1;
        }
    }

    /// Begins to read the vectors that were met, each page once.
    pub(super) fn begin_measuring(&mut self, shared: &Shared<'_>) {
        let vectors = &shared.index.vectors;
        self.is_measuring = true;
        self.fresh.sort_unstable();
        self.groups.clear();
        let mut start = 0;
        for group in self.fresh.chunk_by(|&a, &b| vectors.unit_of(a) == vectors.unit_of(b)) {
            self.groups.push((start, start + group.len()));
            start += group.len();
        }
        self.n_groups_begun = 0;
        self.group_of.resize(shared.width, 0);
        for buffer in 0..self.groups.len().min(shared.width) {
            self.read_group(shared, buffer);
        }
    }

    pub(super) fn read_group(&mut self, shared: &Shared<'_>, buffer: usize) {
        let vectors = &shared.index.vectors;
        let group = self.n_groups_begun;
        let (offset, bytes) =
            (vectors.offset_of(vectors.unit_of(self.fresh[self.groups[group].0])), vectors.unit_bytes());
        self.reads.push(Read { buffer, file: VECTORS, offset, bytes });
        self.group_of[buffer] = group;
        self.n_groups_begun += 1;
        self.in_flight += 1;
        self.counters.vector_reads += 1;
        self.counters.bytes_read += bytes as u64;
    }

    pub(super) fn measure_group(&mut self, shared: &Shared<'_>, group: usize, bytes: &[u8]) -> Result<()> {
        let (vectors, (start, end)) = (&shared.index.vectors, self.groups[group]);
        let (stored, unit) = (vectors.stored(), &bytes[..vectors.unit_bytes()]);
        vectors.check_unit(vectors.unit_of(self.fresh[start]), unit)?;
        for &slot in &self.fresh[start..end] {
            let row = vectors.row(unit, slot);
            self.nearest.push(key(exact::distance(&stored, &self.query, row, &mut self.scratch), slot));
            self.counters.distances += 1;
        }
        Ok(())
    }
}
