//! Writes small valid indexes of kind "ivf" from the specification, for tests.

use std::ops::{Deref, DerefMut};

use super::{Contents, Directory, FLOAT32, Random, element_bytes, le, squared, vectors_file};

pub const FLAT: u64 = 0;
pub const SQ8: u64 = 1;
pub const PQ: u64 = 2;
/// Of two bits, with components in the opposite order for a rotation.
pub const RABITQ: u64 = 3;
/// PQ with that rotation.
pub const OPQ: u64 = 4;
const BITS: usize = 2;
/// Names of batches.
pub const BATCHES: [&str; 3] = ["batch-000000.imx", "batch-000001.imx", "batch-000002.imx"];

/// What to write, under metric l2. Vectors are whole numbers in 0..40.
#[derive(Debug, Clone, Copy)]
pub struct IvfSpec {
    pub n: usize,
    pub dim: usize,
    pub dtype: u64,
    pub codec: u64,
    pub n_lists: usize,
    pub n_batches: usize,
    /// 2: each third vector lies in its second list, too.
    pub copies: u64,
    pub with_graph: bool,
    pub with_vectors: bool,
    pub seed: u64,
}

impl Default for IvfSpec {
    fn default() -> Self {
        IvfSpec {
            n: 300,
            dim: 6,
            dtype: FLOAT32,
            codec: FLAT,
            n_lists: 9,
            n_batches: 2,
            copies: 1,
            with_graph: false,
            with_vectors: false,
            seed: 1,
        }
    }
}

/// What was written, and of what.
pub struct WrittenIvf {
    pub directory: Directory,
    pub spec: IvfSpec,
    pub vectors: Vec<Vec<f32>>,
    pub centroids: Vec<Vec<f32>>,
    /// Lists of each vector.
    pub cells: Vec<Vec<usize>>,
}

/// Centres of the one chunk: all whole numbers in -20..20 for a component each, so far as 256 of them go.
fn pivots(dim: usize) -> Vec<Vec<f32>> {
    (0..16).map(|i| (0..dim).map(|j| ((i * (j + 3)) % 40) as f32 - 20.0).collect()).collect()
}

impl Deref for WrittenIvf {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.directory
    }
}

impl DerefMut for WrittenIvf {
    fn deref_mut(&mut self) -> &mut Directory {
        &mut self.directory
    }
}

impl WrittenIvf {
    /// Query `i`: a vector moved a little.
    pub fn query(&self, i: usize) -> Vec<f32> {
        let mut query = self.vectors[(i * 37) % self.spec.n].clone();
        query[i % self.spec.dim] += 2.0;
        query
    }

    /// Bytes of a vector as a row of a list.
    fn row(&self, vector: usize, list: usize) -> Vec<u8> {
        let components = &self.vectors[vector];
        match self.spec.codec {
            FLAT => components.iter().flat_map(|&x| element_bytes(self.spec.dtype, x)).collect(),
            SQ8 => components.iter().map(|&x| (x / 0.5) as u8).collect(),
            RABITQ => rabitq_row(&self.residual(vector, list)),
            _ => {
                let mut residual = self.residual(vector, list);
                if self.spec.codec == OPQ {
                    residual.reverse();
                }
                let away = |centre: &Vec<f32>| squared(&residual, centre);
                let centres = pivots(self.spec.dim);
                let best = (0..centres.len()).min_by(|&a, &b| away(&centres[a]).total_cmp(&away(&centres[b])));
                vec![best.unwrap() as u8]
            }
        }
    }

    fn residual(&self, vector: usize, list: usize) -> Vec<f32> {
        self.vectors[vector].iter().zip(&self.centroids[list]).map(|(x, c)| x - c).collect()
    }
}

/// A residual as a RaBitQ row: components of up to 8 have the smaller of two magnitudes.
fn rabitq_row(residual: &[f32]) -> Vec<u8> {
    let rotated: Vec<f32> = residual.iter().rev().copied().collect();
    let width = rotated.len().div_ceil(8);
    let mut planes = vec![0u8; BITS * width];
    let (mut length, mut product) = (0f32, 0f32);
    for (j, &x) in rotated.iter().enumerate() {
        let is_far = x.abs() > 8.0;
        planes[j / 8] |= u8::from(x > 0.0) << (j % 8);
        planes[width + j / 8] |= u8::from((x > 0.0) == is_far) << (j % 8);
        length += x * x;
        product += x.abs() * if is_far { 3.0 } else { 1.0 };
    }
    let factor = if product > 0.0 { length / product } else { 0.0 };
    [&length.to_le_bytes()[..], &factor.to_le_bytes(), &planes].concat()
}

/// The lists by distance from a vector.
pub fn ranked(centroids: &[Vec<f32>], vector: &[f32]) -> Vec<usize> {
    let mut lists: Vec<usize> = (0..centroids.len()).collect();
    lists.sort_by(|&a, &b| squared(&centroids[a], vector).total_cmp(&squared(&centroids[b], vector)).then(a.cmp(&b)));
    lists
}

pub fn write_ivf(spec: IvfSpec) -> WrittenIvf {
    let mut random = Random(spec.seed);
    let mut rows = |n: usize| -> Vec<Vec<f32>> {
        (0..n).map(|_| (0..spec.dim).map(|_| random.below(40) as f32).collect()).collect()
    };
    let (vectors, centroids) = (rows(spec.n), rows(spec.n_lists));
    let cells_of = |(i, vector): (usize, &Vec<f32>)| {
        let lists = ranked(&centroids, vector);
        let n = if spec.copies > 1 && i % 3 == 0 { 2 } else { 1 };
        lists[..n.min(lists.len())].to_vec()
    };
    let cells = vectors.iter().enumerate().map(cells_of).collect();
    let mut written = WrittenIvf { directory: Directory::new(spec.n), spec, vectors, centroids, cells };
    let mut files = vec![centroids_file(&written)];
    files.extend((0..spec.n_batches).map(|batch| batch_file(&written, batch)));
    if spec.with_vectors {
        files.push(vectors_file(&written.vectors, spec.dtype, 1, 0.0));
    }
    written.files = files;
    written.seal();
    written
}

fn row_bytes(spec: IvfSpec) -> u64 {
    match spec.codec {
        FLAT => (spec.dim * element_bytes(spec.dtype, 0.0).len()) as u64,
        SQ8 => spec.dim as u64,
        RABITQ => 8 + (BITS * spec.dim.div_ceil(8)) as u64,
        _ => 1,
    }
}

fn floats<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u8> {
    le(values.into_iter().map(|x| x.to_le_bytes()))
}

fn centroids_file(written: &WrittenIvf) -> Contents {
    let spec = written.spec;
    let mut fields = vec![
        ("n_lists", spec.n_lists as u64),
        ("dim", spec.dim as u64),
        ("dtype", spec.dtype),
        ("metric", 1),
        ("codec", spec.codec),
        ("row_bytes", row_bytes(spec)),
        ("n_vectors", spec.n as u64),
        ("n_batches", spec.n_batches as u64),
        ("max_norm", 0),
    ];
    let centroids = match spec.codec {
        RABITQ | OPQ => floats(written.centroids.iter().flat_map(|row| row.iter().rev())),
        _ => floats(written.centroids.iter().flatten()),
    };
    let mut sections = vec![("centroids", centroids)];
    if spec.codec == SQ8 {
        let scale = [vec![0.0; spec.dim], vec![0.5; spec.dim]].concat();
        sections.push(("scale", floats(&scale)));
    }
    if let PQ | OPQ = spec.codec {
        fields.extend([("n_chunks", 1), ("n_centres", 16)]);
        sections.push(("offsets", le([0u32, spec.dim as u32].map(u32::to_le_bytes))));
        sections.push(("pivots", floats(pivots(spec.dim).iter().flatten())));
    }
    if spec.codec == RABITQ {
        fields.push(("bits", BITS as u64));
    }
    if let RABITQ | OPQ = spec.codec {
        let (dim, mut rotation) = (spec.dim, vec![0f32; spec.dim * spec.dim]);
        (0..dim).for_each(|row| rotation[row * dim + dim - 1 - row] = 1.0);
        sections.push(("rotation", floats(&rotation)));
    }
    if spec.copies > 1 {
        fields.push(("copies", spec.copies));
    }
    if spec.with_graph {
        fields.extend([("degree", 3), ("entry", spec.n_lists as u64 / 2)]);
        let near = |centroid: &Vec<f32>| ranked(&written.centroids, centroid);
        let neighbours = written.centroids.iter().flat_map(|centroid| {
            let lists = near(centroid);
            (1..4).map(move |i| lists[i % lists.len()] as u32)
        });
        sections.push(("neighbours", le(neighbours.map(u32::to_le_bytes))));
    }
    Contents { name: "centroids.imx", kind: b"CENT", fields, sections }
}

fn batch_file(written: &WrittenIvf, number: usize) -> Contents {
    let spec = written.spec;
    let bounds = |i: usize| i * spec.n / spec.n_batches;
    let (first, last) = (bounds(number), bounds(number + 1));
    let members = |list: usize| -> Vec<usize> { (first..last).filter(|&i| written.cells[i].contains(&list)).collect() };
    let mut order: Vec<(usize, Vec<usize>)> = (0..spec.n_lists).map(|list| (list, members(list))).collect();
    order.sort_by_key(|(list, members)| (std::cmp::Reverse(members.len()), *list));
    let (mut directory, mut lists, mut n_rows) = (Vec::new(), Vec::new(), 0);
    for (list, members) in &order {
        directory.extend(le([*list as u32, members.len() as u32].map(u32::to_le_bytes)));
        directory.extend((lists.len() as u64 / 4096).to_le_bytes());
        members.iter().for_each(|&vector| lists.extend(written.row(vector, *list)));
        lists.resize(lists.len().next_multiple_of(4), 0);
        members.iter().for_each(|&vector| lists.extend((vector as u32).to_le_bytes()));
        lists.resize(lists.len().next_multiple_of(4096), 0);
        n_rows += members.len() as u64;
    }
    let mut fields = vec![
        ("batch", number as u64),
        ("first_vector", first as u64),
        ("n_vectors", (last - first) as u64),
        ("n_lists", spec.n_lists as u64),
        ("row_bytes", row_bytes(spec)),
    ];
    if spec.copies > 1 {
        fields.push(("n_rows", n_rows));
    }
    Contents {
        name: BATCHES[number],
        kind: b"IVFB",
        fields,
        sections: vec![("directory", directory), ("lists", lists)],
    }
}
