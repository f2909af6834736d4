//! What checksums cannot tell of a graph: whether degrees, neighbours and ids mean something.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ids::check_ids;
use crate::bytes::u32s;
use crate::codes::Codes;
use crate::error::{Error, Result};
use crate::graph::Index;
use crate::graph::file::Graph;
use crate::graph::navigation::Navigation;
use crate::manifest::NAVIGATION_FILE;
use crate::pagefile::{PAGE_BYTES, PageFile};
use crate::stored::Dtype;
use crate::vectors::Vectors;

/// Opens the index, which checks codes, entries and most of the navigation graph, then walks graph, ids and navigation.
pub fn check(path: &Path, damages: &mut Vec<String>) {
    let index = match Index::open(path, "pread") {
        Ok(index) => index,
        Err(error) => return damages.push(error.to_string()),
    };
    let navigation = index.navigation.as_ref().map_or(Ok(()), |n| check_navigation(n, &path.join(NAVIGATION_FILE)));
    let n_vertices = index.graph.layout.n_vertices;
    let codes = if index.graph.layout.has_codes() { check_codes(&index.graph, path) } else { Ok(()) };
    let exact = index.vectors.as_ref().map_or(Ok(()), |vectors| check_exact(vectors, &index.graph));
    for result in [check_graph(&index.graph), check_ids(&index.ids, n_vertices, path), navigation, exact, codes] {
        if let Err(error) = result {
            damages.push(error.to_string());
        }
    }
}

/// Degrees are at most R; neighbours are below n and distinct.
fn check_graph(graph: &Graph) -> Result<()> {
    let (path, layout) = (&graph.path, &graph.layout);
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let mut bytes = vec![0u8; layout.block_bytes()];
    let mut neighbours = Vec::with_capacity(layout.max_degree);
    for block in 0..layout.n_blocks() {
        let page = layout.page_of(block);
        file.read_exact_at(&mut bytes, page * PAGE_BYTES as u64)
            .map_err(|e| Error::io(path, format!("read page {page}"), e))?;
        let (first, count) = layout.slots_of(block);
        for slot in first..first + count {
            let node = layout.node(path, &bytes, slot)?;
            neighbours.clear();
            neighbours.extend(u32s(node.neighbours));
            check_distinct(path, &mut neighbours, || format!("page {page}: slot {slot}"))?;
        }
    }
    Ok(())
}

/// Nodes hold the codes that codes.imx has for their neighbours.
fn check_codes(graph: &Graph, path: &Path) -> Result<()> {
    let layout = &graph.layout;
    let codes = Codes::open(&path.join("codes.imx"), layout.n_vertices.into(), layout.dim as u64)?;
    let file = File::open(&graph.path).map_err(|e| Error::io(&graph.path, "open", e))?;
    let mut bytes = vec![0u8; layout.block_bytes()];
    for block in 0..layout.n_blocks() {
        let page = layout.page_of(block);
        file.read_exact_at(&mut bytes, page * PAGE_BYTES as u64)
            .map_err(|e| Error::io(&graph.path, format!("read page {page}"), e))?;
        graph.check_block(block, &bytes)?;
        let (first, count) = layout.slots_of(block);
        for slot in first..first + count {
            let node = layout.node(&graph.path, &bytes, slot)?;
            let mut pairs = u32s(node.neighbours).zip(node.codes.chunks_exact(layout.code_bytes));
            if let Some((neighbour, _)) = pairs.find(|&(neighbour, code)| codes.code(neighbour) != code) {
                let place = format!("page {page}: slot {slot}, code of neighbour {neighbour}");
                return Err(Error::corrupt(&graph.path, place, "that of codes.imx", "another"));
            }
        }
    }
    Ok(())
}

/// Exact vectors are those that the nodes code: a component is within half a step of its code, unless that is the first
/// or the last, to which an append may have brought values from beyond.
fn check_exact(vectors: &Vectors, graph: &Graph) -> Result<()> {
    let layout = &graph.layout;
    let (min, step) = graph.scale.split_at(graph.scale.len() / 2);
    let (file, exact) = (File::open(&graph.path), PageFile::open(&vectors.path, b"VECT")?);
    let file = file.map_err(|e| Error::io(&graph.path, "open", e))?;
    let (mut bytes, mut held, mut row) = (vec![0u8; layout.block_bytes()], None, Vec::new());
    vectors.read_rows(&exact, 0..vectors.n_vectors, &mut |slot, found| {
        let block = layout.block_of(slot);
        if held != Some(block) {
            let page = layout.page_of(block);
            let read = file.read_exact_at(&mut bytes, page * PAGE_BYTES as u64);
            read.map_err(|e| Error::io(&graph.path, format!("read page {page}"), e))?;
            held = Some(block);
        }
        vectors.stored().widen(found, &mut row);
        let node = layout.vector(&bytes, slot);
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
                let place = format!("page {page}: slot {slot}, component {j}");
                Err(Error::corrupt(&vectors.path, place, "the value that graph.imx codes", row[j]))
            }
        }
    })
}

/// Neighbours are distinct; the rest was checked when the file was opened.
fn check_navigation(navigation: &Navigation, path: &Path) -> Result<()> {
    let mut neighbours = Vec::new();
    for v in 0..navigation.len() as u32 {
        neighbours.clear();
        neighbours.extend_from_slice(navigation.neighbours(v));
        check_distinct(path, &mut neighbours, || format!("local position {v}"))?;
    }
    Ok(())
}

/// Sorts `neighbours` and refuses repetitions.
fn check_distinct(path: &Path, neighbours: &mut [u32], place: impl FnOnce() -> String) -> Result<()> {
    neighbours.sort_unstable();
    match neighbours.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::corrupt(path, place(), "distinct neighbours", format!("{} twice", pair[0]))),
        None => Ok(()),
    }
}
