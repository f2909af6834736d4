//! Writes small valid indexes, page by page from the specification, for tests.
#![allow(dead_code, unused_imports, missing_docs)] // each test binary uses a part

mod directory;
mod files;
pub mod ivf;
pub mod lsh;
mod navigation;
pub mod searches;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub use directory::{Contents, Directory, assert_refused, vectors_file};
use files::{blocks_with_checksums, le, rows_in_pages};
pub use files::{page_file, seal_page, write_directory, write_manifest};
pub use navigation::SmallNavigation;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A directory that goes away with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("indexmill-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// What to write. Vectors are whole numbers in -20..20 (0..40 for uint8), so distances are exact in f32.
#[derive(Clone, Copy)]
pub struct Spec {
    pub n: usize,
    pub dim: usize,
    pub dtype: u64,
    pub max_degree: usize,
    pub id_type: u64,
    /// Vertices of the navigation graph, at most n; 0 for none.
    pub n_sample: usize,
    /// Whether nodes hold the codes of their neighbours; not with a navigation graph.
    pub with_codes: bool,
    pub seed: u64,
}

pub const FLOAT32: u64 = 1;
pub const FLOAT16: u64 = 2;
pub const UINT8: u64 = 3;
pub const INT8: u64 = 4;
pub const SQ16: u64 = 5;
pub const SQ8: u64 = 6;

impl Default for Spec {
    fn default() -> Self {
        Spec { n: 300, dim: 12, dtype: FLOAT32, max_degree: 6, id_type: 1, n_sample: 40, with_codes: false, seed: 1 }
    }
}

/// What was written: vectors in slot order.
pub struct Written {
    pub scratch: Scratch,
    pub spec: Spec,
    pub vectors: Vec<Vec<f32>>,
    pub vector_ids: Vec<u32>,
    pub navigation: Option<SmallNavigation>,
}

impl Written {
    pub fn path(&self) -> &Path {
        &self.scratch.0
    }

    /// Query `i` as floats: a stored vector moved a little.
    pub fn query(&self, i: usize) -> Vec<f32> {
        let mut query = self.vectors[(i * 37) % self.spec.n].clone();
        query[i % self.spec.dim] += 3.0;
        query
    }

    /// Slots by (squared distance, slot).
    pub fn exact(&self, query: &[f32], k: usize) -> Vec<(f32, i64)> {
        let mut all: Vec<(f32, i64)> =
            self.vectors.iter().enumerate().map(|(s, v)| (squared(v, query), s as i64)).collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all.truncate(k);
        all
    }
}

/// Squared distance.
pub fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

fn element_bytes(dtype: u64, x: f32) -> Vec<u8> {
    match dtype {
        FLOAT32 => x.to_le_bytes().to_vec(),
        FLOAT16 => half(x).to_le_bytes().to_vec(),
        UINT8 => vec![x as u8],
        INT8 => vec![x as i8 as u8],
        // min -20, step 0.5 and 1.
        SQ16 => (((x + 20.0) * 2.0) as u16).to_le_bytes().to_vec(),
        _ => vec![(x + 20.0) as u8],
    }
}

/// binary16 of a whole number up to 2048.
fn half(x: f32) -> u16 {
    let bits = x.to_bits();
    if x == 0.0 {
        0
    } else {
        ((bits >> 16) & 0x8000) as u16 | (((bits >> 13) & 0x3ffff) as u16).wrapping_sub(112 << 10)
    }
}

/// Writes a valid index: a ring with random chords, which keeps the graph connected.
pub fn write_index(spec: Spec) -> Written {
    let Spec { n, dim, dtype, max_degree, id_type, n_sample, with_codes, seed } = spec;
    assert!(!with_codes || n_sample == 0);
    let mut random = Random(seed);
    let low = if dtype == UINT8 { 0.0 } else { -20.0 };
    let vectors: Vec<Vec<f32>> = (0..n).map(|_| (0..dim).map(|_| random.below(40) as f32 + low).collect()).collect();
    let (offsets, codes) = codes_of(spec, &vectors);
    let in_nodes = if with_codes { &codes[..] } else { &[] };
    let mut files = vec![
        ("graph.imx", graph_file(spec, &vectors, in_nodes, &mut random)),
        ("codes.imx", codes_file(spec, &vectors, &offsets, &codes)),
        ("entries.imx", entries_file(spec, &vectors)),
    ];
    let mut vector_ids: Vec<u32> = (0..n as u32).collect();
    (1..n).for_each(|i| vector_ids.swap(i, random.below(i + 1)));
    files.push(("ids.imx", ids_file(&vector_ids, id_type)));
    assert!(max_degree >= 1);
    let navigation = (n_sample > 0).then(|| SmallNavigation::random(n, n_sample.min(n), seed));
    if let Some(navigation) = &navigation {
        files.push(("navigation.imx", navigation.file()));
    }
    let scratch = Scratch::new();
    write_directory(&scratch.0, &mut files);
    Written { scratch, spec, vectors, vector_ids, navigation }
}

/// Adds a file of exact vectors to an index of codes.
pub fn add_exact(written: &Written, exact: &[Vec<f32>]) {
    let read = |&name: &&'static str| Some((name, fs::read(written.path().join(name)).ok()?));
    let names = ["codes.imx", "entries.imx", "graph.imx", "ids.imx", "navigation.imx"];
    let mut files: Vec<(&str, Vec<u8>)> = names.iter().filter_map(read).collect();
    let Contents { name, kind, fields, sections } = vectors_file(exact, FLOAT32, 1, 0.0);
    files.push((name, page_file(kind, &[0; 16], &fields, &sections)));
    write_directory(written.path(), &mut files);
}

/// `codes` are of all vectors if nodes hold those of their neighbours, else empty.
fn graph_file(spec: Spec, vectors: &[Vec<f32>], codes: &[u8], random: &mut Random) -> Vec<u8> {
    let Spec { n, dim, dtype, max_degree, .. } = spec;
    let vector_bytes = element_bytes(dtype, 0.0).len() * dim;
    let vector_bytes = vector_bytes.next_multiple_of(4);
    let (code_bytes, own) = (codes.len() / n, if codes.is_empty() { 0 } else { 4 });
    let node_bytes = (vector_bytes + 4 + (4 + code_bytes) * max_degree).next_multiple_of(4);
    let node = |(slot, vector): (usize, &Vec<f32>)| {
        let mut neighbours = vec![((slot + 1) % n) as u32];
        for _ in 1..max_degree {
            let other = random.below(n) as u32;
            if !neighbours.contains(&other) {
                neighbours.push(other);
            }
        }
        let mut node: Vec<u8> = vector.iter().flat_map(|&x| element_bytes(dtype, x)).collect();
        node.resize(vector_bytes, 0);
        node.extend((neighbours.len() as u32).to_le_bytes());
        node.extend(le(neighbours.iter().map(|s| s.to_le_bytes())));
        node.resize(vector_bytes + 4 + 4 * max_degree, 0);
        neighbours.iter().for_each(|&s| node.extend(&codes[s as usize * code_bytes..][..code_bytes]));
        node
    };
    let rows = vectors.iter().enumerate().map(node);
    let nodes = if own == 0 { rows_in_pages(rows, node_bytes) } else { blocks_with_checksums(rows, node_bytes) };
    let mut fields = vec![
        ("n_vertices", n as u64),
        ("dim", dim as u64),
        ("dtype", dtype),
        ("metric", 1),
        ("max_degree", max_degree as u64),
        ("node_bytes", node_bytes as u64),
        ("nodes_per_page", (4096 - own) as u64 / node_bytes as u64),
        ("pages_per_node", (own + node_bytes).div_ceil(4096) as u64),
        ("max_norm", 0),
    ];
    if code_bytes > 0 {
        fields.push(("code_bytes", code_bytes as u64));
    }
    let mut sections = vec![("nodes", nodes)];
    if dtype >= SQ16 {
        let step = if dtype == SQ16 { 0.5f32 } else { 1.0 };
        let scale = [vec![-20f32; dim], vec![step; dim]].concat();
        sections.push(("scale", le(scale.iter().map(|x| x.to_le_bytes()))));
    }
    page_file(b"GRPH", &[0; 16], &fields, &sections)
}

/// Ends of two chunks, and codes of all vectors; centre c is vector c.
fn codes_of(spec: Spec, vectors: &[Vec<f32>]) -> (Vec<usize>, Vec<u8>) {
    let Spec { n, dim, .. } = spec;
    let (k, split) = (n.min(256), dim.div_ceil(2));
    let offsets: Vec<usize> = if split < dim { vec![0, split, dim] } else { vec![0, dim] };
    let mut codes = Vec::new();
    for vector in vectors {
        for chunk in offsets.windows(2) {
            let part = chunk[0]..chunk[1];
            let near = |&a: &usize, &b: &usize| {
                let (da, db) = (&vectors[a][part.clone()], &vectors[b][part.clone()]);
                squared(da, &vector[part.clone()]).total_cmp(&squared(db, &vector[part.clone()]))
            };
            codes.push((0..k).min_by(near).unwrap() as u8);
        }
    }
    (offsets, codes)
}

fn codes_file(spec: Spec, vectors: &[Vec<f32>], offsets: &[usize], codes: &[u8]) -> Vec<u8> {
    let Spec { n, dim, .. } = spec;
    let (k, m) = (n.min(256), offsets.len() as u64 - 1);
    let fields = [("n_vertices", n as u64), ("dim", dim as u64), ("n_chunks", m), ("n_centres", k as u64)];
    let pivots = le(vectors[..k].iter().flatten().map(|x| x.to_le_bytes()));
    let offsets = le(offsets.iter().map(|&o| (o as u32).to_le_bytes()));
    page_file(b"CODE", &[0; 16], &fields, &[("offsets", offsets), ("pivots", pivots), ("codes", codes.to_vec())])
}

fn entries_file(spec: Spec, vectors: &[Vec<f32>]) -> Vec<u8> {
    let c = spec.n.min(3);
    let fields = [
        ("n_vertices", spec.n as u64),
        ("dim", spec.dim as u64),
        ("medoid", spec.n as u64 / 2),
        ("n_entries", c as u64),
    ];
    let centroids = le(vectors[..c].iter().flatten().map(|x| x.to_le_bytes()));
    let vertices = le((0..c as u32).map(u32::to_le_bytes));
    page_file(b"ENTR", &[0; 16], &fields, &[("centroids", centroids), ("vertices", vertices)])
}

/// Text of the user id of a vector id; empty for one of them.
pub fn user_text(vector_id: u32) -> String {
    "ü".repeat(vector_id as usize % 7) + &"x".repeat(vector_id as usize % 3)
}

fn ids_file(vector_ids: &[u32], id_type: u64) -> Vec<u8> {
    let n = vector_ids.len();
    let mut sections = vec![("vector_ids", le(vector_ids.iter().map(|id| id.to_le_bytes())))];
    match id_type {
        0 => {}
        1 | 2 => {
            sections.push(("values", le(vector_ids.iter().map(|&id| (u64::from(id) * 3 + (1 << 40)).to_le_bytes()))))
        }
        _ => {
            let texts: Vec<String> = vector_ids.iter().map(|&id| user_text(id)).collect();
            let mut offsets = vec![0u64];
            texts.iter().for_each(|t| offsets.push(offsets[offsets.len() - 1] + t.len() as u64));
            sections.push(("offsets", le(offsets.iter().map(|o| o.to_le_bytes()))));
            sections.push(("bytes", texts.concat().into_bytes()));
        }
    }
    page_file(b"IDMP", &[0; 16], &[("n_vertices", n as u64), ("id_type", id_type)], &sections)
}
