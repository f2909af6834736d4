//! The page heap H of page search: the blocks a query has at hand, and their vertices by exact distance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::cache::{AlignedPage, Cache, append, as_bytes};
use crate::search::nearest::slot_of;
use crate::search::stamped::Stamped;

/// Pages that an idle query state has room for: 1 MiB, more than a search with L = 200 reads.
const KEPT_PAGES: usize = 256;
/// Measured vertices that it has room for, 8 bytes each.
const KEPT_VERTICES: usize = 1 << 14;
/// Set in the place of a block that lies in the cache.
const CACHED: u32 = 1 << 31;

/// Blocks of one query: `4096 * pages_read` bytes, about 50 bytes a block to find it, and under `page` and `pipeline` 8
/// bytes for each vertex measured. A block that `beam` or `completion` reads again is there again.
#[derive(Default)]
pub(super) struct PageHeap {
    arena: Vec<AlignedPage>,
    cache: Option<Arc<Cache>>,
    /// Block to its first page in the arena, or to its place in the cache.
    places: Stamped,
    nearest_first: BinaryHeap<Reverse<u64>>,
}

impl PageHeap {
    /// Forgets everything; memory is kept.
    pub fn reset(&mut self, cache: Option<&Arc<Cache>>) {
        self.cache = cache.cloned();
        self.arena.clear();
        self.places.reset();
        self.nearest_first.clear();
    }

    /// Whether it takes far more memory than searches usually need.
    pub fn is_large(&self) -> bool {
        self.arena.capacity() > KEPT_PAGES || self.nearest_first.capacity() > KEPT_VERTICES
    }

    /// Whether `block` is here.
    pub fn contains(&self, block: u32) -> bool {
        self.places.get(block).is_some()
    }

    /// A block that is here: the paper's `check2ret`.
    pub fn block(&self, block: u32, pages_per_block: u32) -> Option<&[u8]> {
        let place = self.places.get(block)?;
        if place & CACHED != 0 {
            return self.cache.as_ref().map(|cache| cache.content(place & !CACHED));
        }
        let pages = self.arena.get(place as usize..place as usize + pages_per_block as usize)?;
        Some(as_bytes(pages))
    }

    /// Copies a block that arrived: the paper's `cache`.
    pub fn keep(&mut self, block: u32, bytes: &[u8]) {
        *self.places.entry(block) = self.arena.len() as u32;
        append(&mut self.arena, bytes);
    }

    /// Whether the cache holds `block`.
    pub fn is_cached(&self, block: u32) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.find(block).is_some())
    }

    /// Takes up a block from the cache, if it is there.
    pub fn take_cached(&mut self, block: u32) -> bool {
        let place = self.cache.as_ref().and_then(|cache| cache.find(block));
        if let Some(place) = place {
            *self.places.entry(block) = place | CACHED;
        }
        place.is_some()
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
