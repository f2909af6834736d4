//! tables.imx and added-tables.imx: where the first block of each bucket is, and which buckets there are
//! (docs/formats/lsh.md).

use std::path::PathBuf;

use super::buckets::{Buckets, Pointer};
use super::covered::Covered;
use super::functions::Functions;
use crate::bytes::u64_at;
use crate::distance::prefetch_line;
use crate::error::{Error, Result};
use crate::interrupt::Stop;
use crate::memory::collect;
use crate::pagefile::{PAGE_BYTES, PageFile, Section};

/// Bytes of a pointer.
pub const POINTER_BYTES: usize = 8;
/// Bytes of the bitmap of added tables whose bits are counted to find a pointer, at most: a cache line.
const COUNTED_BYTES: usize = 64;

/// The occupancy bitmap, `r L 2^u / 8` bytes, in memory, and optionally the pointers.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Where it is.
    pub path: PathBuf,
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// Where the pointers are.
    pub section: Section,
    occupied: Vec<u8>,
    /// Of added tables, which have pointers of occupied buckets alone: how many there are before each line of the bitmap.
    counts: Option<Vec<u64>>,
    pointers: Option<Vec<u8>>,
    n_tables: usize,
    hash_bits: u32,
}

impl Tables {
    /// Takes header and fields of `file`, which must be those of tables of the slots `covered` that belong to
    /// `functions`, and reads the bitmap; all pointers if they are to be kept in memory.
    pub fn new(
        file: &PageFile,
        functions: &Functions,
        covered: &Covered,
        in_memory: bool,
        interrupted: Stop<'_>,
    ) -> Result<Self> {
        covered.expect_fields(file, functions)?;
        let n_entries = functions.n_entries();
        let n_buckets = file.field_in("n_buckets", 1..=n_entries)?;
        let n_pointers = if covered.is_added() { n_buckets } else { n_entries };
        let section = file.section("pointers", Some(n_pointers * POINTER_BYTES as u64))?;
        let checksums = file.load_checksums(interrupted)?;
        let bitmap = file.section("occupied", Some(n_entries.div_ceil(8)))?;
        let occupied = file.read_section(&bitmap, &checksums, interrupted)?;
        let found = ones(&occupied);
        let past = occupied.last().is_some_and(|&last| !n_entries.is_multiple_of(8) && last >> (n_entries % 8) != 0);
        if past || found != n_buckets {
            let expected = format!("{n_buckets} buckets");
            return Err(Error::corrupt(&file.path, "section \"occupied\"", expected, format!("{found} bits")));
        }
        let counts = if covered.is_added() { Some(counts_of(file, &occupied)?) } else { None };
        let pointers = in_memory.then(|| file.read_section(&section, &checksums, interrupted)).transpose()?;
        let (path, build_id) = (file.path.clone(), file.header.build_id);
        let (n_tables, hash_bits) = (functions.n_tables, functions.hash_bits);
        Ok(Tables { path, build_id, section, occupied, counts, pointers, n_tables, hash_bits })
    }

    /// Whether pointers are in memory.
    pub fn is_in_memory(&self) -> bool {
        self.pointers.is_some()
    }

    /// The pointer of an occupied entry, if pointers are in memory.
    pub fn held(&self, entry: u64, buckets: &Buckets) -> Result<Option<Pointer>> {
        let Some(pointers) = &self.pointers else { return Ok(None) };
        let raw = u64_at(pointers, self.place_of(entry) as usize * POINTER_BYTES);
        self.pointer(entry, raw, buckets).map(Some)
    }

    /// Prefetches the pointer of an occupied entry, which is needed soon.
    pub fn prefetch(&self, entry: u64) {
        if let Some(pointers) = &self.pointers {
            prefetch_line(pointers.as_ptr().wrapping_add(self.place_of(entry) as usize * POINTER_BYTES));
        }
    }

    /// Whether the bucket of an entry holds anything.
    pub fn is_occupied(&self, entry: u64) -> bool {
        self.occupied[(entry / 8) as usize] >> (entry % 8) & 1 == 1
    }

    /// Whether there is a pointer for an entry, which may be 0: added tables have those of occupied buckets alone.
    pub fn has_pointer(&self, entry: u64) -> bool {
        self.counts.is_none() || self.is_occupied(entry)
    }

    /// Where in the file the pointer of an entry is.
    pub fn offset_of(&self, entry: u64) -> u64 {
        self.section.first_page * PAGE_BYTES as u64 + self.place_of(entry) * POINTER_BYTES as u64
    }

    /// Number of the pointer of an entry: its own one, or that among the occupied ones.
    fn place_of(&self, entry: u64) -> u64 {
        let Some(counts) = &self.counts else { return entry };
        let byte = (entry / 8) as usize;
        let line = byte / COUNTED_BYTES;
        let before = ones(&self.occupied[line * COUNTED_BYTES..byte]);
        let beside = self.occupied[byte] & ((1u8 << (entry % 8)) - 1);
        counts[line] + before + u64::from(beside.count_ones())
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

    /// Memory of the bitmap, and of the numbers beside it.
    pub fn bitmap_bytes(&self) -> u64 {
        let counts = self.counts.as_ref().map_or(0, |counts| size_of_val(&**counts));
        (size_of_val(&*self.occupied) + counts) as u64
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        let pointers = self.pointers.as_ref().map_or(0, |pointers| size_of_val(&**pointers));
        self.bitmap_bytes() + pointers as u64
    }
}

/// Bits that are set.
fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words = words.iter().map(|&word| u64::from(u64::from_le_bytes(word).count_ones())).sum::<u64>();
    of_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// Bits that are set before each line of a bitmap.
fn counts_of(file: &PageFile, occupied: &[u8]) -> Result<Vec<u64>> {
    let mut before = 0;
    let counts = occupied.chunks(COUNTED_BYTES).map(|line| {
        let count = before;
        before += ones(line);
        count
    });
    collect(&file.path, occupied.len().div_ceil(COUNTED_BYTES), counts)
}
