//! Writes small valid indexes of kind "lsh" from the specification, for tests.

use std::ops::{Deref, DerefMut, Range};

use super::{Contents, Directory, FLOAT16, FLOAT32, Random, UINT8, le, vectors_file};

pub const L2: u64 = 1;
pub const IP: u64 = 2;
pub const COSINE: u64 = 3;

/// What to write. Vectors are whole numbers in -20..20 (0..40 for uint8).
#[derive(Debug, Clone, Copy)]
pub struct LshSpec {
    pub n: usize,
    /// The last of them, whose entries are in added tables.
    pub n_added: usize,
    pub dim: usize,
    pub dtype: u64,
    pub metric: u64,
    pub n_functions: usize,
    pub n_tables: usize,
    pub n_radii: usize,
    pub candidates: u64,
    pub probes: u64,
    pub hash_bits: u32,
    pub block_bytes: usize,
    /// Whether the blocks of different chains alternate.
    pub scattered: bool,
    pub seed: u64,
}

impl Default for LshSpec {
    fn default() -> Self {
        LshSpec {
            n: 600,
            n_added: 0,
            dim: 10,
            dtype: FLOAT32,
            metric: L2,
            n_functions: 4,
            n_tables: 6,
            n_radii: 5,
            candidates: 12,
            probes: 0,
            hash_bits: 7,
            block_bytes: 128,
            scattered: false,
            seed: 1,
        }
    }
}

/// What was written, and of what.
pub struct WrittenLsh {
    pub directory: Directory,
    pub spec: LshSpec,
    /// As stored.
    pub vectors: Vec<Vec<f32>>,
    pub max_norm: f64,
    pub ratio: f64,
    pub width: f64,
    pub radii: Vec<f64>,
    /// `[L][m][dim]`, `[r][L][m]` and `[L][m]`.
    pub projections: Vec<Vec<Vec<f32>>>,
    pub offsets: Vec<Vec<Vec<f32>>>,
    pub multipliers: Vec<Vec<u64>>,
    /// Of every bucket of each pair of files, `[r][L][2^u]`, ascending.
    pub entries: Vec<Vec<Vec<u64>>>,
}

pub fn id_bits(n: usize) -> u32 {
    (0..).find(|bits| n <= 1 << bits).unwrap().max(1)
}

impl Deref for WrittenLsh {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.directory
    }
}

impl DerefMut for WrittenLsh {
    fn deref_mut(&mut self) -> &mut Directory {
        &mut self.directory
    }
}

impl WrittenLsh {
    /// The slots whose entries are in each pair of files.
    pub fn pairs(&self) -> Vec<Range<usize>> {
        let (n, first) = (self.spec.n, self.spec.n - self.spec.n_added);
        [0..first, first..n].into_iter().filter(|slots| !slots.is_empty()).collect()
    }

    /// Fingerprint of a hash in the entries of tables of slots up to `n`.
    pub fn fingerprint(&self, v: u32, n: usize) -> u32 {
        (u64::from(v) >> self.spec.hash_bits) as u32 & ((1u64 << self.fingerprint_bits(n)) - 1) as u32
    }

    pub fn fingerprint_bits(&self, n: usize) -> u32 {
        (32 - self.spec.hash_bits).min(40 - id_bits(n))
    }

    /// Positions t of a vector.
    pub fn positions(&self, radius: usize, table: usize, vector: &[f32]) -> Vec<f64> {
        let dot = |a: &[f32]| a.iter().zip(vector).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>() as f32;
        let place = |j: usize| {
            let x = f64::from(dot(&self.projections[table][j]));
            (x / self.radii[radius] + f64::from(self.offsets[radius][table][j])) / self.width
        };
        (0..self.spec.n_functions).map(place).collect()
    }

    /// The 32 bits of a compound hash of integers.
    pub fn combine(&self, table: usize, integers: &[i64]) -> u32 {
        let terms = integers.iter().zip(&self.multipliers[table]);
        (terms.fold(0u64, |sum, (&h, &m)| sum.wrapping_add(m.wrapping_mul(h as u64))) >> 32) as u32
    }

    /// Bucket and hash of integers.
    pub fn address(&self, table: usize, integers: &[i64]) -> (u32, u32) {
        let v = self.combine(table, integers);
        ((u64::from(v) % (1 << self.spec.hash_bits)) as u32, v)
    }

    /// Query `i`, of the user's dimensions: a stored vector moved a little.
    pub fn query(&self, i: usize) -> Vec<f32> {
        let mut query = self.vectors[(i * 37) % self.spec.n].clone();
        query.truncate(self.spec.dim);
        query[i % self.spec.dim] += 2.0;
        query
    }
}

/// A normally distributed number, or one of few bits, so that sums are exact.
fn normal(random: &mut Random, is_exact: bool) -> f32 {
    let sum: f64 = (0..12).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
    if is_exact { (sum * 8.0).round() as f32 / 8.0 } else { sum as f32 }
}

pub fn write_lsh(spec: LshSpec) -> WrittenLsh {
    let LshSpec { n, dim, metric, n_functions: m, n_tables: l, n_radii: r, .. } = spec;
    assert!(spec.dtype != FLOAT16 || metric == L2, "rounding is not modelled");
    let mut random = Random(spec.seed);
    let low = if spec.dtype == UINT8 { 0.0 } else { -20.0 };
    let raw: Vec<Vec<f32>> = (0..n).map(|_| (0..dim).map(|_| random.below(40) as f32 + low).collect()).collect();
    let norm = |v: &Vec<f32>| v.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    let max_norm = if metric == IP { raw.iter().map(norm).fold(0.0, f64::max) } else { 0.0 };
    let stored = |v: Vec<f32>| match metric {
        IP => {
            let rest = (max_norm * max_norm - norm(&v).powi(2)).max(0.0).sqrt() as f32;
            [v, vec![rest]].concat()
        }
        COSINE => v.iter().map(|&x| (f64::from(x) / norm(&v)) as f32).collect(),
        _ => v,
    };
    let vectors: Vec<Vec<f32>> = raw.into_iter().map(stored).collect();
    let stored_dim = vectors[0].len();
    // Multi-probe sorts by distances to borders: they must differ.
    let is_exact = metric == L2 && spec.probes == 0;
    let width = 4.0;
    let multiple = |random: &mut Random| random.below(64) as f32 / 16.0;
    let offset =
        |random: &mut Random| if is_exact { multiple(random) } else { random.below(1 << 22) as f32 / 1048576.0 };
    let projections = (0..l)
        .map(|_| (0..m).map(|_| (0..stored_dim).map(|_| normal(&mut random, is_exact)).collect()).collect())
        .collect();
    let offsets = (0..r).map(|_| (0..l).map(|_| (0..m).map(|_| offset(&mut random)).collect()).collect()).collect();
    let multipliers = (0..l).map(|_| (0..m).map(|_| random.next() | 1).collect()).collect();
    let first_radius = if metric == COSINE { 0.125 } else { 4.0 };
    let written = WrittenLsh {
        directory: Directory::new(n),
        spec,
        vectors,
        max_norm,
        ratio: 2.0,
        width,
        radii: (0..r).map(|i| first_radius * 2f64.powi(i as i32)).collect(),
        projections,
        offsets,
        multipliers,
        entries: Vec::new(),
    };
    rewrite(written)
}

/// Makes the files for what `written` holds now.
pub fn rewrite(mut written: WrittenLsh) -> WrittenLsh {
    written.entries = written.pairs().into_iter().map(|slots| bucket_entries(&written, slots)).collect();
    let LshSpec { dtype, metric, .. } = written.spec;
    let vectors = vectors_file(&written.vectors, dtype, metric, written.max_norm);
    let pairs = (0..written.pairs().len()).flat_map(|pair| table_files(&written, pair));
    written.files = [vectors, functions_file(&written)].into_iter().chain(pairs).collect();
    written.seal();
    written
}

fn functions_file(written: &WrittenLsh) -> Contents {
    let spec = written.spec;
    let floats = |values: Vec<f32>| le(values.into_iter().map(f32::to_le_bytes));
    Contents {
        name: "functions.imx",
        kind: b"LSHF",
        fields: vec![
            ("n_vectors", spec.n as u64),
            ("dim", written.vectors[0].len() as u64),
            ("n_functions", spec.n_functions as u64),
            ("n_tables", spec.n_tables as u64),
            ("n_radii", spec.n_radii as u64),
            ("candidates", spec.candidates),
            ("probes", spec.probes),
            ("ratio", written.ratio.to_bits()),
            ("width", written.width.to_bits()),
            ("hash_bits", spec.hash_bits.into()),
            ("id_bits", id_bits(spec.n).into()),
            ("fingerprint_bits", written.fingerprint_bits(spec.n).into()),
            ("block_bytes", spec.block_bytes as u64),
        ],
        sections: vec![
            ("projections", floats(written.projections.iter().flatten().flatten().copied().collect())),
            ("offsets", floats(written.offsets.iter().flatten().flatten().copied().collect())),
            ("multipliers", le(written.multipliers.iter().flatten().map(|m| m.to_le_bytes()))),
            ("radii", le(written.radii.iter().map(|r| r.to_le_bytes()))),
        ],
    }
}

/// Entries of the tables of some slots.
fn bucket_entries(written: &WrittenLsh, slots: Range<usize>) -> Vec<Vec<u64>> {
    let LshSpec { n_tables, n_radii, hash_bits, .. } = written.spec;
    let mut all = Vec::new();
    for radius in 0..n_radii {
        for table in 0..n_tables {
            let mut buckets = vec![Vec::new(); 1 << hash_bits];
            for slot in slots.clone() {
                let floor = |t: f64| t.floor() as i64;
                let positions = written.positions(radius, table, &written.vectors[slot]);
                let integers: Vec<i64> = positions.into_iter().map(floor).collect();
                let (bucket, v) = written.address(table, &integers);
                let fingerprint = written.fingerprint(v, slots.end);
                buckets[bucket as usize].push(u64::from(fingerprint) << id_bits(slots.end) | slot as u64);
            }
            buckets.iter_mut().for_each(|bucket| bucket.sort_unstable());
            all.extend(buckets);
        }
    }
    all
}

/// Puts the CRC of a block in its place.
pub fn seal_block(block: &mut [u8]) {
    let crc = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
}

fn table_files(written: &WrittenLsh, pair: usize) -> [Contents; 2] {
    let spec = written.spec;
    let (slots, is_added) = (written.pairs()[pair].clone(), pair > 0);
    let block_bytes = if is_added { 128 } else { spec.block_bytes };
    let capacity = (block_bytes - 16) / 5;
    let buckets = &written.entries[pair];
    // Block numbers of each chain.
    let lengths: Vec<usize> = buckets.iter().map(|bucket| bucket.len().div_ceil(capacity)).collect();
    let mut chains: Vec<Vec<u64>> = vec![Vec::new(); buckets.len()];
    let mut n_blocks = 0u64;
    if spec.scattered {
        for depth in 0..lengths.iter().copied().max().unwrap() {
            for (chain, _) in chains.iter_mut().zip(&lengths).filter(|(_, length)| **length > depth) {
                chain.push(n_blocks);
                n_blocks += 1;
            }
        }
    } else {
        for (chain, &length) in chains.iter_mut().zip(&lengths) {
            chain.extend(n_blocks..n_blocks + length as u64);
            n_blocks += length as u64;
        }
    }
    // The pointer to the rest of a chain.
    let pointer = |rest: &[u64]| match rest.first() {
        None => 0,
        Some(first) => {
            let run = rest.iter().zip(*first..).take_while(|(got, want)| *got == want).count() as u64;
            (4096 + first * block_bytes as u64) | run << 48
        }
    };
    let mut blocks = vec![0u8; n_blocks as usize * block_bytes];
    for (e, (bucket, chain)) in (0u64..).zip(buckets.iter().zip(&chains)) {
        let tag = (e.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16;
        for (i, (entries, &number)) in bucket.chunks(capacity).zip(chain).enumerate() {
            let block = &mut blocks[number as usize * block_bytes..][..block_bytes];
            block[8..16].copy_from_slice(&pointer(&chain[i + 1..]).to_le_bytes());
            block[4..6].copy_from_slice(&(entries.len() as u16).to_le_bytes());
            block[6..8].copy_from_slice(&tag.to_le_bytes());
            for (place, entry) in block[16..].chunks_exact_mut(5).zip(entries) {
                place.copy_from_slice(&entry.to_le_bytes()[..5]);
            }
            seal_block(block);
        }
    }
    let pointers: Vec<u64> = chains.iter().map(|chain| pointer(chain)).collect();
    let mut occupied = vec![0u8; pointers.len().div_ceil(8)];
    pointers.iter().enumerate().for_each(|(e, &p)| occupied[e / 8] |= u8::from(p != 0) << (e % 8));
    let n_tables = spec.n_tables as u64;
    let shared = [("n_vectors", slots.end as u64), ("n_tables", n_tables), ("n_radii", spec.n_radii as u64)];
    let first_slot = [("first_slot", slots.start as u64)];
    let more = if is_added { &first_slot[..] } else { &[] };
    let shared = [&shared[..], &[("hash_bits", spec.hash_bits.into())], more].concat();
    let n_buckets = pointers.iter().filter(|&&p| p != 0).count() as u64;
    let stored = pointers.iter().filter(|&&p| p != 0 || !is_added).map(|p| p.to_le_bytes());
    let tables = Contents {
        name: if is_added { "added-tables.imx" } else { "tables.imx" },
        kind: b"LSHT",
        fields: [&shared[..], &[("n_buckets", n_buckets)]].concat(),
        sections: vec![("pointers", le(stored)), ("occupied", occupied)],
    };
    let fields = [
        ("id_bits", id_bits(slots.end).into()),
        ("fingerprint_bits", written.fingerprint_bits(slots.end).into()),
        ("block_bytes", block_bytes as u64),
        ("n_blocks", n_blocks),
        ("n_entries", slots.len() as u64 * n_tables * spec.n_radii as u64),
        ("longest_chain", lengths.iter().copied().max().unwrap() as u64),
    ];
    let buckets = Contents {
        name: if is_added { "added-buckets.imx" } else { "buckets.imx" },
        kind: b"LSHB",
        fields: [&shared[..], &fields].concat(),
        sections: vec![("blocks", blocks)],
    };
    [tables, buckets]
}
