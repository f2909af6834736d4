//! The page heap H of page search: the blocks a query has read, and their vertices by exact distance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::nearest::slot_of;
use super::stamped::Stamped;
use crate::pagefile::PAGE_BYTES;

/// A page in memory, aligned so that vectors in it can be read in place.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct AlignedPage([u8; PAGE_BYTES]);

/// Vertices of kept pages that one hop expands while its reads are in flight, nearest first.
///
/// Deviation from Algorithm 5 (lines 18-22): the paper expands until the reads complete, which depends on the device.
/// A fixed number depends on the query alone, so a search repeats bit for bit. On a million SIFT vectors in star order
/// 4 of them cost 13% more reads at recall 0.95 than 16, and 32 save another 1% for 70% more code distances.
/// `tests/oracles/search.py` states the same rule.
pub const EXPANSIONS_PER_HOP: usize = 16;

/// Blocks of one query, kept until the query ends: `4096 * pages_read` bytes.
#[derive(Default)]
pub struct PageHeap {
    arena: Vec<AlignedPage>,
    /// Block to its first page in the arena.
    places: Stamped,
    nearest_first: BinaryHeap<Reverse<u64>>,
}

impl PageHeap {
    /// Forgets everything; memory is kept.
    pub fn reset(&mut self) {
        self.arena.clear();
        self.places.reset();
        self.nearest_first.clear();
    }

    /// Whether `block` is here.
    pub fn contains(&self, block: u32) -> bool {
        self.places.get(block).is_some()
    }

    /// A block that is here: the paper's `check2ret`.
    pub fn block(&self, block: u32, pages_per_block: u32) -> Option<&[u8]> {
        let start = self.places.get(block)? as usize;
        let pages = self.arena.get(start..start + pages_per_block as usize)?;
        // SAFETY: pages are contiguous bytes without padding (4096 is a multiple of 64).
        Some(unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), pages.len() * PAGE_BYTES) })
    }

    /// Copies a block that arrived: the paper's `cache`.
    pub fn keep(&mut self, block: u32, bytes: &[u8]) {
        *self.places.entry(block) = self.arena.len() as u32;
        let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
        self.arena.extend(pages.iter().map(|page| AlignedPage(*page)));
    }

    /// Adds a vertex of a kept block: the paper's `update`.
    pub fn push(&mut self, key: u64) {
        self.nearest_first.push(Reverse(key));
    }

    /// Takes the nearest vertex: the paper's `pop`.
    pub fn pop(&mut self) -> Option<u32> {
        self.nearest_first.pop().map(|Reverse(key)| slot_of(key))
    }
}
