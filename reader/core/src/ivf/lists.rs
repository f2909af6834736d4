//! Scanning the lists that a query probes.

use std::cmp::Ordering;

use super::IvfIndex;
use super::batch::Batch;
use super::pieces::{Part, Span};
use super::query::{QueryState, Read};
use super::search::Shared;
use crate::bytes::u32s;
use crate::error::Result;
use crate::pagefile::PAGE_BYTES;
use crate::search::nearest::{Nearest, distance_of, key, slot_of};

/// Ids that an idle query state keeps room for.
const KEPT_IDS: usize = 1 << 18;
/// No list is held.
const NONE: u32 = u32::MAX;

/// A list to scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    batch: u32,
    list: u32,
    /// Reads that did not arrive yet.
    left: u32,
    /// Where what is known of a list of several reads is held.
    held: u32,
}

/// A list of several reads, some of which arrived.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Keys of (distance, row): within a list rows ascend with ids.
    nearest: Nearest,
    ids: Vec<u32>,
}

impl Held {
    pub(super) fn is_large(&self) -> bool {
        self.ids.capacity() > KEPT_IDS
    }
}

impl QueryState {
    /// Lists what holds anything, nearest first, and asks for as much as there are buffers for.
    pub(super) fn begin_lists(&mut self, shared: &Shared<'_>) {
        let index = shared.index;
        self.jobs.clear();
        for &list in &self.chosen {
            for (batch, number) in index.batches.iter().zip(0..) {
                let size = batch.list(list);
                if size.size > 0 {
                    let left = index.pieces.count(batch, size);
                    self.jobs.push(Job { batch: number, list, left, held: NONE });
                }
            }
        }
        self.counters.lists = self.jobs.len() as u64;
        self.next = (0, 0);
        (self.is_reranking, self.in_flight) = (false, 0);
        self.free.clear();
        self.free.extend(0..self.held.len());
        self.reads.clear();
        self.in_buffer.clear();
        self.in_buffer.resize(shared.width, (0, None));
        if shared.is_in_memory() {
            while self.next_part(index).is_some() {}
            return;
        }
        for buffer in 0..shared.width {
            self.read_part(index, buffer);
        }
    }

    /// Which read comes next, of which job; counts it.
    fn next_part(&mut self, index: &IvfIndex) -> Option<(usize, Span)> {
        let (at, i) = self.next;
        let job = self.jobs.get(at)?;
        let batch = &index.batches[job.batch as usize];
        let (list, span_of) = (batch.list(job.list), &index.pieces);
        let span = span_of.get(batch, list, i);
        self.next = if i + 1 < span_of.count(batch, list) { (at, i + 1) } else { (at + 1, 0) };
        self.counters.reads += 1;
        self.counters.bytes_read += span.bytes as u64;
        Some((at, span))
    }

    /// Begins the next read, into a buffer that is free, if there is one.
    pub(super) fn read_part(&mut self, index: &IvfIndex, buffer: usize) {
        let Some((at, span)) = self.next_part(index) else { return };
        self.in_buffer[buffer] = (at, Some(span));
        self.reads.push(Read { buffer, file: self.jobs[at].batch as usize, page: span.page, bytes: span.bytes });
        self.in_flight += 1;
    }

    /// Scans what a read brought.
    pub(super) fn scan_part(&mut self, index: &IvfIndex, buffer: usize, bytes: &[u8]) -> Result<()> {
        let (at, Some(span)) = self.in_buffer[buffer] else { return Ok(()) };
        let job = self.jobs[at];
        let batch = &index.batches[job.batch as usize];
        let bytes = &bytes[..span.bytes];
        batch.check_pages(span.page, bytes)?;
        if span.part == Part::All {
            return self.scan_list(index, batch, job.list, bytes);
        }
        if job.held == NONE {
            self.hold(batch, at);
        }
        let held = self.jobs[at].held as usize;
        match span.part {
            Part::Rows { first, n } => {
                self.rows.scan(&index.centroids, &self.query, (batch, job.list), &bytes[span.skip..], n as usize)?;
                self.counters.distances += u64::from(n);
                let worst = self.best.worst().map(distance_of);
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
        if self.jobs[at].left == 0 { self.release(batch, at) } else { Ok(()) }
    }

    /// Makes room for what is known of a list of several reads.
    fn hold(&mut self, batch: &Batch, at: usize) {
        let held = self.free.pop().unwrap_or_else(|| {
            self.held.push(Held::default());
            self.held.len() - 1
        });
        self.jobs[at].held = held as u32;
        let Held { nearest, ids } = &mut self.held[held];
        nearest.reset(self.best.capacity());
        ids.clear();
        ids.resize(batch.list(self.jobs[at].list).size as usize, 0);
    }

    /// Takes the nearest rows of a list that is there as a whole by now.
    fn release(&mut self, batch: &Batch, at: usize) -> Result<()> {
        let Job { list, held, .. } = self.jobs[at];
        let Held { nearest, ids } = &mut self.held[held as usize];
        batch.check_ids(list, ids.iter().copied(), 0)?;
        nearest.drain_sorted(&mut self.sorted);
        for &found in &self.sorted {
            self.best.push(key(distance_of(found), ids[slot_of(found) as usize]));
        }
        self.free.push(held as usize);
        Ok(())
    }

    /// Scans a list that is there as a whole, in `bytes`.
    fn scan_list(&mut self, index: &IvfIndex, batch: &Batch, list: u32, bytes: &[u8]) -> Result<()> {
        let size = batch.list(list).size;
        let ids = &bytes[batch.ids_offset(size) as usize..][..4 * size as usize];
        batch.check_ids(list, u32s(ids), 0)?;
        self.rows.scan(&index.centroids, &self.query, (batch, list), bytes, size as usize)?;
        self.counters.distances += u64::from(size);
        let mut worst = self.best.worst().map(distance_of);
        for (&distance, id) in self.rows.distances.iter().zip(u32s(ids)) {
            if may_be_nearer(distance, worst) {
                self.best.push(key(distance, id));
                worst = self.best.worst().map(distance_of);
            }
        }
        Ok(())
    }

    /// Scans all lists in memory, whose words are those of each batch.
    pub(super) fn scan_held(&mut self, index: &IvfIndex, lists: &[Vec<u32>]) -> Result<()> {
        for i in 0..self.jobs.len() {
            let Job { batch, list, .. } = self.jobs[i];
            let (batch, words) = (&index.batches[batch as usize], &lists[batch as usize]);
            let place = batch.list(list);
            let first = (place.page - batch.first_page) as usize * (PAGE_BYTES / 4);
            let words = &words[first..][..batch.pages(place.size) as usize * (PAGE_BYTES / 4)];
            // SAFETY: the same memory as bytes.
            let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 4 * words.len()) };
            self.scan_list(index, batch, list, bytes)?;
        }
        Ok(())
    }
}

/// Whether a row at this distance can be among the nearest; NaN, which comes last, is left to the order of keys.
fn may_be_nearer(distance: f32, worst: Option<f32>) -> bool {
    worst.is_none_or(|worst| distance.partial_cmp(&worst) != Some(Ordering::Greater))
}
