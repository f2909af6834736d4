//! tables.imx: where the first block of each bucket is, and which buckets there are (docs/formats/lsh.md).

use std::path::PathBuf;

use super::buckets::{Buckets, Pointer};
use super::functions::Functions;
use crate::bytes::u64_at;
use crate::distance::prefetch_line;
use crate::error::{Error, Result};
use crate::interrupt::Stop;
use crate::memory::reserve;
use crate::pagefile::{PAGE_BYTES, PageFile, Section};

/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 8;

/// The occupancy bitmap, `r L 2^u / 8` bytes, in memory, and optionally the pointers, 64 times as much.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Where it is.
    pub path: PathBuf,
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// Where the pointers are.
    pub section: Section,
    occupied: Vec<u8>,
    pointers: Option<Vec<u8>>,
    n_tables: usize,
    hash_bits: u32,
}

impl Tables {
    /// Takes header and fields of `file`, which must be those that belong to `functions`, and reads the bitmap; all
    /// pointers if they are to be kept in memory.
    pub fn new(file: &PageFile, functions: &Functions, in_memory: bool, interrupted: Stop<'_>) -> Result<Self> {
        file.expect_fields([
            ("n_vectors", u64::from(functions.n_vectors)),
            ("n_tables", functions.n_tables as u64),
            ("n_radii", functions.n_radii() as u64),
            ("hash_bits", functions.hash_bits.into()),
        ])?;
        let n_entries = functions.n_entries();
        let section = file.section("pointers", Some(n_entries * POINTER_BYTES as u64))?;
        let checksums = file.load_checksums(interrupted)?;
        let bitmap = file.section("occupied", Some(n_entries.div_ceil(8)))?;
        let raw = file.read_section(&bitmap, &checksums, interrupted)?;
        let mut occupied: Vec<u8> = reserve(&file.path, raw.len())?;
        occupied.extend_from_slice(&raw);
        let found: u64 = occupied.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let past = occupied.last().is_some_and(|&last| !n_entries.is_multiple_of(8) && last >> (n_entries % 8) != 0);
        if past || found != file.field("n_buckets")? {
            let expected = format!("{} buckets", file.field("n_buckets")?);
            return Err(Error::corrupt(&file.path, "section \"occupied\"", expected, format!("{found} bits")));
        }
        let pointers = in_memory.then(|| file.read_section(&section, &checksums, interrupted)).transpose()?;
        let (path, build_id) = (file.path.clone(), file.header.build_id);
        let (n_tables, hash_bits) = (functions.n_tables, functions.hash_bits);
        Ok(Tables { path, build_id, section, occupied, pointers, n_tables, hash_bits })
    }

    /// Whether pointers are in memory.
    pub fn is_in_memory(&self) -> bool {
        self.pointers.is_some()
    }

    /// The pointer of an occupied entry, if pointers are in memory.
    pub fn held(&self, entry: u64, buckets: &Buckets) -> Result<Option<Pointer>> {
        let Some(pointers) = &self.pointers else { return Ok(None) };
        self.pointer(entry, u64_at(pointers, entry as usize * POINTER_BYTES), buckets).map(Some)
    }

    /// Prefetches a pointer that is needed soon.
    pub fn prefetch(&self, entry: u64) {
        if let Some(pointers) = &self.pointers {
            prefetch_line(pointers.as_ptr().wrapping_add(entry as usize * POINTER_BYTES));
        }
    }

    /// Whether the bucket of an entry holds anything.
    pub fn is_occupied(&self, entry: u64) -> bool {
        self.occupied[(entry / 8) as usize] >> (entry % 8) & 1 == 1
    }

    /// Where in the file an entry is.
    pub fn offset_of(&self, entry: u64) -> u64 {
        self.section.first_page * PAGE_BYTES as u64 + entry * POINTER_BYTES as u64
    }

    /// Parses the pointer of an occupied entry.
    pub fn pointer(&self, entry: u64, raw: u64, buckets: &Buckets) -> Result<Pointer> {
        if raw == 0 {
            return Err(Error::corrupt(&self.path, self.name(entry), "a block, as the bitmap says", "none"));
        }
        buckets.pointer(raw, &self.path, || self.name(entry))
    }

    /// Where an entry is, in words.
    pub fn name(&self, entry: u64) -> String {
        let (table, bucket) = (entry >> self.hash_bits, entry & ((1 << self.hash_bits) - 1));
        let (radius, table) = (table / self.n_tables as u64, table % self.n_tables as u64);
        let offset = self.offset_of(entry);
        format!("offset {offset}: pointer of radius {radius}, table {table}, bucket {bucket}")
    }

    /// Memory of the bitmap.
    pub fn bitmap_bytes(&self) -> u64 {
        size_of_val(&*self.occupied) as u64
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        let pointers = self.pointers.as_ref().map_or(0, |pointers| size_of_val(&**pointers));
        self.bitmap_bytes() + pointers as u64
    }
}
