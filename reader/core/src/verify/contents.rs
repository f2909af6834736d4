//! What checksums cannot tell: whether the numbers in sound bytes mean something.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bytes::u32s;
use crate::error::{Error, Result};
use crate::graph::Index;
use crate::graph::file::Graph;
use crate::graph::navigation::Navigation;
use crate::ids::{Ids, UserId};
use crate::manifest::NAVIGATION_FILE;
use crate::memory::reserve;
use crate::pagefile::PAGE_BYTES;

/// Slots looked up at a time.
const BATCH: u32 = 65536;

/// Opens the index, which checks codes, entries and navigation graph but for repetitions, then walks graph and ids.
pub fn check(path: &Path, damages: &mut Vec<String>) {
    let index = match Index::open(path, "pread") {
        Ok(index) => index,
        Err(error) => return damages.push(error.to_string()),
    };
    let navigation = index.navigation.as_ref().map_or(Ok(()), |n| check_navigation(n, &path.join(NAVIGATION_FILE)));
    let n_vertices = index.graph.layout.n_vertices;
    for result in [check_graph(&index.graph), check_ids(&index.ids, n_vertices, path), navigation] {
        if let Err(error) = result {
            damages.push(error.to_string());
        }
    }
}

/// Degrees, neighbours below n and distinct.
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

/// Neighbours distinct; the rest was checked when it was opened.
fn check_navigation(navigation: &Navigation, path: &Path) -> Result<()> {
    let mut neighbours = Vec::new();
    for v in 0..navigation.len() as u32 {
        neighbours.clear();
        neighbours.extend_from_slice(navigation.neighbours(v));
        check_distinct(path, &mut neighbours, || format!("local position {v}"))?;
    }
    Ok(())
}

/// Sorts `neighbours` and refuses one that stands there twice.
fn check_distinct(path: &Path, neighbours: &mut [u32], place: impl FnOnce() -> String) -> Result<()> {
    neighbours.sort_unstable();
    match neighbours.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::corrupt(path, place(), "distinct neighbours", format!("{} twice", pair[0]))),
        None => Ok(()),
    }
}

/// Vector ids are a permutation; user ids can be read and fill their section.
pub fn check_ids(ids: &Ids, n: u32, path: &Path) -> Result<()> {
    let path = path.join("ids.imx");
    let words = (n as usize).div_ceil(64);
    let mut seen: Vec<u64> = reserve(&path, words)?;
    seen.resize(words, 0);
    let mut content_bytes = 0u64;
    let mut first = 0u32;
    while first < n {
        let end = n.min(first.saturating_add(BATCH));
        let slots: Vec<u32> = (first..end).collect();
        for (&slot, id) in slots.iter().zip(ids.vector_ids(&slots)?) {
            let (word, bit) = (&mut seen[id as usize / 64], 1u64 << (id % 64));
            if *word & bit != 0 {
                return Err(Error::corrupt(
                    &path,
                    format!("vector id of slot {slot}"),
                    "a permutation",
                    format!("{id} twice"),
                ));
            }
            *word |= bit;
        }
        for id in ids.user_ids(&slots)? {
            content_bytes += match id {
                UserId::String(text) => text.len() as u64,
                UserId::Binary(bytes) => bytes.len() as u64,
                _ => 0,
            };
        }
        first = end;
    }
    match ids.content_bytes() {
        Some(want) if want != content_bytes => {
            Err(Error::corrupt(&path, "section \"offsets\"", format!("ids of {want} bytes in all"), content_bytes))
        }
        _ => Ok(()),
    }
}
