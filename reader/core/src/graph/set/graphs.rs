//! The graphs of a search: that of an index, or those of a set, with slots that are counted one graph after the other.
//!
//! Each graph begins at a whole block, so that blocks and nodes are found by the same arithmetic in all. Between the last
//! vertex of a graph and the next graph there may be slots without vertices, to which no edge leads.

use std::ops::Range;

use crate::codes::Codes;
use crate::error::Result;
use crate::graph::entries::Entries;
use crate::graph::file::{Graph, Layout, Node};
use crate::graph::navigation::Navigation;
use crate::search::parts::Parts;

/// One of the graphs, and what its index has for it in memory.
pub(crate) struct Member<'a> {
    pub graph: &'a Graph,
    pub codes: &'a Codes,
    pub entries: &'a Entries,
    pub navigation: Option<&'a Navigation>,
    /// Page of all files where its graph.imx begins.
    pub first_page: u64,
}

/// All of them. They have the codebook in common, and the format of nodes.
pub(crate) type Graphs<'a> = Parts<Member<'a>>;

impl<'a> Graphs<'a> {
    /// What is common to all: the format of nodes and of blocks, not how many there are.
    pub fn layout(&self) -> &'a Layout {
        &self.any().graph.layout
    }

    /// Number of the graph that has a block.
    pub fn with_block(&self, block: u32) -> usize {
        self.number_of(block * self.layout().nodes_per_block)
    }

    /// First block of the graph that has a block, and the graph.
    fn member_with(&self, block: u32) -> (u32, &Member<'a>) {
        if self.is_one() {
            return (0, self.any());
        }
        let (start, member) = self.get(self.with_block(block));
        (self.layout().block_of(start), member)
    }

    /// Slots of the vertices of a block.
    pub fn slots_of(&self, block: u32) -> Range<u32> {
        let (first_block, member) = self.member_with(block);
        let (_, count) = member.graph.layout.slots_of(block - first_block);
        let first = block * member.graph.layout.nodes_per_block;
        first..first + count
    }

    /// Page of all files where a block begins.
    pub fn page_of(&self, block: u32) -> u64 {
        let (first_block, member) = self.member_with(block);
        member.first_page + member.graph.layout.page_of(block - first_block)
    }

    /// See [`Graph::check_block`].
    pub fn check_block(&self, block: u32, bytes: &[u8]) -> Result<()> {
        let (first_block, member) = self.member_with(block);
        member.graph.check_block(block - first_block, bytes)
    }

    /// See [`Graph::prefetch_check`].
    pub fn prefetch_check(&self, block: u32) {
        let (first_block, member) = self.member_with(block);
        member.graph.prefetch_check(block - first_block);
    }
}

impl Member<'_> {
    /// The node of `slot` of this graph alone; see [`Layout::node`].
    pub fn node<'b>(&self, block: &'b [u8], slot: u32) -> Result<Node<'b>> {
        self.graph.layout.node(&self.graph.path, block, slot)
    }
}
