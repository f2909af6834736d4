//! All nodes of graph.imx in memory, checked once, for pages that are composed of them (`remap`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::file::{Graph, Layout};
use crate::distance::prefetch_row;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::memory::reserve;
use crate::pagefile::PAGE_BYTES;

/// Blocks read at a time.
const BLOCKS_AT_ONCE: usize = 256;

/// The blocks of a graph as they are in its file; memory: as large as they.
///
/// Every page fits its checksum, every degree is at most R and every neighbour is below n.
pub struct Nodes {
    /// Where nodes are.
    pub layout: Layout,
    bytes: Vec<u8>,
}

impl Nodes {
    /// Reads all blocks through the page cache. `interrupted` is asked now and then.
    pub fn load(graph: &Graph, interrupted: &mut dyn FnMut() -> bool) -> Result<Self> {
        let (path, layout) = (&graph.path, graph.layout.clone());
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        if FileId::of(path, &file)? != graph.file_id {
            let replaced = io::Error::other("it was replaced since it was opened; open the index again");
            return Err(Error::io(path, "open", replaced));
        }
        let block_bytes = layout.block_bytes();
        let total = block_bytes.saturating_mul(layout.n_blocks() as usize);
        let mut bytes: Vec<u8> = reserve(path, total)?;
        bytes.resize(total, 0);
        let mut block = 0;
        for chunk in bytes.chunks_mut(BLOCKS_AT_ONCE * block_bytes) {
            if interrupted() {
                return Err(Error::Interrupted);
            }
            let page = layout.page_of(block);
            let read = file.read_exact_at(chunk, page * PAGE_BYTES as u64);
            read.map_err(|e| Error::io(path, format!("read page {page}"), e))?;
            for content in chunk.chunks_exact(block_bytes) {
                check(graph, block, content)?;
                block += 1;
            }
        }
        Ok(Nodes { layout, bytes })
    }

    /// The node of `slot`, `node_bytes` long.
    pub fn node(&self, slot: u32) -> &[u8] {
        &self.bytes[self.start(slot)..][..self.layout.node_bytes]
    }

    /// Asks for the memory of a node that is copied soon.
    pub fn prefetch(&self, slot: u32) {
        prefetch_row(self.bytes.as_ptr().wrapping_add(self.start(slot)), self.layout.node_bytes);
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn start(&self, slot: u32) -> usize {
        let place = (slot % self.layout.nodes_per_block) as usize * self.layout.node_bytes;
        self.layout.block_of(slot) as usize * self.layout.block_bytes() + place
    }
}

fn check(graph: &Graph, block: u32, content: &[u8]) -> Result<()> {
    graph.check_block(block, content)?;
    let (first, count) = graph.layout.slots_of(block);
    (first..first + count).try_for_each(|slot| graph.layout.node(&graph.path, content, slot).map(|_| ()))
}
