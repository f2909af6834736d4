//! The page heap H of page search: the blocks of a query in memory, and their vertices by exact distance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

use super::cache::{AlignedPage, Cache, append, as_bytes, overwrite};
use crate::error::Result;
use crate::search::nearest::slot_of;
use crate::search::stamped::Stamped;

/// Pages for which an idle query state keeps memory: 1 MiB, more than a search with L = 200 reads.
const KEPT_PAGES: usize = 256;
/// Measured vertices for which it keeps memory, 8 bytes each.
const KEPT_VERTICES: usize = 1 << 14;
/// Vertices that are put in order at a time, at least, and the part of all that are.
const ORDERED: usize = 32;
const ORDERED_PART: usize = 8;
/// Flag in the place of a block that lies in the cache.
const CACHED: u32 = 1 << 31;
/// Place of a block that was released.
const RELEASED: u32 = u32::MAX;

/// Blocks of one query. Memory: `4096 * pages_read` bytes, or those of the reads in flight where a block holds one node,
/// about 50 bytes a block to find it, and under `page` and `pipeline` 8 bytes a measured vertex. A block of several nodes
/// that `beam` or `completion` reads twice is held twice.
#[derive(Default)]
pub(super) struct PageHeap {
    arena: Vec<AlignedPage>,
    /// First pages in the arena of released blocks, for later ones.
    free: Vec<u32>,
    cache: Option<Arc<Cache>>,
    /// Block to its first page in the arena, or to its place in the cache.
    places: Stamped,
    nearest_first: Vertices,
}

/// Keys, of which the smallest can be taken. Few of them are, so that most are never put in order.
#[derive(Default)]
struct Vertices {
    /// All that are less than `bound`.
    near: BinaryHeap<Reverse<u64>>,
    /// The others, in no order.
    far: Vec<u64>,
    bound: u64,
}

impl Vertices {
    fn clear(&mut self) {
        self.near.clear();
        self.far.clear();
        self.bound = 0;
    }

    fn capacity(&self) -> usize {
        self.near.capacity() + self.far.capacity()
    }

    fn push(&mut self, key: u64) {
        if key < self.bound { self.near.push(Reverse(key)) } else { self.far.push(key) }
    }

    fn pop(&mut self) -> Option<u64> {
        if self.near.is_empty() && !self.far.is_empty() {
            let n = (self.far.len() / ORDERED_PART).max(ORDERED).min(self.far.len());
            let (_, &mut last, _) = self.far.select_nth_unstable(n - 1);
            self.bound = last.saturating_add(1);
            self.near.extend(self.far.drain(..n).map(Reverse));
        }
        self.near.pop().map(|Reverse(key)| key)
    }
}

impl PageHeap {
    /// Forgets everything; memory is kept.
    pub fn reset(&mut self, cache: Option<&Arc<Cache>>) {
        self.cache = cache.cloned();
        self.arena.clear();
        self.free.clear();
        self.places.reset();
        self.nearest_first.clear();
    }

    /// Whether it holds far more memory than searches usually need.
    pub fn is_large(&self) -> bool {
        self.arena.capacity() > KEPT_PAGES || self.nearest_first.capacity() > KEPT_VERTICES
    }

    /// Whether `block` is in memory.
    pub fn contains(&self, block: u32) -> bool {
        self.place_of(block).is_some()
    }

    fn place_of(&self, block: u32) -> Option<u32> {
        self.places.get(block).filter(|&place| place != RELEASED)
    }

    /// A block in memory: the paper's `check2ret`.
    pub fn block(&self, block: u32, pages_per_block: u32) -> Option<&[u8]> {
        let place = self.place_of(block)?;
        if place & CACHED != 0 {
            return self.cache.as_ref().map(|cache| cache.content(place & !CACHED));
        }
        let pages = self.arena.get(place as usize..place as usize + pages_per_block as usize)?;
        Some(as_bytes(pages))
    }

    /// Copies a block of the file at `path` that arrived: the paper's `cache`.
    pub fn keep(&mut self, path: &Path, block: u32, bytes: &[u8]) -> Result<()> {
        let end = self.arena.len() as u32;
        let place = match self.free.pop() {
            Some(place) => {
                overwrite(&mut self.arena[place as usize..], bytes);
                place
            }
            None => {
                append(path, &mut self.arena, bytes)?;
                end
            }
        };
        *self.places.entry(block) = place;
        Ok(())
    }

    /// Lets go of a block that is needed no more, unless it lies in the cache; the next one takes its place in memory.
    pub fn release(&mut self, block: u32) {
        if let Some(place) = self.place_of(block).filter(|place| place & CACHED == 0) {
            self.free.push(place);
            *self.places.entry(block) = RELEASED;
        }
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
        self.nearest_first.push(key);
    }

    /// Takes the nearest vertex: the paper's `pop`.
    pub fn pop(&mut self) -> Option<u32> {
        self.nearest_first.pop().map(slot_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PAGE_BYTES;
    use crate::testing::Random;

    #[test]
    fn vertices_are_taken_in_the_order_of_a_heap() {
        let (mut random, mut vertices, mut heap) = (Random::new(8), Vertices::default(), BinaryHeap::new());
        for share in [1, 2, 5, 30, 2, 1] {
            vertices.clear();
            heap.clear();
            for _ in 0..3000 {
                if random.below(share + 1) > 0 {
                    let key = random.next();
                    vertices.push(key);
                    heap.push(Reverse(key));
                } else {
                    assert_eq!(vertices.pop(), heap.pop().map(|Reverse(key)| key));
                }
            }
            while let Some(Reverse(key)) = heap.pop() {
                assert_eq!(vertices.pop(), Some(key));
            }
            assert_eq!(vertices.pop(), None);
        }
    }

    #[test]
    fn released_blocks_make_room_for_later_ones() {
        let (path, mut heap) = (Path::new("graph.imx"), PageHeap::default());
        heap.reset(None);
        for pages in [1usize, 2] {
            heap.reset(None);
            let content = |block: u32| vec![block as u8; pages * PAGE_BYTES];
            for block in 0..50 {
                heap.keep(path, block, &content(block)).unwrap();
                heap.keep(path, 100 + block, &content(block + 100)).unwrap();
                assert_eq!(heap.block(block, pages as u32), Some(&content(block)[..]));
                heap.release(block);
                heap.release(block);
                assert!(!heap.contains(block) && heap.block(block, pages as u32).is_none());
                for kept in 0..=block {
                    assert_eq!(heap.block(100 + kept, pages as u32), Some(&content(kept + 100)[..]));
                }
            }
            assert_eq!(heap.arena.len(), 51 * pages);
            heap.keep(path, 7, &content(7)).unwrap();
            assert_eq!(heap.block(7, pages as u32), Some(&content(7)[..]), "read again");
        }
    }
}
