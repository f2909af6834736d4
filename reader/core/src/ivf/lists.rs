//! Scans the lists that a query probes.

use std::cmp::Ordering;
use std::ops::Range;

use super::batch::Batch;
use super::pieces::{Part, Span};
use super::rows::Rows;
use super::shared::{Progress, Shared};
use crate::bytes::{u32_at, u32s};
use crate::error::Result;
use crate::memory::{Region, resize};
use crate::pagefile::PAGE_BYTES;
use crate::search::nearest::{Nearest, distance_of, key, slot_of};
use crate::search::reads::Read;

/// Lists for which an idle query state keeps memory.
const KEPT_JOBS: usize = 1 << 14;
/// Ids, and nearest rows, of a list for which an idle query state keeps memory.
const KEPT_IDS: usize = 1 << 18;
/// Parts of lists in memory that a query scans before it gives way: some milliseconds of work.
const PARTS_AT_ONCE: usize = 64;
/// Lists of batches that a query takes up before it gives way: some milliseconds of work.
const LISTS_AT_ONCE: usize = 1 << 16;
/// No list is held.
const NONE: u32 = u32::MAX;

/// A list to scan.
#[derive(Debug, Clone, Copy)]
struct Job {
    batch: u32,
    list: u32,
    /// Reads that have not arrived yet.
    left: u32,
    /// Place in `held` of a list of several reads.
    held: u32,
}

/// A list of several reads, some of which arrived.
#[derive(Debug, Default)]
struct Held {
    /// Keys of (distance, row): within a list rows ascend with ids.
    nearest: Nearest,
    ids: Vec<u32>,
}

impl Held {
    /// Whether it takes far more memory than lists usually need.
    fn is_large(&self) -> bool {
        self.ids.capacity().max(self.nearest.room()) > KEPT_IDS
    }
}

/// The lists that a query probes.
#[derive(Default)]
pub(super) struct Lists {
    /// How many of the chosen lists were taken up.
    taken: usize,
    jobs: Vec<Job>,
    /// The next read: of which job, and which of its reads.
    next: (usize, u32),
    /// What is in each buffer: of which job, and which part.
    in_buffer: Vec<Option<(usize, Span)>>,
    held: Vec<Held>,
    free: Vec<usize>,
    rows: Rows,
    sorted: Vec<u64>,
}

impl Lists {
    /// Whether it takes far more memory than searches usually need.
    pub fn is_large(&self) -> bool {
        self.jobs.capacity() > KEPT_JOBS || self.held.iter().any(Held::is_large)
    }

    /// Begins with another query: [`Lists::take_up`] follows until it is true.
    pub fn begin(&mut self, shared: &Shared<'_>) {
        self.rows.reset();
        self.jobs.clear();
        (self.taken, self.next) = (0, (0, 0));
        self.free.clear();
        self.free.extend(0..self.held.len());
        self.in_buffer.clear();
        self.in_buffer.resize(shared.width, None);
    }

    /// Takes up the next lists of `chosen` that are not empty, nearest first. After the last this is true, and as many reads
    /// were asked for as there are buffers, unless lists are in memory.
    pub fn take_up(&mut self, shared: &Shared<'_>, chosen: &[u32], progress: &mut Progress) -> bool {
        let at_once = (LISTS_AT_ONCE / shared.batches.len()).max(1);
        for &list in chosen[self.taken..].iter().take(at_once) {
            self.taken += 1;
            for (batch, number) in shared.batches.iter().zip(0..) {
                let size = batch.list(list);
                if size.size > 0 {
                    let left = shared.pieces.count(batch, size);
                    self.jobs.push(Job { batch: number, list, left, held: NONE });
                }
            }
        }
        if self.taken < chosen.len() {
            return false;
        }
        progress.counters.lists = self.jobs.len() as u64;
        if shared.source.held().is_none() {
            (0..shared.width).for_each(|buffer| self.read_part(shared, buffer, progress));
        }
        true
    }

    /// The next read and its job; counts the read, also of what is in memory.
    fn next_part(&mut self, shared: &Shared<'_>, progress: &mut Progress) -> Option<(usize, Span)> {
        let (at, i) = self.next;
        let job = self.jobs.get(at)?;
        let batch = &shared.batches[job.batch as usize];
        let list = batch.list(job.list);
        let span = shared.pieces.get(batch, list, i);
        self.next = if i + 1 < shared.pieces.count(batch, list) { (at, i + 1) } else { (at + 1, 0) };
        progress.counters.reads += 1;
        progress.counters.bytes_read += span.bytes as u64;
        Some((at, span))
    }

    /// Begins the next read, if there is one, into a free buffer.
    fn read_part(&mut self, shared: &Shared<'_>, buffer: usize, progress: &mut Progress) {
        let Some((at, span)) = self.next_part(shared, progress) else { return };
        self.in_buffer[buffer] = Some((at, span));
        let (file, offset) = (self.jobs[at].batch as usize, span.page * PAGE_BYTES as u64);
        progress.reads.ask(Read { buffer, file, offset, bytes: span.bytes });
    }

    /// Scans the part that a read brought, and begins another read.
    pub fn arrive(&mut self, shared: &Shared<'_>, buffer: usize, bytes: &[u8], progress: &mut Progress) -> Result<()> {
        if let Some((at, span)) = self.in_buffer[buffer] {
            self.scan_part(shared, at, span, &bytes[..span.bytes], progress)?;
        }
        self.read_part(shared, buffer, progress);
        Ok(())
    }

    /// Scans a part of a list, or a whole one.
    fn scan_part(
        &mut self,
        shared: &Shared<'_>,
        at: usize,
        span: Span,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> Result<()> {
        let job = self.jobs[at];
        let batch = &shared.batches[job.batch as usize];
        batch.check_pages(span.page, bytes)?;
        if span.part == Part::All {
            return self.scan_rows(shared, job, 0..batch.list(job.list).size, bytes, progress);
        }
        if job.held == NONE {
            self.hold(shared, batch, at, progress.best.capacity())?;
        }
        let held = self.jobs[at].held as usize;
        match span.part {
            Part::Rows { first, n } => {
                let (query, list) = (progress.compared(), (batch, job.list, first));
                let worst = progress.best.worst().map(distance_of);
                self.rows.scan(shared.centroids, query, list, worst, &bytes[span.skip..], n as usize)?;
                progress.counters.distances += u64::from(n);
                for (&distance, row) in self.rows.distances.iter().zip(first..) {
                    if may_be_nearer(distance, worst) {
                        self.held[held].nearest.push(key(distance, row));
                    }
                }
            }
            Part::Ids { first, n } => {
                let into = &mut self.held[held].ids[first as usize..][..n as usize];
                into.iter_mut().zip(u32s(&bytes[span.skip..])).for_each(|(to, id)| *to = id);
            }
            Part::All => {}
        }
        self.jobs[at].left -= 1;
        if self.jobs[at].left == 0 { self.release(shared, batch, at, progress) } else { Ok(()) }
    }

    /// Makes room for the ids of a list of several reads, and for its nearest rows: `capacity` of them, and as many more
    /// as may be of deleted vectors, for ids may come after the rows.
    fn hold(&mut self, shared: &Shared<'_>, batch: &Batch, at: usize, capacity: usize) -> Result<()> {
        let held = self.free.pop().unwrap_or_else(|| {
            self.held.push(Held::default());
            self.held.len() - 1
        });
        self.jobs[at].held = held as u32;
        let Held { nearest, ids } = &mut self.held[held];
        let size = batch.list(self.jobs[at].list).size as usize;
        nearest.reset(size.min(capacity + shared.n_deleted() as usize));
        ids.clear();
        resize(&batch.path, ids, size, 0)
    }

    /// Takes the nearest rows of a list after its last read.
    fn release(&mut self, shared: &Shared<'_>, batch: &Batch, at: usize, progress: &mut Progress) -> Result<()> {
        let Job { list, held, .. } = self.jobs[at];
        let Held { nearest, ids } = &mut self.held[held as usize];
        batch.check_ids(list, ids.iter().copied(), 0)?;
        nearest.drain_sorted(&mut self.sorted);
        for &found in &self.sorted {
            if !may_be_nearer(distance_of(found), progress.best.worst().map(distance_of)) {
                break; // and so are those behind it
            }
            let id = ids[slot_of(found) as usize];
            if shared.is_living(id) {
                progress.best.push(key(distance_of(found), id));
            }
        }
        self.free.push(held as usize);
        Ok(())
    }

    /// Scans the next parts of lists that are in memory, in `lists` by batch; true if none is left. A list of several reads is
    /// cut as they would cut it.
    pub fn scan_held(&mut self, shared: &Shared<'_>, lists: &[Region], progress: &mut Progress) -> Result<bool> {
        for _ in 0..PARTS_AT_ONCE {
            let Some((at, span)) = self.next_part(shared, progress) else { return Ok(true) };
            let job = self.jobs[at];
            let (batch, held) = (&shared.batches[job.batch as usize], &lists[job.batch as usize]);
            let list = batch.list(job.list);
            let rows = match span.part {
                Part::All => 0..list.size,
                Part::Rows { first, n } => first..first + n,
                Part::Ids { .. } => continue, // they were looked at with their rows
            };
            self.scan_rows(shared, job, rows, batch.pages_of(held, list), progress)?;
        }
        Ok(false)
    }

    /// Scans rows of a list, which is in `bytes` as a whole.
    fn scan_rows(
        &mut self,
        shared: &Shared<'_>,
        job: Job,
        rows: Range<u32>,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> Result<()> {
        let (batch, list, first, n) = (&shared.batches[job.batch as usize], job.list, rows.start, rows.len());
        let ids = &bytes[batch.ids_offset(batch.list(list).size) as usize..];
        let least = if first == 0 { 0 } else { u64::from(u32_at(ids, 4 * (first as usize - 1))) + 1 };
        let ids = &ids[4 * first as usize..][..4 * n];
        batch.check_ids(list, u32s(ids), least)?;
        let mut worst = progress.best.worst().map(distance_of);
        let bytes = &bytes[first as usize * shared.centroids.row_bytes..];
        self.rows.scan(shared.centroids, progress.compared(), (batch, list, first), worst, bytes, n)?;
        let Progress { best, counters, .. } = progress;
        counters.distances += n as u64;
        for (&distance, id) in self.rows.distances.iter().zip(u32s(ids)) {
            if may_be_nearer(distance, worst) && shared.is_living(id) {
                best.push(key(distance, id));
                worst = best.worst().map(distance_of);
            }
        }
        Ok(())
    }
}

/// Whether a row at this distance can be among the nearest. NaN passes: keys order it last.
fn may_be_nearer(distance: f32, worst: Option<f32>) -> bool {
    worst.is_none_or(|worst| distance.partial_cmp(&worst) != Some(Ordering::Greater))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_long_lists_is_told() {
        let mut lists = Lists::default();
        lists.held.push(Held::default());
        assert!(!lists.is_large());
        let nearest = &mut lists.held[0].nearest;
        nearest.reset(usize::MAX);
        (0..=KEPT_IDS as u32).for_each(|row| nearest.push(key(0.0, row)));
        assert!(lists.is_large());
    }
}
