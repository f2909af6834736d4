//! All nodes of graph.imx in memory, checked once, with the exact vectors if they lie apart, and pages of another order
//! that are composed of the nodes.

use std::fs::FileType;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::file::{Graph, Layout};
use crate::distance::prefetch_row;
use crate::engine::{DataFile, Fill};
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::files;
use crate::interrupt::{Stop, go_on};
use crate::memory::reserve;
use crate::pagefile::{PAGE_BYTES, PageFile};
use crate::vectors::Vectors;

/// Blocks read at a time.
const BLOCKS_AT_ONCE: usize = 256;

/// The blocks of a graph as in its file, all in memory.
///
/// Checked: every page fits its checksum, every degree is at most R and every neighbour is below n.
pub struct Nodes {
    /// Where nodes are.
    pub layout: Layout,
    bytes: Vec<u8>,
    /// All vectors of vectors.imx, in memory.
    pub vectors: Option<Vectors>,
}

impl Nodes {
    /// Reads all blocks through the page cache, and then the exact vectors. `interrupted` is asked now and then.
    pub fn load(graph: &Graph, apart: Option<&Vectors>, interrupted: Stop<'_>) -> Result<Self> {
        let (path, layout) = (&graph.path, graph.layout.clone());
        let opened = files::open(path, 0, FileType::is_file).map_err(|e| Error::io(path, "open", e))?;
        let Some(file) = opened else { return Err(replaced(path)) };
        check_same(path, FileId::of(path, &file)?, graph.file_id)?;
        let block_bytes = layout.block_bytes();
        let total = block_bytes.saturating_mul(layout.n_blocks() as usize);
        let mut bytes: Vec<u8> = reserve(path, total)?;
        let mut block = 0;
        while bytes.len() < total {
            go_on(interrupted)?;
            let (start, page) = (bytes.len(), layout.page_of(block));
            bytes.resize(total.min(start + BLOCKS_AT_ONCE * block_bytes), 0);
            let read = file.read_exact_at(&mut bytes[start..], page * PAGE_BYTES as u64);
            read.map_err(|e| Error::unread(path, page, e))?;
            for content in bytes[start..].chunks_exact(block_bytes) {
                check(graph, block, content)?;
                block += 1;
            }
        }
        let load = |apart: &Vectors| {
            let file = PageFile::open(&apart.path, b"VECT")?;
            check_same(&apart.path, file.id()?, apart.file_id)?;
            Vectors::new(&file, true, interrupted)
        };
        let vectors = apart.map(load).transpose()?;
        Ok(Nodes { layout, bytes, vectors })
    }

    /// The node of `slot`, `node_bytes` long.
    pub fn node(&self, slot: u32) -> &[u8] {
        &self.bytes[self.start(slot)..][..self.layout.node_bytes]
    }

    /// Prefetches a node that is copied soon.
    pub fn prefetch(&self, slot: u32) {
        prefetch_row(self.bytes.as_ptr().wrapping_add(self.start(slot)), self.layout.node_bytes);
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64 + self.vectors.as_ref().map_or(0, Vectors::memory_bytes)
    }

    fn start(&self, slot: u32) -> usize {
        self.layout.block_of(slot) as usize * self.layout.block_bytes() + self.layout.start_of(slot)
    }
}

/// Pages in another order than the file's. Memory: 8 bytes a vertex, and the nodes, which views share.
pub struct Pages {
    pub nodes: Arc<Nodes>,
    /// Slot in the file of each slot.
    pub order: Arc<Vec<u32>>,
    /// Slot of each slot in the file.
    pub slots: Vec<u32>,
    /// The files of the index, of which graph.imx is the first. What lies behind it has its own order.
    pub files: Arc<DataFile>,
}

impl Pages {
    /// Memory of the maps alone.
    pub fn map_bytes(&self) -> u64 {
        (size_of_val(&**self.order) + size_of_val(&*self.slots)) as u64
    }
}

impl Fill for Pages {
    fn fill(&self, page: u64, block: &mut [u8]) -> Result<()> {
        if self.files.locate(self.files.offset_of(page)).0 > 0 {
            // SAFETY: the block is the caller's.
            return unsafe { self.files.read_block(&*self.files, block.as_mut_ptr(), block.len(), page) };
        }
        let (nodes, layout) = (&self.nodes, &self.nodes.layout);
        let (first, count) = layout.slots_of(layout.block_at(page));
        let homes = &self.order[first as usize..][..count as usize];
        // Nodes are scattered: prefetching all of them first hides most of the waiting.
        homes.iter().for_each(|&home| nodes.prefetch(home));
        for (node, &home) in block[layout.first_node()..].chunks_exact_mut(layout.node_bytes).zip(homes) {
            node.copy_from_slice(nodes.node(home));
            let (words, _) = node[layout.vector_bytes..].as_chunks_mut::<4>();
            let Some((degree, neighbours)) = words.split_first_mut() else { continue };
            for neighbour in neighbours.iter_mut().take(u32::from_le_bytes(*degree) as usize) {
                *neighbour = self.slots[u32::from_le_bytes(*neighbour) as usize].to_le_bytes();
            }
        }
        Ok(())
    }
}

/// A file is still the one that was opened with the index.
fn check_same(path: &Path, found: FileId, opened: FileId) -> Result<()> {
    if found == opened { Ok(()) } else { Err(replaced(path)) }
}

fn replaced(path: &Path) -> Error {
    Error::replaced(path, "it was replaced since it was opened")
}

fn check(graph: &Graph, block: u32, content: &[u8]) -> Result<()> {
    graph.check_block(block, content)?;
    let (first, count) = graph.layout.slots_of(block);
    (first..first + count).try_for_each(|slot| graph.layout.node(&graph.path, content, slot).map(|_| ()))
}
