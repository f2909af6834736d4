//! buckets.imx and added-buckets.imx: chains of bucket blocks (docs/formats/lsh.md).

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::covered::Covered;
use super::functions::Functions;
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::checksum;
use crate::error::{Error, Result};
use crate::pagefile::{PAGE_BYTES, PageFile, Section};

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 5;
/// Bits of a pointer that are an offset.
const OFFSET_BITS: u32 = 48;

/// Tag of the entry of tables.imx to which a block's chain belongs. It exposes a pointer to a wrong block without the
/// checksum of the pointer's page.
pub fn tag_of(entry: u64) -> u16 {
    (entry.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

/// Where a chain, or the rest of one, begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// From the start of the file.
    pub offset: u64,
    /// Blocks of the chain that follow each other from there, at least 1.
    pub run: usize,
}

/// Shape of the blocks; the blocks themselves stay in the file.
#[derive(Debug, Clone)]
pub struct Buckets {
    /// Where it is.
    pub path: PathBuf,
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// B.
    pub block_bytes: usize,
    /// Entries of a full block.
    pub capacity: usize,
    /// Where the blocks are.
    pub section: Section,
    covered: Covered,
}

/// A checked block.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    entries: &'a [u8],
    /// The rest of the chain.
    pub next: Option<Pointer>,
}

impl Buckets {
    /// Takes header and fields of `file`, which must be those of tables of the slots `covered` that belong to
    /// `functions`.
    pub fn new(file: &PageFile, functions: &Functions, covered: Covered) -> Result<Self> {
        let Covered { id_bits, fingerprint_bits, block_bytes, .. } = covered;
        covered.expect_fields(file, functions)?;
        file.expect_fields([
            ("id_bits", id_bits.into()),
            ("fingerprint_bits", fingerprint_bits.into()),
            ("block_bytes", block_bytes as u64),
        ])?;
        let n_entries = covered.n_slots() * (functions.n_tables * functions.n_radii()) as u64;
        file.field_in("n_entries", n_entries..=n_entries)?;
        let n_blocks = file.field_in("n_blocks", 1..=(1 << OFFSET_BITS) / block_bytes as u64)?;
        let section = file.section("blocks", Some(n_blocks * block_bytes as u64))?;
        let (path, build_id) = (file.path.clone(), file.header.build_id);
        let capacity = (block_bytes - HEADER_BYTES) / ENTRY_BYTES;
        if n_blocks * (capacity as u64) < n_entries {
            let expected = format!("room for {n_entries} entries");
            return Err(Error::corrupt(&path, "field \"n_blocks\" in the header", expected, n_blocks));
        }
        Ok(Buckets { path, build_id, block_bytes, capacity, section, covered })
    }

    /// Offset of the first block.
    pub fn begin(&self) -> u64 {
        self.section.first_page * PAGE_BYTES as u64
    }

    /// Offset of the end of the last block.
    pub fn end(&self) -> u64 {
        self.begin() + self.section.payload
    }

    /// Parses a pointer other than 0, which stands at `place` of `path`.
    pub fn pointer(&self, raw: u64, path: &Path, place: impl FnOnce() -> String) -> Result<Pointer> {
        let (offset, run) = (raw & ((1 << OFFSET_BITS) - 1), raw >> OFFSET_BITS);
        let (begin, end, block_bytes) = (self.begin(), self.end(), self.block_bytes as u64);
        let is_inside = (begin..end).contains(&offset) && (end - offset) / block_bytes >= run;
        if !is_inside || run == 0 || !(offset - begin).is_multiple_of(block_bytes) {
            let expected = format!("1 or more blocks of {block_bytes} bytes inside {begin}..{end}");
            return Err(Error::corrupt(path, place(), expected, format!("{run} blocks from {offset}")));
        }
        Ok(Pointer { offset, run: run as usize })
    }

    /// Compares the block at `offset` with its checksum.
    pub fn check_crc(&self, offset: u64, block: &[u8]) -> Result<()> {
        let (want, got) = (u32_at(block, 0), checksum::of_block(block));
        if want != got {
            let place = format!("block at offset {offset}");
            return Err(Error::corrupt(&self.path, place, format!("CRC32C {want:08x}"), format!("{got:08x}")));
        }
        Ok(())
    }

    /// Parses the block at `offset` of the chain of a table's entry. A chain only goes forward, so it ends.
    pub fn block<'a>(&self, entry: u64, offset: u64, block: &'a [u8]) -> Result<Block<'a>> {
        let (want, got) = (tag_of(entry), u16_at(block, 6));
        if want != got {
            let expected = format!("{want:04x}, the tag of entry {entry}, which points here");
            return Err(Error::corrupt(
                &self.path,
                format!("block at offset {offset}: tag"),
                expected,
                format!("{got:04x}"),
            ));
        }
        let count = usize::from(u16_at(block, 4));
        if !(1..=self.capacity).contains(&count) {
            let place = format!("block at offset {offset}: count");
            return Err(Error::corrupt(&self.path, place, format!("1..{}", self.capacity), count));
        }
        let place = || format!("block at offset {offset}: next");
        let next = match u64_at(block, 8) {
            0 => None,
            raw => Some(self.pointer(raw, &self.path, place)?),
        };
        if let Some(next) = next.filter(|next| next.offset <= offset) {
            return Err(Error::corrupt(&self.path, place(), "a greater offset", next.offset));
        }
        Ok(Block { entries: &block[HEADER_BYTES..HEADER_BYTES + count * ENTRY_BYTES], next })
    }

    /// Slot and fingerprint of an entry of the block at `offset`.
    pub fn split(&self, offset: u64, entry: u64) -> Result<(u32, u32)> {
        let (id_bits, Range { start, end }) = (self.covered.id_bits, self.covered.slots.clone());
        let slot = entry & ((1 << id_bits) - 1);
        if slot < start.into() || slot >= end.into() {
            let place = format!("block at offset {offset}: slot");
            let expected = if start > 0 { format!("{start}..{}", end - 1) } else { format!("below {end}") };
            return Err(Error::corrupt(&self.path, place, expected, slot));
        }
        Ok((slot as u32, (entry >> id_bits) as u32))
    }

    /// The fingerprint of entries of a hash with that `rest`.
    pub fn fingerprint_of(&self, rest: u32) -> u32 {
        (u64::from(rest) & ((1 << self.covered.fingerprint_bits) - 1)) as u32
    }

    /// Number of slots that have an entry in each table.
    pub fn n_slots(&self) -> u64 {
        self.covered.n_slots()
    }

    /// The smallest entry with this fingerprint, and the first one beyond.
    pub fn entries_of(&self, fingerprint: u32) -> Range<u64> {
        let start = u64::from(fingerprint) << self.covered.id_bits;
        start..start + (1 << self.covered.id_bits)
    }
}

impl<'a> Block<'a> {
    /// Entries in ascending order.
    pub fn entries(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        let entry = |b: &[u8; ENTRY_BYTES]| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], 0, 0, 0]);
        self.entries.as_chunks::<ENTRY_BYTES>().0.iter().map(entry)
    }
}
