//! What checksums cannot tell of a graph: whether degrees, neighbours and ids mean something.

use std::path::Path;

use super::damage::{note, together};
use super::ids::check_ids;
use crate::bytes::u32s;
use crate::codes::Codes;
use crate::directory::Directory;
use crate::engine::Reading;
use crate::error::{Error, Place, Result};
use crate::graph::Index;
use crate::graph::file::{GRAPH_FILE, Graph};
use crate::graph::navigation::Navigation;
use crate::interrupt::{Stop, go_on};
use crate::manifest::NAVIGATION_FILE;
use crate::memory::resize;
use crate::pagefile::PageFile;
use crate::stored::Dtype;
use crate::vectors::{VECTORS_FILE, Vectors};

/// Blocks after which the caller is asked whether to go on.
const BLOCKS_AT_ONCE: u32 = 1024;
/// The same of vertices of the navigation graph.
const VERTICES_AT_ONCE: u32 = 1024;

/// Opens the index, which checks codes, entries and most of the navigation graph, then walks graph, ids and navigation.
pub fn check(directory: &Directory, damages: &mut Vec<String>, interrupted: Stop<'_>) -> Result<()> {
    let index = match together(directory, Index::open_in(directory, Reading::Named("pread"), interrupted)) {
        Ok(index) => index,
        Err(error) => return note(damages, Err(error)),
    };
    note(damages, check_graph(&index.graph, directory, interrupted))?;
    note(damages, check_ids(&index.ids, index.graph.layout.n_vertices, directory.path(), interrupted))?;
    if let Some(navigation) = &index.navigation {
        note(damages, check_navigation(navigation, &directory.join(NAVIGATION_FILE), interrupted))?;
    }
    let Some(vectors) = &index.vectors else { return Ok(()) };
    note(damages, check_exact(vectors, &index.graph, directory, interrupted))
}

/// Reads of the blocks of graph.imx, the last one kept.
struct Blocks<'a> {
    graph: &'a Graph,
    file: PageFile,
    checksums: Vec<u32>,
    bytes: Vec<u8>,
    held: Option<u32>,
}

impl<'a> Blocks<'a> {
    fn open(graph: &'a Graph, directory: &Directory, interrupted: Stop<'_>) -> Result<Self> {
        let file = PageFile::open_in(directory, GRAPH_FILE, b"GRPH")?;
        let (checksums, mut bytes) = (file.load_checksums(interrupted)?, Vec::new());
        resize(&graph.path, &mut bytes, graph.layout.block_bytes(), 0)?;
        Ok(Blocks { graph, file, checksums, bytes, held: None })
    }

    /// A block whose pages fit their checksums, and which fits its own if it has one.
    fn read(&mut self, block: u32) -> Result<&[u8]> {
        let layout = &self.graph.layout;
        if self.held != Some(block) {
            self.held = None;
            self.file.read_pages(layout.page_of(block), &self.checksums, &mut self.bytes)?;
            if layout.has_codes() {
                self.graph.check_block(block, &self.bytes)?;
            }
            self.held = Some(block);
        }
        Ok(&self.bytes)
    }
}

/// Degrees are at most R; neighbours are below n and distinct, and have the codes that codes.imx has for them if nodes
/// hold codes.
fn check_graph(graph: &Graph, directory: &Directory, interrupted: Stop<'_>) -> Result<()> {
    let (path, layout) = (&graph.path, &graph.layout);
    let (n, dim) = (layout.n_vertices.into(), layout.dim as u64);
    let codes = layout.has_codes().then(|| Codes::open(directory, n, dim, interrupted)).transpose()?;
    let mut blocks = Blocks::open(graph, directory, interrupted)?;
    let mut neighbours = Vec::with_capacity(layout.max_degree);
    for block in 0..layout.n_blocks() {
        if block.is_multiple_of(BLOCKS_AT_ONCE) {
            go_on(interrupted)?;
        }
        let (page, bytes) = (layout.page_of(block), blocks.read(block)?);
        let (first, count) = layout.slots_of(block);
        for slot in first..first + count {
            let node = layout.node(path, bytes, slot)?;
            if let Some(codes) = &codes {
                let mut pairs = u32s(node.neighbours).zip(node.codes.chunks_exact(layout.code_bytes));
                if let Some((neighbour, _)) = pairs.find(|&(neighbour, code)| codes.code(neighbour) != code) {
                    let place = Place::in_page(page, format!("slot {slot}, code of neighbour {neighbour}"));
                    return Err(Error::corrupt(path, place, "that of codes.imx", "another"));
                }
            }
            neighbours.clear();
            neighbours.extend(u32s(node.neighbours));
            check_distinct(path, &mut neighbours, || Place::in_page(page, format!("slot {slot}")))?;
        }
    }
    Ok(())
}

/// Exact vectors are those that the nodes code: a component is within half a step of its code, unless that is the first
/// or the last, to which an append may have brought values from beyond.
fn check_exact(vectors: &Vectors, graph: &Graph, directory: &Directory, interrupted: Stop<'_>) -> Result<()> {
    let (layout, scale) = (&graph.layout, graph.stored().scale);
    let (min, step) = scale.split_at(scale.len() / 2);
    let exact = PageFile::open_in(directory, VECTORS_FILE, b"VECT")?;
    let (mut blocks, mut row) = (Blocks::open(graph, directory, interrupted)?, Vec::new());
    vectors.read_rows(&exact, 0..vectors.n_vectors, interrupted, &mut |slot, found| {
        vectors.stored().widen(found, &mut row);
        let node = layout.vector(blocks.read(layout.block_of(slot))?, slot);
        let is_coded = |j: usize| {
            let (code, last) = match layout.dtype {
                Dtype::Sq8 => (u16::from(node[j]), u16::from(u8::MAX)),
                _ => (u16::from_le_bytes([node[2 * j], node[2 * j + 1]]), u16::MAX),
            };
            // Values were rounded when they were coded, and are when they are decoded.
            let (value, slack) = (min[j] + step[j] * f32::from(code), 1e-5 * (row[j].abs() + min[j].abs()));
            code == 0 || code == last || (row[j] - value).abs() <= 0.501 * step[j] + slack
        };
        match (0..row.len()).find(|&j| !is_coded(j)) {
            None => Ok(()),
            Some(j) => {
                let page = vectors.page_of(vectors.unit_of(slot));
                let place = Place::in_page(page, format!("slot {slot}, component {j}"));
                Err(Error::corrupt(&vectors.path, place, "the value that graph.imx codes", row[j]))
            }
        }
    })
}

/// Neighbours are distinct; the rest was checked when the file was opened.
fn check_navigation(navigation: &Navigation, path: &Path, interrupted: Stop<'_>) -> Result<()> {
    let mut neighbours = Vec::new();
    for v in 0..navigation.len() as u32 {
        if v.is_multiple_of(VERTICES_AT_ONCE) {
            go_on(interrupted)?;
        }
        neighbours.clear();
        neighbours.extend_from_slice(navigation.neighbours(v));
        check_distinct(path, &mut neighbours, || Place::from(format!("local position {v}")))?;
    }
    Ok(())
}

/// Sorts `neighbours` and refuses repetitions.
fn check_distinct(path: &Path, neighbours: &mut [u32], place: impl FnOnce() -> Place) -> Result<()> {
    neighbours.sort_unstable();
    match neighbours.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::corrupt(path, place(), "distinct neighbours", format!("{} twice", pair[0]))),
        None => Ok(()),
    }
}
