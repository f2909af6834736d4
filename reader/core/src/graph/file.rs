//! graph.imx: node blocks in slot order (docs/formats/graph.md).

use std::path::{Path, PathBuf};

use crate::bytes::{f32s, u32_at, u32s};
use crate::checksum;
use crate::directory::Directory;
use crate::distance::{prefetch_line, prefetch_row};
use crate::error::{Error, Place, Result};
use crate::file_id::FileId;
use crate::interrupt::Stop;
use crate::metric::Metric;
use crate::pagefile::{PAGE_BYTES, PageFile, check_page};
use crate::stored::{Dtype, Stored, read_dim, read_space};

/// Name of the file.
pub const GRAPH_FILE: &str = "graph.imx";

/// Bytes of a block's own checksum.
const CHECKSUM_BYTES: usize = 4;
/// Most bytes of a code.
const MAX_CODE_BYTES: u64 = 512;

/// Where nodes are and how they are laid out.
///
/// A *block* is the unit of reading: one page of `nodes_per_block` nodes, or the `pages_per_node` pages of one node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Layout {
    /// n.
    pub n_vertices: u32,
    /// Dimensions of the stored vector.
    pub dim: usize,
    /// Component type.
    pub dtype: Dtype,
    /// R.
    pub max_degree: usize,
    /// Bytes of the vector, padded to a multiple of 4.
    pub vector_bytes: usize,
    /// Bytes of the code that each neighbour has in the node; 0 where codes are in memory.
    pub code_bytes: usize,
    /// Bytes of a node.
    pub node_bytes: usize,
    /// Nodes of a block, at least 1.
    pub nodes_per_block: u32,
    /// Pages of a block, at least 1.
    pub pages_per_block: u32,
    /// Page of the file where block 0 starts.
    pub first_page: u64,
}

/// One node of a checked block.
#[non_exhaustive]
pub struct Node<'a> {
    /// Its vector, `vector_bytes` long.
    pub vector: &'a [u8],
    /// Its neighbour list, little-endian slots, all below n.
    pub neighbours: &'a [u8],
    /// Their codes, one after the other; empty where codes are in memory.
    pub codes: &'a [u8],
}

impl Layout {
    /// Block that holds `slot`.
    pub fn block_of(&self, slot: u32) -> u32 {
        slot / self.nodes_per_block
    }

    /// First slot of `block` and the number of its nodes (fewer on the last page).
    pub fn slots_of(&self, block: u32) -> (u32, u32) {
        let first = block * self.nodes_per_block;
        (first, self.nodes_per_block.min(self.n_vertices - first))
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.pages_per_block as usize * PAGE_BYTES
    }

    /// Page of the file where `block` starts.
    pub fn page_of(&self, block: u32) -> u64 {
        self.first_page + block as u64 * self.pages_per_block as u64
    }

    /// Block that starts at `page` of the file.
    pub fn block_at(&self, page: u64) -> u32 {
        ((page - self.first_page) / u64::from(self.pages_per_block)) as u32
    }

    /// Number of blocks.
    pub fn n_blocks(&self) -> u32 {
        self.n_vertices.div_ceil(self.nodes_per_block)
    }

    /// Whether nodes hold the codes of their neighbours. Then each block begins with its own checksum.
    pub fn has_codes(&self) -> bool {
        self.code_bytes > 0
    }

    /// Where the first node of a block begins.
    pub fn first_node(&self) -> usize {
        if self.has_codes() { CHECKSUM_BYTES } else { 0 }
    }

    /// Where the node of `slot` begins in its block.
    pub fn start_of(&self, slot: u32) -> usize {
        self.first_node() + (slot % self.nodes_per_block) as usize * self.node_bytes
    }

    /// Vector of `slot` inside its block.
    pub fn vector<'a>(&self, block: &'a [u8], slot: u32) -> &'a [u8] {
        let start = self.start_of(slot);
        &block[start..start + self.vector_bytes]
    }

    /// Prefetches what follows the vector of `slot` in its block.
    pub(super) fn prefetch_neighbours(&self, block: &[u8], slot: u32) {
        let start = self.start_of(slot) + self.vector_bytes;
        prefetch_row(block.as_ptr().wrapping_add(start), self.node_bytes - self.vector_bytes);
    }

    /// Node of `slot` inside its block, with its degree and neighbours checked.
    pub fn node<'a>(&self, path: &Path, block: &'a [u8], slot: u32) -> Result<Node<'a>> {
        let start = self.start_of(slot);
        let (vector, rest) = block[start..start + self.node_bytes].split_at(self.vector_bytes);
        let degree = u32_at(rest, 0) as usize;
        let place = || Place::in_page(self.page_of(self.block_of(slot)), format!("slot {slot}"));
        if degree > self.max_degree {
            return Err(Error::corrupt(path, place(), format!("a degree of at most {}", self.max_degree), degree));
        }
        let neighbours = &rest[4..4 + 4 * degree];
        // All of them, because a loop that may end early is not vectorized.
        let greatest = u32s(neighbours).fold(0, u32::max);
        if greatest >= self.n_vertices {
            let expected = format!("neighbours below {}", self.n_vertices);
            return Err(Error::corrupt(path, place(), expected, greatest));
        }
        let codes = &rest[4 + 4 * self.max_degree..][..degree * self.code_bytes];
        Ok(Node { vector, neighbours, codes })
    }
}

/// An opened graph.imx: header, scale (8 bytes a dimension) and, unless blocks have their own, checksums (4 bytes a page)
/// in memory, no nodes.
///
/// Layout and scale are those of the file for good, for kernels read as many bytes as they say:
///
/// ```compile_fail,E0616
/// fn widen(graph: &mut indexmill_core::graph::Graph) {
///     graph.layout.dim *= 2;
/// }
/// ```
///
/// ```compile_fail,E0616
/// fn forget(graph: &mut indexmill_core::graph::Graph) {
///     graph.scale.clear();
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Graph {
    /// Where it is.
    pub path: PathBuf,
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// Identity of the file.
    pub(crate) file_id: FileId,
    /// Where nodes are; `vector_bytes` covers `dim` components of the type.
    pub(crate) layout: Layout,
    /// What "near" means.
    pub metric: Metric,
    /// Largest norm of an input vector (metric ip; else 0).
    pub max_norm: f64,
    /// `min[dim]` then `step[dim]` of scaled types; else empty.
    scale: Vec<f32>,
    checks: Checks,
}

/// What a block that was read is compared with.
#[derive(Debug, Clone)]
enum Checks {
    /// The checksum of each page.
    Held(Vec<u32>),
    /// The block's own checksum.
    Own,
    /// Nothing: blocks are composed in memory of checked ones.
    Composed,
}

impl Graph {
    /// Opens graph.imx of a directory and checks every field against the size of its section.
    pub fn open(directory: &Directory, interrupted: Stop<'_>) -> Result<Self> {
        let file = PageFile::open_in(directory, GRAPH_FILE, b"GRPH")?;
        let (metric, dtype, max_norm) = read_space(&file, Dtype::COUNT)?;
        let layout = read_layout(&file, metric, dtype)?;
        let checks = if layout.has_codes() { Checks::Own } else { Checks::Held(file.load_checksums(interrupted)?) };
        let mut scale = Vec::new();
        if layout.dtype.is_scaled() {
            let section = file.section("scale", Some(8 * layout.dim as u64))?;
            scale.extend(f32s(&file.read_alone(&section, interrupted)?));
            if scale.iter().any(|x| !x.is_finite()) {
                return Err(Error::corrupt(&file.path, "section \"scale\"", "finite numbers", "others"));
            }
        }
        let (build_id, file_id) = (file.header.build_id, file.id()?);
        Ok(Graph { path: file.path, build_id, file_id, layout, metric, max_norm, scale, checks })
    }

    /// The same graph as another build, with blocks that are composed in memory.
    pub(crate) fn composed(&self, build_id: [u8; 16]) -> Self {
        let Graph { ref path, file_id, ref layout, metric, max_norm, ref scale, .. } = *self;
        let (path, layout, scale, checks) = (path.clone(), layout.clone(), scale.clone(), Checks::Composed);
        Graph { path, build_id, file_id, layout, metric, max_norm, scale, checks }
    }

    /// Where nodes are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Dimensions of a query: one less than stored under inner product.
    pub fn user_dim(&self) -> usize {
        self.stored().user_dim()
    }

    /// What the vectors of nodes are.
    pub(crate) fn stored(&self) -> Stored<'_> {
        let Layout { dim, dtype, vector_bytes, .. } = self.layout;
        Stored { dim, dtype, metric: self.metric, vector_bytes, scale: &self.scale }
    }

    /// Memory it takes: 4 bytes a page, unless blocks have their own checksums, and 8 a dimension of scaled types.
    pub fn memory_bytes(&self) -> u64 {
        let checksums = if let Checks::Held(all) = &self.checks { size_of_val(&**all) } else { 0 };
        (checksums + size_of_val(&*self.scale)) as u64
    }

    /// Prefetches what a block is compared with that will be read.
    pub(super) fn prefetch_check(&self, block: u32) {
        if let Checks::Held(checksums) = &self.checks {
            prefetch_line(checksums.as_ptr().wrapping_add(self.layout.page_of(block) as usize - 1).cast());
        }
    }

    /// Checks the pages of a block that was read.
    pub fn check_block(&self, block: u32, bytes: &[u8]) -> Result<()> {
        let first = self.layout.page_of(block);
        let checksums = match &self.checks {
            Checks::Held(checksums) => checksums,
            Checks::Own => return check_own(&self.path, block, first, bytes),
            Checks::Composed => return Ok(()),
        };
        for (i, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            let number = first + i as u64;
            check_page(&self.path, number, page, checksums.get(number as usize - 1).copied().unwrap_or(0))?;
        }
        Ok(())
    }
}

/// Compares a block with what it begins with: its checksum, in which the bits of its number are flipped, so that no other
/// block passes for it. `page` is its first.
fn check_own(path: &Path, number: u32, page: u64, block: &[u8]) -> Result<()> {
    let (want, got) = (u32_at(block, 0), checksum::of_block(block) ^ number);
    if want != got {
        let (expected, got) = (format!("CRC32C {want:08x}"), format!("{got:08x}"));
        return Err(Error::corrupt(path, format!("block at page {page}"), expected, got));
    }
    Ok(())
}

fn read_layout(file: &PageFile, metric: Metric, dtype: Dtype) -> Result<Layout> {
    let n = file.field_in("n_vertices", 1..=u64::from(u32::MAX))?;
    let dim = read_dim(file, metric)?;
    let max_degree = file.field_in("max_degree", 1..=512)?;
    let vector_bytes = (dim * dtype.bytes()).next_multiple_of(4);
    let code_bytes = if file.has_field("code_bytes") { file.field_in("code_bytes", 1..=MAX_CODE_BYTES)? } else { 0 };
    let node_bytes = (vector_bytes + 4 + (4 + code_bytes) * max_degree).next_multiple_of(4);
    let (page_bytes, own) = (PAGE_BYTES as u64, if code_bytes > 0 { CHECKSUM_BYTES as u64 } else { 0 });
    let (nodes_per_page, pages_per_node) = ((page_bytes - own) / node_bytes, (own + node_bytes).div_ceil(page_bytes));
    file.expect_fields([
        ("node_bytes", node_bytes),
        ("nodes_per_page", nodes_per_page),
        ("pages_per_node", pages_per_node),
    ])?;
    let pages = if nodes_per_page > 0 { n.div_ceil(nodes_per_page) } else { n.saturating_mul(pages_per_node) };
    let section = file.section("nodes", Some(pages.saturating_mul(page_bytes)))?;
    Ok(Layout {
        n_vertices: n as u32,
        dim: dim as usize,
        dtype,
        max_degree: max_degree as usize,
        vector_bytes: vector_bytes as usize,
        code_bytes: code_bytes as usize,
        node_bytes: node_bytes as usize,
        nodes_per_block: nodes_per_page.max(1) as u32,
        pages_per_block: pages_per_node as u32,
        first_page: section.first_page,
    })
}
