//! Blocks of hot vertices kept in memory, within a byte limit, chosen once and shared by all searches.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use super::page_heap::{AlignedPage, append, as_bytes};
use super::{Queries, SearchParams};
use crate::bytes::u32s;
use crate::error::Result;
use crate::index::Index;

/// Reads in flight while a cache is filled.
const DEPTH: usize = 64;

/// Whole blocks: `block_bytes + 4` bytes each.
#[derive(Default)]
pub struct Cache {
    pages_per_block: usize,
    /// Ascending; block i of it lies at page `i * pages_per_block`.
    blocks: Vec<u32>,
    pages: Vec<AlignedPage>,
}

impl Cache {
    /// Place of a block.
    pub(super) fn find(&self, block: u32) -> Option<u32> {
        self.blocks.binary_search(&block).ok().map(|i| i as u32)
    }

    /// Content of the block at a place.
    pub(super) fn content(&self, place: u32) -> &[u8] {
        as_bytes(&self.pages[place as usize * self.pages_per_block..][..self.pages_per_block])
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Memory of the blocks and their directory.
    pub fn bytes(&self) -> usize {
        as_bytes(&self.pages).len() + 4 * self.blocks.len()
    }
}

impl Index {
    /// The cache that searches use now.
    pub fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Caches the blocks that a breadth-first walk from the entry vertices (medoid, then centroids) meets first, at
    /// most `bytes` of memory; 0 drops the cache. Searches that run already go on with what they had.
    pub fn cache_around_entries(&self, bytes: usize) -> Result<Arc<Cache>> {
        let limit = self.blocks_in(bytes);
        let mut loader = Loader::new(self, limit);
        let mut level: Vec<u32> = self.entries.slots().collect();
        let mut seen: HashSet<u32> = HashSet::new();
        level.retain(|&slot| seen.insert(slot));
        while !level.is_empty() && loader.found.len() < limit {
            loader.load(level.iter().map(|&slot| self.graph.layout.block_of(slot)))?;
            let mut next = Vec::new();
            for &slot in &level {
                let Some(block) = loader.found.get(&self.graph.layout.block_of(slot)) else { continue };
                let node = self.graph.layout.node(&self.graph.path, as_bytes(block), slot)?;
                next.extend(u32s(node.neighbours).filter(|&neighbour| seen.insert(neighbour)));
            }
            level = next;
        }
        Ok(self.install(loader))
    }

    /// Caches the blocks that a search for `queries` reads most often (ties: the smaller block), at most `bytes` of
    /// memory; 0 drops the cache. The training search itself uses no cache and counts in no statistics.
    pub fn cache_from_queries(
        &self,
        queries: &Queries<'_>,
        params: &SearchParams,
        bytes: usize,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Arc<Cache>> {
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for block in self.trace(queries, params, interrupted)? {
            *counts.entry(block).or_default() += 1;
        }
        let mut hottest: Vec<(u32, u32)> = counts.into_iter().map(|(block, count)| (u32::MAX - count, block)).collect();
        hottest.sort_unstable();
        let mut loader = Loader::new(self, self.blocks_in(bytes));
        loader.load(hottest.into_iter().map(|(_, block)| block))?;
        Ok(self.install(loader))
    }

    fn blocks_in(&self, bytes: usize) -> usize {
        (bytes / (self.graph.layout.block_bytes() + 4)).min(self.graph.layout.n_blocks() as usize)
    }

    fn install(&self, loader: Loader<'_>) -> Arc<Cache> {
        let mut found: Vec<_> = loader.found.into_iter().collect();
        found.sort_unstable_by_key(|(block, _)| *block);
        let mut cache = Cache { pages_per_block: self.graph.layout.pages_per_block as usize, ..Cache::default() };
        for (block, pages) in found {
            cache.blocks.push(block);
            cache.pages.extend(pages);
        }
        let cache = Arc::new(cache);
        let in_use = (!cache.is_empty()).then(|| cache.clone());
        *self.cache.write().unwrap_or_else(PoisonError::into_inner) = in_use;
        cache
    }
}

/// Reads and checks blocks until the limit is reached.
struct Loader<'a> {
    index: &'a Index,
    limit: usize,
    found: HashMap<u32, Vec<AlignedPage>>,
}

impl<'a> Loader<'a> {
    fn new(index: &'a Index, limit: usize) -> Self {
        Loader { index, limit, found: HashMap::new() }
    }

    /// Loads the blocks that are not there yet, in order, as far as there is room.
    fn load(&mut self, blocks: impl Iterator<Item = u32>) -> Result<()> {
        let mut wanted = Vec::new();
        let mut new = HashSet::new();
        for block in blocks {
            if self.found.len() + wanted.len() == self.limit {
                break;
            }
            if !self.found.contains_key(&block) && new.insert(block) {
                wanted.push(block);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let (graph, mut done) = (&self.index.graph, Vec::new());
        let mut engine = self.index.engine.start(&self.index.file, DEPTH, graph.layout.block_bytes())?;
        for batch in wanted.chunks(DEPTH) {
            for (slot, &block) in batch.iter().enumerate() {
                engine.queue(slot, graph.layout.page_of(block))?;
            }
            done.clear();
            while done.len() < batch.len() {
                engine.reap(&mut done)?;
            }
            for (slot, &block) in batch.iter().enumerate() {
                let (bytes, mut pages) = (engine.buffer(slot), Vec::new());
                graph.check_block(block, bytes)?;
                append(&mut pages, bytes);
                self.found.insert(block, pages);
            }
        }
        Ok(())
    }
}
