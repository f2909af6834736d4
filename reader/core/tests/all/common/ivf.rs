//! Writes small valid indexes of kind "ivf" from the specification, for tests.

use super::{FLOAT32, Random, Scratch, element_bytes, ids_file, le, page_file, write_directory};

pub const FLAT: u64 = 0;
pub const SQ8: u64 = 1;
pub const PQ: u64 = 2;
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

/// Fields and sections of one file.
pub struct IvfFile {
    pub name: &'static str,
    pub kind: &'static [u8; 4],
    pub fields: Vec<(&'static str, u64)>,
    pub sections: Vec<(&'static str, Vec<u8>)>,
}

/// What was written, and of what.
pub struct WrittenIvf {
    pub scratch: Scratch,
    pub spec: IvfSpec,
    pub vectors: Vec<Vec<f32>>,
    pub centroids: Vec<Vec<f32>>,
    /// Lists of each vector.
    pub cells: Vec<Vec<usize>>,
    pub files: Vec<IvfFile>,
}

/// Squared distance.
pub fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

/// Centres of the one chunk: all whole numbers in -20..20 for a component each, so far as 256 of them go.
fn pivots(dim: usize) -> Vec<Vec<f32>> {
    (0..16).map(|i| (0..dim).map(|j| ((i * (j + 3)) % 40) as f32 - 20.0).collect()).collect()
}

impl WrittenIvf {
    pub fn path(&self) -> &std::path::Path {
        &self.scratch.0
    }

    /// Writes the files as they are now.
    pub fn seal(&self) {
        let page = |f: &IvfFile| (f.name, page_file(f.kind, &[0; 16], &f.fields, &f.sections));
        let mut files: Vec<(&str, Vec<u8>)> = self.files.iter().map(page).collect();
        let ids: Vec<u32> = (0..self.spec.n as u32).collect();
        files.push(("ids.imx", ids_file(&ids, 1)));
        write_directory(&self.scratch.0, &mut files);
    }

    pub fn file(&mut self, name: &str) -> &mut IvfFile {
        self.files.iter_mut().find(|file| file.name == name).unwrap()
    }

    pub fn field(&mut self, file: &str, field: &str) -> &mut u64 {
        &mut self.file(file).fields.iter_mut().find(|(name, _)| *name == field).unwrap().1
    }

    /// Payload of a section.
    pub fn section(&mut self, file: &str, section: &str) -> &mut Vec<u8> {
        &mut self.file(file).sections.iter_mut().find(|(name, _)| *name == section).unwrap().1
    }

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
            _ => {
                let residual: Vec<f32> = components.iter().zip(&self.centroids[list]).map(|(x, c)| x - c).collect();
                let away = |centre: &Vec<f32>| squared(&residual, centre);
                let centres = pivots(self.spec.dim);
                let best = (0..centres.len()).min_by(|&a, &b| away(&centres[a]).total_cmp(&away(&centres[b])));
                vec![best.unwrap() as u8]
            }
        }
    }
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
    let mut written = WrittenIvf { scratch: Scratch::new(), spec, vectors, centroids, cells, files: Vec::new() };
    written.files.push(centroids_file(&written));
    for batch in 0..spec.n_batches {
        written.files.push(batch_file(&written, batch));
    }
    if spec.with_vectors {
        written.files.push(vectors_file(&written));
    }
    written.seal();
    written
}

fn row_bytes(spec: IvfSpec) -> u64 {
    match spec.codec {
        FLAT => (spec.dim * element_bytes(spec.dtype, 0.0).len()) as u64,
        SQ8 => spec.dim as u64,
        _ => 1,
    }
}

fn floats<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u8> {
    le(values.into_iter().map(|x| x.to_le_bytes()))
}

fn centroids_file(written: &WrittenIvf) -> IvfFile {
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
    let mut sections = vec![("centroids", floats(written.centroids.iter().flatten()))];
    if spec.codec == SQ8 {
        let scale = [vec![0.0; spec.dim], vec![0.5; spec.dim]].concat();
        sections.push(("scale", floats(&scale)));
    }
    if spec.codec == PQ {
        fields.extend([("n_chunks", 1), ("n_centres", 16)]);
        sections.push(("offsets", le([0u32, spec.dim as u32].map(u32::to_le_bytes))));
        sections.push(("pivots", floats(pivots(spec.dim).iter().flatten())));
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
    IvfFile { name: "centroids.imx", kind: b"CENT", fields, sections }
}

fn batch_file(written: &WrittenIvf, number: usize) -> IvfFile {
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
    IvfFile { name: BATCHES[number], kind: b"IVFB", fields, sections: vec![("directory", directory), ("lists", lists)] }
}

fn vectors_file(written: &WrittenIvf) -> IvfFile {
    let IvfSpec { n, dim, dtype, .. } = written.spec;
    let vector_bytes = (dim * element_bytes(dtype, 0.0).len()).next_multiple_of(4);
    assert!(vector_bytes <= 4096, "larger rows are not modelled");
    let mut payload: Vec<u8> = Vec::new();
    for vector in &written.vectors {
        let mut row: Vec<u8> = vector.iter().flat_map(|&x| element_bytes(dtype, x)).collect();
        row.resize(vector_bytes, 0);
        if payload.len() % 4096 + vector_bytes > 4096 {
            payload.resize(payload.len().next_multiple_of(4096), 0);
        }
        payload.extend(row);
    }
    payload.resize(payload.len().next_multiple_of(4096), 0);
    IvfFile {
        name: "vectors.imx",
        kind: b"VECT",
        fields: vec![
            ("n_vectors", n as u64),
            ("dim", dim as u64),
            ("dtype", dtype),
            ("metric", 1),
            ("max_norm", 0),
            ("vector_bytes", vector_bytes as u64),
            ("rows_per_page", 4096 / vector_bytes as u64),
            ("pages_per_row", 1),
        ],
        sections: vec![("vectors", payload)],
    }
}
