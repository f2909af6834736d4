//! Blocks of hot vertices kept in memory, within a byte limit, chosen once and shared by all searches.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use super::index::Index;
use super::page_heap::{AlignedPage, append, as_bytes};
use super::params::SearchParams;
use crate::bytes::u32s;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::memory::reserve;
use crate::pagefile::PAGE_BYTES;
use crate::search::Queries;

/// Reads in flight while a cache is filled.
const DEPTH: usize = 64;

/// Bytes of a cached block's number and place.
const DIRECTORY_BYTES: usize = 8;

/// Whole blocks: `block_bytes + 8` bytes each.
pub struct Cache {
    pages_per_block: usize,
    /// Ascending.
    blocks: Vec<u32>,
    /// Where each of `blocks` lies; place p is the pages from `p * pages_per_block`.
    places: Vec<u32>,
    pages: Vec<AlignedPage>,
}

impl Cache {
    /// Place of a block.
    pub(super) fn find(&self, block: u32) -> Option<u32> {
        self.blocks.binary_search(&block).ok().map(|i| self.places[i])
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
        self.pages.capacity() * PAGE_BYTES + DIRECTORY_BYTES * self.blocks.len()
    }
}

impl Index {
    /// The cache that searches use now.
    pub fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Caches the blocks that a breadth-first walk from the entry vertices (medoid, then centroids) meets first, at
    /// most `bytes` of memory; 0 drops the cache. Searches that run already go on with what they had.
    pub fn cache_around_entries(&self, bytes: usize, interrupted: &mut dyn FnMut() -> bool) -> Result<Arc<Cache>> {
        let limit = self.blocks_in(bytes);
        let mut loader = Loader::new(self, limit)?;
        let mut level: Vec<u32> = self.entries.slots().collect();
        let mut seen: HashSet<u32> = HashSet::new();
        level.retain(|&slot| seen.insert(slot));
        while !level.is_empty() && loader.places.len() < limit {
            loader.load(level.iter().map(|&slot| self.graph.layout.block_of(slot)), interrupted)?;
            let mut next = Vec::new();
            for &slot in &level {
                let Some(block) = loader.content(self.graph.layout.block_of(slot)) else { continue };
                let node = self.graph.layout.node(&self.graph.path, block, slot)?;
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
        let limit = self.blocks_in(bytes);
        if limit == 0 {
            return Ok(self.install(Loader::new(self, 0)?));
        }
        let mut counts: HashMap<u32, u32> = HashMap::new();
        for block in self.blocks_read(queries, params, interrupted)? {
            *counts.entry(block).or_default() += 1;
        }
        let mut hottest: Vec<(u32, u32)> = counts.into_iter().map(|(block, count)| (u32::MAX - count, block)).collect();
        hottest.sort_unstable();
        let mut loader = Loader::new(self, limit.min(hottest.len()))?;
        loader.load(hottest.into_iter().map(|(_, block)| block), interrupted)?;
        Ok(self.install(loader))
    }

    fn blocks_in(&self, bytes: usize) -> usize {
        (bytes / (self.graph.layout.block_bytes() + DIRECTORY_BYTES)).min(self.graph.layout.n_blocks() as usize)
    }

    fn install(&self, mut loader: Loader<'_>) -> Arc<Cache> {
        let mut places: Vec<(u32, u32)> = loader.places.into_iter().collect();
        places.sort_unstable();
        loader.pages.shrink_to_fit();
        let cache = Arc::new(Cache {
            pages_per_block: self.graph.layout.pages_per_block as usize,
            blocks: places.iter().map(|&(block, _)| block).collect(),
            places: places.iter().map(|&(_, place)| place).collect(),
            pages: loader.pages,
        });
        let in_use = (!cache.is_empty()).then(|| cache.clone());
        *self.cache.write().unwrap_or_else(PoisonError::into_inner) = in_use;
        cache
    }
}

/// Reads and checks blocks until the limit is reached.
struct Loader<'a> {
    index: &'a Index,
    limit: usize,
    /// Blocks that are there, and where in `pages`, counted in blocks.
    places: HashMap<u32, u32>,
    pages: Vec<AlignedPage>,
    engine: Option<Box<dyn Engine>>,
}

impl<'a> Loader<'a> {
    fn new(index: &'a Index, limit: usize) -> Result<Self> {
        let pages = reserve(&index.graph.path, limit * index.graph.layout.pages_per_block as usize)?;
        Ok(Loader { index, limit, places: HashMap::new(), pages, engine: None })
    }

    /// A block that is there.
    fn content(&self, block: u32) -> Option<&[u8]> {
        let (place, n) = (*self.places.get(&block)? as usize, self.index.graph.layout.pages_per_block as usize);
        Some(as_bytes(&self.pages[place * n..][..n]))
    }

    /// Loads the blocks that are not there yet, in order, as far as there is room.
    fn load(&mut self, blocks: impl Iterator<Item = u32>, interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        let mut wanted = Vec::new();
        let mut new = HashSet::new();
        for block in blocks {
            if self.places.len() + wanted.len() == self.limit {
                break;
            }
            if !self.places.contains_key(&block) && new.insert(block) {
                wanted.push(block);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let (graph, mut done) = (&self.index.graph, Vec::new());
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(self.index.engine.start(&self.index.file, DEPTH, graph.layout.block_bytes())?),
        };
        for batch in wanted.chunks(DEPTH) {
            if interrupted() {
                return Err(Error::Interrupted);
            }
            for (slot, &block) in batch.iter().enumerate() {
                engine.queue(slot, graph.layout.page_of(block))?;
            }
            done.clear();
            while done.len() < batch.len() {
                engine.reap(&mut done)?;
            }
            for (slot, &block) in batch.iter().enumerate() {
                graph.check_block(block, engine.buffer(slot))?;
                append(&mut self.pages, engine.buffer(slot));
                self.places.insert(block, self.places.len() as u32);
            }
        }
        Ok(())
    }
}
