//! What checksums cannot tell of hash tables: every bucket holds what its hash says, every vector is in every table.
//!
//! Vectors are taken 2^20 at a time: they are hashed for one table after the other, for all radii at once, and the
//! table is compared with them. So all tables are read once for every 2^20 vectors. Memory: 2^20 hashes for each
//! radius, a bit a vector and a bit a block, and checksums of all pages.

use std::ops::Range;

use super::damage::together;
use super::ids::{check_ids, check_order};
use crate::bytes::u64_at;
use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::interrupt::{Asked, Stop};
use crate::lsh::buckets::Pointer;
use crate::lsh::functions::{Address, floor};
use crate::lsh::tables::POINTER_BYTES;
use crate::lsh::{InMemory, LshIndex, Pair};
use crate::memory::{reserve, resize};
use crate::pagefile::{PAGE_BYTES, PageFile};
use crate::vectors::VECTORS_FILE;

/// Vectors hashed at a time; whole units of reading, as long as these are smaller.
const VECTORS_AT_ONCE: u32 = 1 << 20;
/// Pages read at a time.
const PAGES_AT_ONCE: usize = 256;
/// How much two programs may differ in a projection, per component and relative to the product of the lengths.
///
/// Each sum of `dim` products in f32, whatever its order and with or without fused additions, is off by at most
/// `dim u / (1 - dim u) * sum |a_j o_j|` with u = 2^-24 (Higham, "Accuracy and Stability of Numerical Algorithms",
/// section 3.1), the sum of products being at most |a| |o|. So two of them differ by twice as much; twice that again
/// makes up for `1 / (1 - dim u)`, which is at most 2 up to 2^23 dimensions.
const PROJECTION_ERROR: f64 = 4.0 / (1u64 << 24) as f64;
/// How much they may differ in the position of one projection, relative to it: three roundings of f64 each.
const POSITION_ERROR: f64 = 8.0 / (1u64 << 53) as f64;

/// Opens the index and compares all of its parts.
pub fn check(directory: &Directory, interrupted: Stop<'_>) -> Result<()> {
    let index = together(directory, LshIndex::open_in(directory, "pread", InMemory::default(), interrupted))?;
    let n = index.functions.n_vectors;
    check_ids(&index.ids, n, directory.path(), interrupted)?;
    check_order(&index.ids, n, directory.path(), interrupted)?;
    let vectors = PageFile::open_in(directory, VECTORS_FILE, b"VECT")?;
    let rows = index.vectors.rows_per_unit;
    let step = VECTORS_AT_ONCE.next_multiple_of(rows);
    let mut walks = Vec::with_capacity(index.pairs.len());
    for pair in &index.pairs {
        walks.push(Walk::new(&index, pair, directory, interrupted)?);
    }
    let mut start = 0;
    while start < n {
        let slots = start..n.min(start.saturating_add(step));
        walks.iter_mut().for_each(Walk::begin);
        let mut expected = Expected::default();
        for table in 0..index.functions.n_tables {
            expected.hash(&index, &vectors, slots.clone(), table, interrupted)?;
            for radius in 0..index.functions.n_radii() {
                for walk in &mut walks {
                    walk.table(radius, table, &expected, interrupted)?;
                }
            }
        }
        walks.iter().try_for_each(Walk::check_totals)?;
        start = slots.end;
    }
    Ok(())
}

/// Where the vectors of some slots belong in one table, at all radii.
#[derive(Default)]
struct Expected {
    slots: Range<u32>,
    /// `[radius][slot]`; `None` of a vector on the border of a hash.
    addresses: Vec<Vec<Option<Address>>>,
}

impl Expected {
    fn hash(
        &mut self,
        index: &LshIndex,
        file: &PageFile,
        slots: Range<u32>,
        table: usize,
        interrupted: Stop<'_>,
    ) -> Result<()> {
        let functions = &index.functions;
        self.addresses.resize(functions.n_radii(), Vec::new());
        for of_radius in &mut self.addresses {
            of_radius.clear();
            if of_radius.capacity() < slots.len() {
                *of_radius = reserve(&index.path, slots.len())?;
            }
        }
        let stored = index.vectors.stored();
        let (mut floats, mut projected) = (Vec::new(), Vec::new());
        let lengths: Vec<f64> = functions.projections(table).map(length_of).collect();
        let per_length = PROJECTION_ERROR * functions.dim as f64 / functions.width;
        index.vectors.read_rows(file, slots.clone(), interrupted, &mut |_, row| {
            stored.widen(row, &mut floats);
            functions.project_table(table, &floats, &mut projected);
            let length = length_of(&floats);
            for (radius, of_radius) in self.addresses.iter_mut().enumerate() {
                let per_length = per_length * length / functions.radii[radius];
                let mut positions = functions.positions(radius, table, &projected).zip(&lengths);
                let is_border = positions.any(|(t, a)| {
                    let (border, fraction) = (per_length * a + POSITION_ERROR * t.abs(), t - floor(t) as f64);
                    !(border..1.0 - border).contains(&fraction)
                });
                let address = || functions.address(functions.sum(radius, table, &projected));
                of_radius.push((!is_border).then(address));
            }
            Ok(())
        })?;
        self.slots = slots;
        Ok(())
    }

    fn of(&self, radius: usize, slot: u32) -> Option<Address> {
        if self.slots.contains(&slot) { self.addresses[radius][(slot - self.slots.start) as usize] } else { None }
    }
}

/// Reads the tables of a pair of files and their chains from front to back.
struct Walk<'a> {
    index: &'a LshIndex,
    pair: &'a Pair,
    pointers: Window,
    blocks: Window,
    seen_slots: Vec<u64>,
    seen_blocks: Vec<u64>,
    n_blocks: u64,
    longest: u64,
}

impl<'a> Walk<'a> {
    fn new(index: &'a LshIndex, pair: &'a Pair, directory: &Directory, interrupted: Stop<'_>) -> Result<Self> {
        let bits = |n: u64| -> Result<Vec<u64>> {
            let mut words = reserve(&index.path, n.div_ceil(64) as usize)?;
            words.resize(n.div_ceil(64) as usize, 0);
            Ok(words)
        };
        let ([tables, blocks], Pair { buckets, .. }) = (pair.names, pair);
        Ok(Walk {
            index,
            pair,
            pointers: Window::open(directory, tables, b"LSHT", interrupted)?,
            blocks: Window::open(directory, blocks, b"LSHB", interrupted)?,
            seen_slots: bits(index.functions.n_vectors.into())?,
            seen_blocks: bits(buckets.section.payload / buckets.block_bytes as u64)?,
            n_blocks: 0,
            longest: 0,
        })
    }

    /// Forgets which blocks were seen.
    fn begin(&mut self) {
        self.seen_blocks.fill(0);
        (self.n_blocks, self.longest) = (0, 0);
    }

    /// Every slot of the pair once in one table, and where it belongs.
    fn table(&mut self, radius: usize, table: usize, expected: &Expected, interrupted: Stop<'_>) -> Result<()> {
        let (functions, Pair { tables, buckets, .. }) = (&self.index.functions, self.pair);
        self.seen_slots.fill(0);
        let (mut n_slots, mut asked) = (0u64, Asked::new(interrupted));
        for bucket in 0..1u32 << functions.hash_bits {
            asked.go_on(POINTER_BYTES)?;
            let entry = functions.entry(radius, table, bucket);
            if !tables.has_pointer(entry) {
                continue;
            }
            let raw = u64_at(self.pointers.get(tables.offset_of(entry), POINTER_BYTES)?, 0);
            if raw == 0 && !tables.is_occupied(entry) {
                continue;
            }
            let pointer = tables.pointer(entry, raw, buckets)?;
            if !tables.is_occupied(entry) {
                return Err(Error::corrupt(&tables.path, tables.name(entry), "none, as the bitmap says", "one"));
            }
            let belongs = |slot, fingerprint| {
                let is_there =
                    |want: Address| want.bucket == bucket && buckets.fingerprint_of(want.rest) == fingerprint;
                expected.of(radius, slot).is_none_or(is_there)
            };
            n_slots += self.chain(entry, pointer, belongs, &mut asked)?;
        }
        let n = buckets.n_slots();
        if n_slots != n {
            let place = format!("radius {radius}, table {table}");
            return Err(Error::corrupt(&buckets.path, place, format!("{n} entries"), n_slots));
        }
        Ok(())
    }

    /// Walks through the chain of a table's entry; the number of its entries. `belongs` says whether one does.
    fn chain(
        &mut self,
        owner: u64,
        start: Pointer,
        belongs: impl Fn(u32, u32) -> bool,
        asked: &mut Asked<'_>,
    ) -> Result<u64> {
        let buckets = &self.pair.buckets;
        let (mut next, mut least, mut n_slots, mut length) = (Some(start), 0, 0, 0);
        while let Some(Pointer { offset, .. }) = next {
            asked.go_on(buckets.block_bytes)?;
            let refuse = |what: &str, expected: &str, got: String| {
                Err(Error::corrupt(&buckets.path, format!("block at offset {offset}{what}"), expected, got))
            };
            if !mark(&mut self.seen_blocks, (offset - buckets.begin()) / buckets.block_bytes as u64) {
                return refuse("", "one pointer to it", "two".to_owned());
            }
            let bytes = self.blocks.get(offset, buckets.block_bytes)?;
            buckets.check_crc(offset, bytes)?;
            let block = buckets.block(owner, offset, bytes)?;
            if block.next.is_some() && block.entries().len() < buckets.capacity {
                return refuse(": count", "a full block before the last", block.entries().len().to_string());
            }
            for entry in block.entries() {
                let (slot, fingerprint) = buckets.split(offset, entry)?;
                if entry < least {
                    return refuse(": entry", &format!("at least {least}"), entry.to_string());
                }
                if !mark(&mut self.seen_slots, slot.into()) {
                    return refuse(": slot", "each once in a table", format!("{slot} twice"));
                }
                if !belongs(slot, fingerprint) {
                    return refuse(": slot", "those with the hash of the bucket", format!("{slot} with another"));
                }
                least = entry + 1;
            }
            n_slots += block.entries().len() as u64;
            (next, length) = (block.next, length + 1);
        }
        self.n_blocks += length;
        self.longest = self.longest.max(length);
        Ok(n_slots)
    }

    fn check_totals(&self) -> Result<()> {
        let file = &self.blocks.file;
        for (name, got) in [("n_blocks", self.n_blocks), ("longest_chain", self.longest)] {
            let want = file.field(name)?;
            if want != got {
                return Err(Error::corrupt(&file.path, format!("field {name:?} in the header"), got, want));
            }
        }
        Ok(())
    }
}

/// A part of a file that was read and checked; goes forward.
struct Window {
    file: PageFile,
    checksums: Vec<u32>,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn open(directory: &Directory, name: &str, kind: &[u8; 4], interrupted: Stop<'_>) -> Result<Self> {
        let file = PageFile::open_in(directory, name, kind)?;
        let checksums = file.load_checksums(interrupted)?;
        Ok(Window { file, checksums, start: 0, bytes: Vec::new() })
    }

    /// `len` bytes from `offset` on, which lie on one page.
    fn get(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if !(self.start..end).contains(&offset) {
            let page = offset / PAGE_BYTES as u64;
            // Section "crc" has no checksums of its own pages.
            let pages = (self.checksums.len() as u64 + 1 - page).min(PAGES_AT_ONCE as u64);
            self.start = page * PAGE_BYTES as u64;
            resize(&self.file.path, &mut self.bytes, pages as usize * PAGE_BYTES, 0)?;
            self.file.read_pages(page, &self.checksums, &mut self.bytes)?;
        }
        Ok(&self.bytes[(offset - self.start) as usize..][..len])
    }
}

/// Length of a vector, summed in f64.
fn length_of(vector: &[f32]) -> f64 {
    vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

/// Sets a bit; false if it was set.
fn mark(words: &mut [u64], i: u64) -> bool {
    let (word, bit) = (&mut words[(i / 64) as usize], 1u64 << (i % 64));
    let is_new = *word & bit == 0;
    *word |= bit;
    is_new
}
