//! vectors.imx: the exact vectors in slot order (docs/formats/lsh.md), in memory or left in the file.

use std::path::PathBuf;

use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::interrupt::{Stop, go_on};
use crate::memory::{Region, resize};
use crate::metric::Metric;
use crate::pagefile::{PAGE_BYTES, PageFile, check_page};
use crate::stored::{Dtype, Stored, read_dim, read_space};

/// Name of the file.
pub const VECTORS_FILE: &str = "vectors.imx";
/// Pages read at a time while vectors are loaded.
const PAGES_AT_ONCE: u64 = 256;

/// An opened vectors.imx: the vectors, `n * vector_bytes` bytes, or the checksums of their pages, 4 bytes each.
///
/// ```compile_fail,E0616
/// fn widen(vectors: &mut indexmill_core::vectors::Vectors) {
///     vectors.dim *= 2;
/// }
/// ```
pub struct Vectors {
    /// Where it is.
    pub path: PathBuf,
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// The file that was opened.
    pub(crate) file_id: FileId,
    /// n.
    pub n_vectors: u32,
    // Kernels read as many bytes of a vector as these three say: `vector_bytes` covers `dim` components of the type.
    pub(crate) dim: usize,
    pub(crate) dtype: Dtype,
    pub(crate) vector_bytes: usize,
    /// What "near" means.
    pub metric: Metric,
    /// Largest norm of an input vector (metric ip; else 0).
    pub max_norm: f64,
    /// Vectors of one unit of reading.
    pub rows_per_unit: u32,
    /// Pages of one unit of reading.
    pub pages_per_unit: u64,
    first_page: u64,
    checksums: Vec<u32>,
    rows: Option<Region>,
}

impl Vectors {
    /// Opens vectors.imx of a directory and checks every field; reads all vectors if they are to be kept in memory.
    pub fn open(directory: &Directory, in_memory: bool, interrupted: Stop<'_>) -> Result<Self> {
        Self::new(&PageFile::open_in(directory, VECTORS_FILE, b"VECT")?, in_memory, interrupted)
    }

    /// Takes the header of `file`, and its vectors if they are to be kept in memory.
    pub(crate) fn new(file: &PageFile, in_memory: bool, interrupted: Stop<'_>) -> Result<Self> {
        let (metric, dtype, max_norm) = read_space(file, 4)?;
        let n = file.field_in("n_vectors", 1..=u64::from(u32::MAX))?;
        let dim = read_dim(file, metric)?;
        let vector_bytes = (dim * dtype.bytes()).next_multiple_of(4);
        let (rows_per_page, pages_per_row) =
            (PAGE_BYTES as u64 / vector_bytes, vector_bytes.div_ceil(PAGE_BYTES as u64));
        file.expect_fields([
            ("vector_bytes", vector_bytes),
            ("rows_per_page", rows_per_page),
            ("pages_per_row", pages_per_row),
        ])?;
        let pages = if rows_per_page > 0 { n.div_ceil(rows_per_page) } else { n.saturating_mul(pages_per_row) };
        let section = file.section("vectors", Some(pages.saturating_mul(PAGE_BYTES as u64)))?;
        let mut vectors = Vectors {
            path: file.path.clone(),
            build_id: file.header.build_id,
            file_id: file.id()?,
            n_vectors: n as u32,
            dim: dim as usize,
            dtype,
            vector_bytes: vector_bytes as usize,
            metric,
            max_norm,
            rows_per_unit: rows_per_page.max(1) as u32,
            pages_per_unit: pages_per_row,
            first_page: section.first_page,
            checksums: file.load_checksums(interrupted)?,
            rows: None,
        };
        if in_memory {
            vectors.load(file, interrupted)?;
        }
        Ok(vectors)
    }

    /// Refuses vectors that are not those of an index, as its file `like` describes them; of type `dtype`, if it says.
    pub(crate) fn check_like(
        &self,
        like: &str,
        n_vectors: u32,
        dim: usize,
        metric: Metric,
        dtype: Option<Dtype>,
    ) -> Result<()> {
        for (name, want, got) in [
            ("n_vectors", u64::from(n_vectors), u64::from(self.n_vectors)),
            ("dim", dim as u64, self.dim as u64),
            ("dtype", dtype.unwrap_or(self.dtype) as u64 + 1, self.dtype as u64 + 1),
            ("metric", metric as u64 + 1, self.metric as u64 + 1),
        ] {
            if got != want {
                let place = format!("field {name:?} in the header");
                return Err(Error::corrupt(&self.path, place, format!("{want}, as in {like}"), got));
            }
        }
        Ok(())
    }

    /// Reads and checks all pages, after which their checksums are dropped.
    fn load(&mut self, file: &PageFile, interrupted: Stop<'_>) -> Result<()> {
        let mut rows = Region::new(&self.path, self.n_vectors as usize * self.vector_bytes)?;
        self.read_rows(file, 0..self.n_vectors, interrupted, &mut |slot, row| {
            rows[slot as usize * self.vector_bytes..][..self.vector_bytes].copy_from_slice(row);
            Ok(())
        })?;
        (self.rows, self.checksums) = (Some(rows), Vec::new());
        Ok(())
    }

    /// Calls `take` with the vectors of `slots` from checked pages. The first slot must be the first of its unit.
    /// `interrupted` is asked before each read.
    pub(crate) fn read_rows(
        &self,
        file: &PageFile,
        slots: std::ops::Range<u32>,
        interrupted: Stop<'_>,
        take: &mut dyn FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut unit = u64::from(slots.start / self.rows_per_unit);
        let end = u64::from(slots.end).div_ceil(u64::from(self.rows_per_unit));
        let unit_bytes = self.unit_bytes();
        let mut buffer: Vec<u8> = Vec::new();
        while unit < end {
            go_on(interrupted)?;
            let units = (end - unit).min((PAGES_AT_ONCE / self.pages_per_unit).max(1));
            resize(&self.path, &mut buffer, units as usize * unit_bytes, 0)?;
            file.read_pages(self.first_page + unit * self.pages_per_unit, &self.checksums, &mut buffer)?;
            for (i, content) in (unit..unit + units).zip(buffer.chunks_exact(unit_bytes)) {
                let first = (i * u64::from(self.rows_per_unit)) as u32;
                let rows = content.chunks_exact(self.vector_bytes).take(self.rows_per_unit as usize);
                for (slot, row) in (first..slots.end).zip(rows) {
                    take(slot, row)?;
                }
            }
            unit += units;
        }
        Ok(())
    }

    /// What the vectors are.
    pub(crate) fn stored(&self) -> Stored<'_> {
        let Vectors { dim, dtype, metric, vector_bytes, .. } = *self;
        Stored { dim, dtype, metric, vector_bytes, scale: &[] }
    }

    /// Dimensions as stored.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Component type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Bytes of a vector, padded to a multiple of 4.
    pub fn vector_bytes(&self) -> usize {
        self.vector_bytes
    }

    /// Bytes of one unit of reading.
    pub fn unit_bytes(&self) -> usize {
        self.pages_per_unit as usize * PAGE_BYTES
    }

    /// Unit that holds a slot.
    pub fn unit_of(&self, slot: u32) -> u32 {
        slot / self.rows_per_unit
    }

    /// Page of the file where a unit begins.
    pub fn page_of(&self, unit: u32) -> u64 {
        self.first_page + u64::from(unit) * self.pages_per_unit
    }

    /// Offset of a unit in the file.
    pub fn offset_of(&self, unit: u32) -> u64 {
        self.page_of(unit) * PAGE_BYTES as u64
    }

    /// Compares a unit that was read with its checksums.
    pub fn check_unit(&self, unit: u32, bytes: &[u8]) -> Result<()> {
        let first = self.offset_of(unit) / PAGE_BYTES as u64;
        for (number, page) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            check_page(&self.path, number, page, self.checksums.get(number as usize - 1).copied().unwrap_or(0))?;
        }
        Ok(())
    }

    /// The vector of `slot` in its unit.
    pub fn row<'a>(&self, unit: &'a [u8], slot: u32) -> &'a [u8] {
        &unit[(slot % self.rows_per_unit) as usize * self.vector_bytes..][..self.vector_bytes]
    }

    /// Whether vectors are in memory.
    pub fn is_in_memory(&self) -> bool {
        self.rows.is_some()
    }

    /// The vector of `slot`, if vectors are in memory.
    pub fn held(&self, slot: u32) -> Option<&[u8]> {
        Some(&self.rows.as_ref()?[slot as usize * self.vector_bytes..][..self.vector_bytes])
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.checksums) + self.rows.as_ref().map_or(0, |rows| size_of_val(&**rows))) as u64
    }
}
