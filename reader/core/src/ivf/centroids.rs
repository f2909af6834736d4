//! centroids.imx: centroids of all lists, the codec of their rows, and a graph over the centroids (docs/formats/ivf.md).

use std::path::PathBuf;

use super::rabitq::RabitQ;
use crate::bytes::{f32s, u32s};
use crate::codes::{Codebook, Rotation};
use crate::directory::Directory;
use crate::error::{Error, InFile, Result};
use crate::interrupt::Stop;
use crate::memory::collect;
use crate::metric::Metric;
use crate::pagefile::PageFile;
use crate::stored::{Dtype, Stored, read_dim, read_space};

/// Names of codecs, by their numbers.
const CODECS: &str = "flat, sq8, pq, rabitq, opq";
/// Most lists of an index.
const MAX_LISTS: u64 = 1 << 24;
/// Most batches: file names have six digits.
const MAX_BATCHES: u64 = 1_000_000;
/// Most lists that a vector lies in.
const MAX_COPIES: u64 = 255;

/// What the bytes of a row are.
#[derive(Debug)]
#[non_exhaustive]
pub enum Codec {
    /// A vector as it is.
    Flat,
    /// 8-bit codes of scaled components.
    Sq8,
    /// PQ codes of the residuals of vectors to the centroids of their lists; with a rotation (opq) of rotated ones.
    Pq(Codebook),
    /// RaBitQ codes of the residuals of rotated vectors.
    RabitQ(RabitQ),
}

/// A graph over the centroids: a row of neighbours for each, padded with the centroid's own number.
#[derive(Debug)]
pub struct CellGraph {
    degree: usize,
    /// Where a search starts.
    pub entry: u32,
    neighbours: Vec<u32>,
}

impl CellGraph {
    /// Reads the graph, if the file has one.
    fn read(file: &PageFile, checksums: &[u32], n_lists: u64, interrupted: Stop<'_>) -> Result<Option<Self>> {
        if !file.has_field("degree") {
            return Ok(None);
        }
        let degree = file.field_in("degree", 1..=512)?;
        let entry = file.field_in("entry", 0..=n_lists - 1)? as u32;
        let section = file.section("neighbours", Some(4 * n_lists * degree))?;
        let raw = file.read_section(&section, checksums, interrupted)?;
        let neighbours = collect(&file.path, raw.len() / 4, u32s(&raw))?;
        if let Some(at) = neighbours.iter().position(|&cell| u64::from(cell) >= n_lists) {
            let (place, want) = (format!("neighbour {at}"), format!("a list below {n_lists}"));
            return Err(Error::corrupt(&file.path, place, want, neighbours[at]));
        }
        Ok(Some(CellGraph { degree: degree as usize, entry, neighbours }))
    }

    /// The lists that a list leads to.
    pub fn neighbours(&self, cell: u32) -> &[u32] {
        &self.neighbours[cell as usize * self.degree..][..self.degree]
    }

    /// Memory it takes.
    fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.neighbours) as u64
    }
}

/// An opened centroids.imx, whole: `4 * n_lists * dim` bytes, and 4 an edge of the graph.
///
/// ```compile_fail,E0616
/// fn widen(centroids: &mut indexmill_core::ivf::centroids::Centroids) {
///     centroids.dim *= 2;
/// }
/// ```
#[derive(Debug)]
pub struct Centroids {
    /// Where it is.
    pub path: PathBuf,
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// Lists.
    pub n_lists: usize,
    // Kernels read as many bytes of a row as these four say: `row_bytes` covers what the codec makes of `dim` components.
    pub(crate) dim: usize,
    pub(crate) dtype: Dtype,
    pub(crate) codec: Codec,
    pub(crate) row_bytes: usize,
    /// What "near" means.
    pub metric: Metric,
    /// Length of all stored vectors under inner product; else 0.
    pub max_norm: f64,
    /// Vectors of all batches.
    pub n_vectors: u32,
    /// Batches.
    pub n_batches: usize,
    /// Lists that a vector lies in at most.
    pub copies: usize,
    /// A graph over the centroids, where there are many.
    pub graph: Option<CellGraph>,
    /// Of vectors before they are coded (rabitq, opq); `rows` are rotated, too.
    rotation: Option<Rotation>,
    rows: Vec<f32>,
    /// `min[dim]` then `step[dim]` (sq8).
    scale: Vec<f32>,
}

impl Centroids {
    /// Reads centroids.imx of a directory and checks every page and value.
    pub fn open(directory: &Directory, interrupted: Stop<'_>) -> Result<Self> {
        let file = PageFile::open_in(directory, "centroids.imx", b"CENT")?;
        let (metric, dtype, max_norm) = read_space(&file, 4)?;
        let n_lists = file.field_in("n_lists", 1..=MAX_LISTS)?;
        let dim = read_dim(&file, metric)?;
        let checksums = file.load_checksums(interrupted)?;
        let number = file.field("codec")?;
        let (codec, row_bytes) = match number {
            0 => (Codec::Flat, dim * dtype.bytes()),
            1 => (Codec::Sq8, dim),
            2 | 4 => {
                let book = Codebook::read(&file, dim, "pivots", interrupted)?;
                let row_bytes = book.n_chunks() as u64;
                (Codec::Pq(book), row_bytes)
            }
            3 => {
                let code = RabitQ::read(&file, dim)?;
                let row_bytes = code.row_bytes() as u64;
                (Codec::RabitQ(code), row_bytes)
            }
            unknown => {
                let message =
                    format!("codec {unknown}: expected one of {CODECS}; install a newer indexmill to read it");
                return Err(Error::TooNew(InFile::of(&file.path, message)));
            }
        };
        file.field_in("row_bytes", row_bytes..=row_bytes)?;
        let rotation = matches!(number, 3 | 4).then(|| Rotation::read(&file, dim, interrupted)).transpose()?;
        let scale = match codec {
            Codec::Sq8 => floats(&file, "scale", 2 * dim, &checksums, interrupted)?,
            _ => Vec::new(),
        };
        Ok(Centroids {
            path: file.path.clone(),
            build_id: file.header.build_id,
            n_lists: n_lists as usize,
            dim: dim as usize,
            dtype,
            codec,
            row_bytes: row_bytes as usize,
            metric,
            max_norm,
            n_vectors: file.field_in("n_vectors", 1..=u64::from(u32::MAX))? as u32,
            n_batches: file.field_in("n_batches", 1..=MAX_BATCHES)? as usize,
            copies: if file.has_field("copies") { file.field_in("copies", 1..=MAX_COPIES)? as usize } else { 1 },
            graph: CellGraph::read(&file, &checksums, n_lists, interrupted)?,
            rotation,
            rows: floats(&file, "centroids", n_lists * dim, &checksums, interrupted)?,
            scale,
        })
    }

    /// Dimensions as stored.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Component type before the codec.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// What a row is.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The centroid of a list.
    pub fn row(&self, list: u32) -> &[f32] {
        &self.rows[list as usize * self.dim..][..self.dim]
    }

    /// All centroids in the order of their lists.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.rows.chunks_exact(self.dim)
    }

    /// How rows are compared with queries: as the vectors, or for codecs that round as floats.
    pub(crate) fn stored(&self) -> Stored<'_> {
        let dtype = match self.codec {
            Codec::Flat => self.dtype,
            Codec::Sq8 => Dtype::Sq8,
            Codec::Pq(_) | Codec::RabitQ(_) => Dtype::Float32,
        };
        Stored { dim: self.dim, dtype, metric: self.metric, vector_bytes: self.row_bytes, scale: &self.scale }
    }

    /// Name of the codec, as in job files.
    pub fn codec_name(&self) -> &'static str {
        match self.codec {
            Codec::Flat => "flat",
            Codec::Sq8 => "sq8",
            Codec::Pq(_) if self.rotation.is_some() => "opq",
            Codec::Pq(_) => "pq",
            Codec::RabitQ(_) => "rabitq",
        }
    }

    /// Makes `out` the query as centroids and rows are compared with it, if it must be rotated; else empty.
    pub(super) fn rotate(&self, query: &[f32], out: &mut Vec<f32>) {
        out.clear();
        if let Some(rotation) = &self.rotation {
            out.extend(rotation.rotated(query));
        }
    }

    /// Memory of centroids and codec.
    pub fn memory_bytes(&self) -> u64 {
        let codec = match &self.codec {
            Codec::Pq(book) => book.memory_bytes(),
            Codec::RabitQ(_) | Codec::Flat | Codec::Sq8 => 0,
        };
        let rotation = self.rotation.as_ref().map_or(0, Rotation::memory_bytes);
        (size_of_val(&*self.rows) + size_of_val(&*self.scale)) as u64 + codec + rotation
    }

    /// Memory of the graph over the centroids.
    pub fn graph_bytes(&self) -> u64 {
        self.graph.as_ref().map_or(0, CellGraph::memory_bytes)
    }
}

fn floats(file: &PageFile, name: &str, n: u64, checksums: &[u32], interrupted: Stop<'_>) -> Result<Vec<f32>> {
    let raw = file.read_section(&file.section(name, Some(4 * n))?, checksums, interrupted)?;
    let values = collect(&file.path, raw.len() / 4, f32s(&raw))?;
    match values.iter().find(|x| !x.is_finite()) {
        Some(got) => Err(Error::corrupt(&file.path, format!("section {name:?}"), "finite numbers", got)),
        None => Ok(values),
    }
}
