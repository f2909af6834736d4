//! The page heap H of page search: the blocks of a query in memory, and their vertices by exact distance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::cache::{AlignedPage, Cache, append, as_bytes};
use crate::search::nearest::slot_of;
use crate::search::stamped::Stamped;

/// Pages for which an idle query state keeps memory: 1 MiB, more than a search with L = 200 reads.
const KEPT_PAGES: usize = 256;
/// Measured vertices for which it keeps memory, 8 bytes each.
const KEPT_VERTICES: usize = 1 << 14;
/// Flag in the place of a block that lies in the cache.
const CACHED: u32 = 1 << 31;

/// Blocks of one query. Memory: `4096 * pages_read` bytes, about 50 bytes a block to find it, and under `page` and
/// `pipeline` 8 bytes a measured vertex. A block that `beam` or `completion` reads twice is held twice.
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

    /// Whether it holds far more memory than searches usually need.
    pub fn is_large(&self) -> bool {
        self.arena.capacity() > KEPT_PAGES || self.nearest_first.capacity() > KEPT_VERTICES
    }

    /// Whether `block` is in memory.
    pub fn contains(&self, block: u32) -> bool {
        self.places.get(block).is_some()
    }

    /// A block in memory: the paper's `check2ret`.
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

    /// Takes a block from the cache; false if the cache lacks it.
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
