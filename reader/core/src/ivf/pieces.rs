//! The reads of a list: one, or several for a long list, which are scanned as they arrive.

use super::batch::{Batch, List};
use crate::pagefile::PAGE_BYTES;

/// Bytes of a list that are read at once; a longer list takes several reads.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// How lists are cut into reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    row_bytes: usize,
    /// Rows of one read of a long list.
    rows: u32,
}

/// What a read fetches of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Rows and ids.
    All,
    /// `n` rows from `first` on.
    Rows { first: u32, n: u32 },
    /// Ids likewise.
    Ids { first: u32, n: u32 },
}

/// A read of whole pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) part: Part,
    /// From the start of the file.
    pub(super) page: u64,
    pub(super) bytes: usize,
    /// Start of the wanted bytes, from the start of the first page.
    pub(super) skip: usize,
}

/// Ids of one read.
const IDS: u32 = (PIECE_BYTES / 4) as u32;

impl Pieces {
    pub(super) fn new(row_bytes: usize) -> Self {
        Pieces { row_bytes, rows: (PIECE_BYTES / row_bytes).max(1) as u32 }
    }

    /// Reads of a list that is not empty.
    pub(super) fn count(&self, batch: &Batch, list: List) -> u32 {
        if is_short(batch, list) { 1 } else { list.size.div_ceil(self.rows) + list.size.div_ceil(IDS) }
    }

    /// Read `i` of a list: rows, then ids.
    pub(super) fn get(&self, batch: &Batch, list: List, i: u32) -> Span {
        if is_short(batch, list) {
            let bytes = batch.pages(list.size) as usize * PAGE_BYTES;
            return Span { part: Part::All, page: list.page, bytes, skip: 0 };
        }
        let row_pieces = list.size.div_ceil(self.rows);
        let (part, start, bytes) = if i < row_pieces {
            let first = i * self.rows;
            let n = self.rows.min(list.size - first);
            (Part::Rows { first, n }, u64::from(first) * self.row_bytes as u64, n as usize * self.row_bytes)
        } else {
            let first = (i - row_pieces) * IDS;
            let n = IDS.min(list.size - first);
            (Part::Ids { first, n }, batch.ids_offset(list.size) + 4 * u64::from(first), 4 * n as usize)
        };
        let (page, skip) = (start / PAGE_BYTES as u64, (start % PAGE_BYTES as u64) as usize);
        Span { part, page: list.page + page, bytes: (skip + bytes).next_multiple_of(PAGE_BYTES), skip }
    }

    /// Bytes of a buffer for every read of lists up to `size` rows.
    pub(super) fn buffer_bytes(&self, batch: &Batch, size: u32) -> usize {
        if is_short(batch, List { page: 0, size }) {
            return batch.pages(size) as usize * PAGE_BYTES;
        }
        // A read begins and ends anywhere in a page.
        PIECE_BYTES.max(self.rows as usize * self.row_bytes).next_multiple_of(PAGE_BYTES) + PAGE_BYTES
    }
}

/// Whether one read takes all of a list.
fn is_short(batch: &Batch, list: List) -> bool {
    batch.pages(list.size) <= (PIECE_BYTES / PAGE_BYTES) as u64
}
