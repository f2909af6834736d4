//! A cache of the blocks of hot vertices: chosen once, within a byte limit, and shared by all searches.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::file::{Graph, Layout};
use crate::bytes::u32s;
use crate::engine::{Engine, Start, Storage};
use crate::error::Result;
use crate::interrupt::{Stop, go_on};
use crate::memory::{self, reserve};
use crate::pagefile::PAGE_BYTES;

/// A page in memory, aligned so that vectors in it can be read in place.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct AlignedPage([u8; PAGE_BYTES]);

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
    /// Caches the blocks that a breadth-first walk from `entries` meets first, in at most `bytes` of memory.
    pub(super) fn around(
        graph: &Graph,
        storage: &Storage,
        entries: impl Iterator<Item = u32>,
        bytes: usize,
        interrupted: Stop<'_>,
    ) -> Result<Self> {
        let limit = Self::blocks_in(bytes, &graph.layout);
        let mut loader = Loader::new(graph, storage, limit)?;
        let mut seen: HashSet<u32> = HashSet::new();
        let mut level: Vec<u32> = entries.filter(|&slot| seen.insert(slot)).collect();
        while !level.is_empty() && loader.places.len() < limit {
            loader.load(level.iter().map(|&slot| graph.layout.block_of(slot)), interrupted)?;
            let mut next = Vec::new();
            for &slot in &level {
                let Some(block) = loader.content(graph.layout.block_of(slot)) else { continue };
                let node = graph.layout.node(&graph.path, block, slot)?;
                next.extend(u32s(node.neighbours).filter(|&neighbour| seen.insert(neighbour)));
            }
            level = next;
        }
        Ok(loader.finish())
    }

    /// Caches the first of `blocks`, in at most `bytes` of memory.
    pub(super) fn of_blocks(
        graph: &Graph,
        storage: &Storage,
        blocks: &[u32],
        bytes: usize,
        interrupted: Stop<'_>,
    ) -> Result<Self> {
        let mut loader = Loader::new(graph, storage, Self::blocks_in(bytes, &graph.layout).min(blocks.len()))?;
        loader.load(blocks.iter().copied(), interrupted)?;
        Ok(loader.finish())
    }

    /// Blocks that fit `bytes` of memory.
    pub(super) fn blocks_in(bytes: usize, layout: &Layout) -> usize {
        (bytes / (layout.block_bytes() + DIRECTORY_BYTES)).min(layout.n_blocks() as usize)
    }

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

/// Reads and checks blocks until the limit is reached.
struct Loader<'a> {
    graph: &'a Graph,
    storage: &'a Storage,
    limit: usize,
    /// Loaded blocks, and their places in `pages`, counted in blocks.
    places: HashMap<u32, u32>,
    pages: Vec<AlignedPage>,
    engine: Option<Box<dyn Engine>>,
}

impl<'a> Loader<'a> {
    fn new(graph: &'a Graph, storage: &'a Storage, limit: usize) -> Result<Self> {
        let pages = reserve(&graph.path, limit * graph.layout.pages_per_block as usize)?;
        Ok(Loader { graph, storage, limit, places: HashMap::new(), pages, engine: None })
    }

    /// A loaded block.
    fn content(&self, block: u32) -> Option<&[u8]> {
        let (place, n) = (*self.places.get(&block)? as usize, self.graph.layout.pages_per_block as usize);
        Some(as_bytes(&self.pages[place * n..][..n]))
    }

    /// Loads the missing ones of `blocks`, in order, until the limit is reached.
    fn load(&mut self, blocks: impl Iterator<Item = u32>, interrupted: Stop<'_>) -> Result<()> {
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
        let (graph, mut done) = (self.graph, Vec::new());
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(self.storage.start(DEPTH, graph.layout.block_bytes())?),
        };
        for batch in wanted.chunks(DEPTH) {
            for (slot, &block) in batch.iter().enumerate() {
                engine.queue(slot, graph.layout.page_of(block))?;
            }
            done.clear();
            while done.len() < batch.len() {
                go_on(interrupted)?;
                engine.reap(&mut done)?;
            }
            for (slot, &block) in batch.iter().enumerate() {
                graph.check_block(block, engine.buffer(slot))?;
                append(&graph.path, &mut self.pages, engine.buffer(slot))?;
                self.places.insert(block, self.places.len() as u32);
            }
        }
        Ok(())
    }

    /// The loaded blocks as a cache.
    fn finish(mut self) -> Cache {
        let mut places: Vec<(u32, u32)> = self.places.into_iter().collect();
        places.sort_unstable();
        self.pages.shrink_to_fit();
        Cache {
            pages_per_block: self.graph.layout.pages_per_block as usize,
            blocks: places.iter().map(|&(block, _)| block).collect(),
            places: places.iter().map(|&(_, place)| place).collect(),
            pages: self.pages,
        }
    }
}

/// Appends whole pages of the file at `path`, or returns an error where memory does not allow it.
pub(super) fn append(path: &Path, pages: &mut Vec<AlignedPage>, bytes: &[u8]) -> Result<()> {
    let (new, _) = bytes.as_chunks::<PAGE_BYTES>();
    memory::append(path, pages, new.iter().map(|page| AlignedPage(*page)))
}

/// Writes whole pages over others.
pub(super) fn overwrite(pages: &mut [AlignedPage], bytes: &[u8]) {
    let (new, _) = bytes.as_chunks::<PAGE_BYTES>();
    pages.iter_mut().zip(new).for_each(|(page, new)| page.0 = *new);
}

/// The bytes of whole pages.
pub(super) fn as_bytes(pages: &[AlignedPage]) -> &[u8] {
    // SAFETY: pages are contiguous bytes without padding (4096 is a multiple of 64).
    unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), pages.len() * PAGE_BYTES) }
}
