//! Reads of the files of an index into the buffers of a query.

use std::ops::Range;

use crate::engine::DataFile;
use crate::error::Result;
use crate::vectors::Vectors;

/// Vectors in memory that a query measures before it gives way.
pub(crate) const HELD_AT_ONCE: usize = 4096;

/// A read into one of the query's buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    pub buffer: usize,
    /// Which of the index's files.
    pub file: usize,
    /// From the start of that file.
    pub offset: u64,
    pub bytes: usize,
}

/// The reads of one query.
#[derive(Default)]
pub(crate) struct Reads {
    asked: Vec<Read>,
    in_flight: usize,
}

impl Reads {
    /// Forgets everything.
    pub fn reset(&mut self) {
        self.asked.clear();
        self.in_flight = 0;
    }

    /// Asks for a read.
    pub fn ask(&mut self, read: Read) {
        self.asked.push(read);
        self.in_flight += 1;
    }

    /// Notes that a read arrived.
    pub fn arrive(&mut self) {
        self.in_flight -= 1;
    }

    /// Reads that were asked for and have not arrived yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether there are reads to submit.
    pub fn has_new(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Queues the new reads as `queue(buffer, unit, bytes)`, rounded to whole units of `files`.
    pub fn submit(&mut self, files: &DataFile, mut queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        let unit_bytes = files.unit_bytes();
        for Read { buffer, file, offset, bytes } in self.asked.drain(..) {
            // Files are whole pages long, and a unit divides a page.
            let unit = (files.start_of(file) + offset) / unit_bytes as u64;
            let skip = (offset % unit_bytes as u64) as usize;
            queue(buffer, unit, (skip + bytes).next_multiple_of(unit_bytes))?;
        }
        Ok(())
    }
}

/// Exact vectors that a query measures: each unit of their file is read once, or they are in memory.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// Ascending.
    slots: Vec<u32>,
    /// Parts of `slots`, one a unit.
    groups: Vec<Range<usize>>,
    n_begun: usize,
    /// Slots that were taken, where vectors are in memory.
    n_taken: usize,
    /// Which group is in each buffer.
    in_buffer: Vec<usize>,
}

impl Units {
    /// Takes up other slots, for a query of `width` buffers.
    pub fn begin(&mut self, vectors: &Vectors, slots: impl Iterator<Item = u32>, width: usize) {
        self.slots.clear();
        self.slots.extend(slots);
        self.slots.sort_unstable();
        self.groups.clear();
        let mut start = 0;
        for group in self.slots.chunk_by(|&a, &b| vectors.unit_of(a) == vectors.unit_of(b)) {
            self.groups.push(start..start + group.len());
            start += group.len();
        }
        (self.n_begun, self.n_taken) = (0, 0);
        self.in_buffer.resize(width, 0);
    }

    /// Units that hold them.
    pub fn n_units(&self) -> usize {
        self.groups.len()
    }

    /// The next slots, ascending, at most `n` of them.
    pub fn take(&mut self, n: usize) -> &[u32] {
        let start = self.n_taken;
        self.n_taken = self.slots.len().min(start + n);
        &self.slots[start..self.n_taken]
    }

    /// Whether no slot is left to take.
    pub fn are_taken(&self) -> bool {
        self.n_taken == self.slots.len()
    }

    /// Asks for the next unit of `file` into a free buffer; false if there is none.
    pub fn ask(&mut self, vectors: &Vectors, file: usize, buffer: usize, reads: &mut Reads) -> bool {
        let Some(group) = self.groups.get(self.n_begun) else { return false };
        let offset = vectors.offset_of(vectors.unit_of(self.slots[group.start]));
        reads.ask(Read { buffer, file, offset, bytes: vectors.unit_bytes() });
        self.in_buffer[buffer] = self.n_begun;
        self.n_begun += 1;
        true
    }

    /// Checks the unit that arrived in a buffer and hands over its vectors.
    pub fn arrive(
        &self,
        vectors: &Vectors,
        buffer: usize,
        bytes: &[u8],
        mut take: impl FnMut(u32, &[u8]),
    ) -> Result<()> {
        let slots = &self.slots[self.groups[self.in_buffer[buffer]].clone()];
        let unit = &bytes[..vectors.unit_bytes()];
        vectors.check_unit(vectors.unit_of(slots[0]), unit)?;
        slots.iter().for_each(|&slot| take(slot, vectors.row(unit, slot)));
        Ok(())
    }
}
