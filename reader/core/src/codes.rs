//! codes.imx: the product quantizer and one code a slot (docs/formats/codes.md).
//!
//! The codes of the neighbours of several vertices are scored in one call ([`CodeTable`]).
//!
//! A query that starts at the medoid or at a centroid's vertex builds its distance table while its first read is in
//! flight. Other entries (navigation graph, previous results, scans) are scored with the table, so they need it first.

use std::path::{Path, PathBuf};

use crate::bytes::{f32s, u32s};
pub use crate::code_table::CodeTable;
use crate::directory::Directory;
use crate::distance::{TABLE_WIDTH, kernels, prefetch_row};
use crate::error::{Error, Result};
use crate::interrupt::{Stop, go_on};
use crate::memory::{Region, collect, reserve, resize};
use crate::pagefile::{PIECE_BYTES, PageFile};

/// A product quantizer in memory: `4 * K * dim` bytes, and 8 a chunk.
#[derive(Debug, Clone)]
pub struct Codebook {
    /// Where it was read, for messages.
    path: PathBuf,
    n_centres: usize,
    /// Chunk j covers components `offsets[j]..offsets[j + 1]`.
    offsets: Vec<usize>,
    /// Transposed: row d holds component d of every centre, K wide.
    pivots: Vec<f32>,
}

/// A rotation of vectors in memory, before they are coded: `4 * dim * dim` bytes.
#[derive(Debug, Clone)]
pub(crate) struct Rotation {
    dim: usize,
    /// Row j: its inner product with a vector is component j of the rotated vector.
    rows: Vec<f32>,
}

/// Codebook and, unless nodes hold them, codes in memory: `n * M + 4 * K * dim` bytes, 8 a chunk, and `4 * dim * dim` if
/// codes are of rotated vectors.
#[derive(Debug)]
pub struct Codes {
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    book: Codebook,
    rotation: Option<Rotation>,
    /// Begins at a page, so that no code lies on more cache lines than it must, and ends with one.
    codes: Region,
    /// Bytes of the codes without the padding behind them.
    held_bytes: usize,
}

impl Codebook {
    /// Reads fields and sections of `file` that say how vectors of `dim` components are coded, and checks every value.
    /// The section `pivots` has the centres.
    pub fn read(file: &PageFile, dim: u64, pivots: &str, interrupted: Stop<'_>) -> Result<Self> {
        let m = file.field_in("n_chunks", 1..=dim)?;
        let k = file.field_in("n_centres", 1..=TABLE_WIDTH as u64)?;
        let mut load = |name: &str, bytes: u64| -> Result<Vec<u8>> {
            file.read_alone(&file.section(name, Some(bytes))?, interrupted)
        };
        let raw = load("offsets", 4 * (m + 1))?;
        let offsets = collect(&file.path, raw.len() / 4, u32s(&raw).map(|x| x as usize))?;
        let sound = offsets.first() == Some(&0) && offsets.last() == Some(&(dim as usize));
        if !sound || !offsets.is_sorted_by(|a, b| a < b) {
            let expected = format!("increasing from 0 to {dim}");
            return Err(Error::corrupt(&file.path, "section \"offsets\"", expected, "another list"));
        }
        let pivots = transposed(&file.path, &load(pivots, 4 * k * dim)?, k as usize, dim as usize)?;
        Ok(Codebook { path: file.path.clone(), n_centres: k as usize, offsets, pivots })
    }

    /// K: centres of a chunk.
    pub fn n_centres(&self) -> usize {
        self.n_centres
    }

    /// M: bytes of a code.
    pub fn n_chunks(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.pivots) + size_of_val(&*self.offsets)) as u64
    }

    /// Fills the distance table of a query, 1 KiB a chunk: `table[j * 256 + c]` is the squared distance between the
    /// query's chunk j and centre c, and 0 if there is no such centre. Takes `K * dim` multiply-adds. The tables
    /// of residuals to list after list are made like this, too. Cross terms of `|q - c - p|^2`, which lists could share,
    /// were tried and left out.
    ///
    /// A chunk has at least one component, so a table is at most 256 times as large as a query of floats.
    pub fn fill_table(&self, query: &[f32], table: &mut Vec<f32>) -> Result<()> {
        let squares = kernels().squares;
        self.fill(query, table, |chunk, centres, row| {
            assert_eq!(centres.len(), chunk.len() * row.len());
            // SAFETY: as many components of as many centres as the row has places.
            unsafe { squares(chunk.as_ptr(), chunk.len(), centres.as_ptr(), row.len(), row.as_mut_ptr()) };
        })
    }

    /// Fills the table of negated inner products.
    pub fn fill_products(&self, query: &[f32], table: &mut Vec<f32>) -> Result<()> {
        self.fill(query, table, |chunk, centres, row| {
            row.fill(0.0);
            for (&x, centres) in chunk.iter().zip(centres.chunks_exact(row.len())) {
                row.iter_mut().zip(centres).for_each(|(sum, &centre)| *sum -= x * centre);
            }
        })
    }

    /// Lets `write(chunk, centres, row)` write a place for each centre to the row of each of the query's chunks.
    fn fill(&self, query: &[f32], table: &mut Vec<f32>, write: impl Fn(&[f32], &[f32], &mut [f32])) -> Result<()> {
        resize(&self.path, table, self.n_chunks() * TABLE_WIDTH, 0.0)?;
        let k = self.n_centres;
        let rows = table.chunks_exact_mut(TABLE_WIDTH).zip(self.offsets.windows(2));
        for (row, chunk) in rows {
            let (row, beyond) = row.split_at_mut(k);
            write(&query[chunk[0]..chunk[1]], &self.pivots[chunk[0] * k..chunk[1] * k], row);
            beyond.fill(0.0);
        }
        Ok(())
    }
}

impl Rotation {
    /// How far the squared length of a row may be from 1: matrices are float32, and some come from other programs.
    const LENGTH_ERROR: f64 = 1e-3;

    /// Reads the section of `file`, and checks that its rows have length 1.
    pub(crate) fn read(file: &PageFile, dim: u64, interrupted: Stop<'_>) -> Result<Self> {
        let bytes = dim.saturating_mul(dim).saturating_mul(4);
        let raw = file.read_alone(&file.section("rotation", Some(bytes))?, interrupted)?;
        let dim = dim as usize;
        let rows = collect(&file.path, dim * dim, f32s(&raw))?;
        for (i, row) in rows.chunks_exact(dim).enumerate() {
            let length: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            let sound = (length - 1.0).abs() <= Self::LENGTH_ERROR; // NaN is not
            if !sound {
                let place = format!("row {i} of section \"rotation\"");
                return Err(Error::corrupt(&file.path, place, "a squared length of 1", length));
            }
        }
        Ok(Rotation { dim, rows })
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.rows) as u64
    }

    /// The components of a vector rotated.
    pub(crate) fn rotated(&self, query: &[f32]) -> impl Iterator<Item = f32> {
        assert_eq!(query.len(), self.dim);
        let product = kernels().ip_f32;
        // SAFETY: both are `dim` floats.
        self.rows.chunks_exact(self.dim).map(move |row| unsafe { product(query.as_ptr(), row.as_ptr(), self.dim) })
    }
}

impl Codes {
    /// Reads codes.imx of a directory and checks every page and value; `n` and `dim` are those of the graph.
    pub fn open(directory: &Directory, n: u64, dim: u64, interrupted: Stop<'_>) -> Result<Self> {
        let (file, mut codes) = Self::open_codebook(directory, n, dim, interrupted)?;
        let checksums = file.load_checksums(interrupted)?;
        let section = file.section("codes", Some(n.saturating_mul(codes.n_chunks() as u64)))?;
        codes.codes = file.load_section(&section, &checksums, interrupted)?;
        codes.held_bytes = section.payload as usize;
        codes.check_values(interrupted)?;
        Ok(codes)
    }

    /// Refuses codes in memory that name no centre. Where there are as many centres as bytes have values, all name one.
    fn check_values(&self, interrupted: Stop<'_>) -> Result<()> {
        let (m, k) = (self.n_chunks(), self.book.n_centres());
        if k > usize::from(u8::MAX) {
            return Ok(());
        }
        for (start, piece) in (0..).step_by(PIECE_BYTES).zip(self.held().chunks(PIECE_BYTES)) {
            go_on(interrupted)?;
            if let Some(at) = piece.iter().position(|&code| usize::from(code) >= k) {
                let place = format!("code of slot {}", (start + at) / m);
                return Err(Error::corrupt(&self.book.path, place, format!("values below {k}"), piece[at]));
            }
        }
        Ok(())
    }

    /// Reads all except the codes, which nodes of the graph hold, `code_bytes` each.
    pub fn open_apart(
        directory: &Directory,
        n: u64,
        dim: u64,
        code_bytes: usize,
        interrupted: Stop<'_>,
    ) -> Result<Self> {
        let (file, codes) = Self::open_codebook(directory, n, dim, interrupted)?;
        file.expect_fields([("n_chunks", code_bytes as u64)])?;
        file.section("codes", Some(n.saturating_mul(code_bytes as u64)))?;
        Ok(codes)
    }

    fn open_codebook(directory: &Directory, n: u64, dim: u64, interrupted: Stop<'_>) -> Result<(PageFile, Self)> {
        let file = PageFile::open_in(directory, "codes.imx", b"CODE")?;
        file.expect_fields([("n_vertices", n), ("dim", dim)])?;
        let is_rotated = file.header.sections.iter().any(|section| section.name == "rotation");
        let rotation = is_rotated.then(|| Rotation::read(&file, dim, interrupted)).transpose()?;
        let pivots = if rotation.is_some() { "rotated_pivots" } else { "pivots" };
        let book = Codebook::read(&file, dim, pivots, interrupted)?;
        let build_id = file.header.build_id;
        Ok((file, Codes { build_id, book, rotation, codes: Region::none(), held_bytes: 0 }))
    }

    /// Whether codes are in memory.
    pub fn are_held(&self) -> bool {
        self.held_bytes > 0
    }

    /// The codes in another order: slot s gets that of slot `order[s]`, which is below n.
    pub(crate) fn remapped(&self, path: &Path, order: &[u32]) -> Result<Self> {
        let (mut codes, held_bytes) = (Region::new(path, self.held_bytes)?, self.held_bytes);
        if self.are_held() {
            let rows = codes.chunks_exact_mut(self.n_chunks());
            rows.zip(order).for_each(|(row, &slot)| row.copy_from_slice(self.code(slot)));
        }
        let (book, rotation) = (self.book.clone(), self.rotation.clone());
        Ok(Codes { build_id: self.build_id, book, rotation, codes, held_bytes })
    }

    /// The code of a slot.
    ///
    /// # Panics
    /// If codes are not in memory, or the slot is not below n.
    pub fn code(&self, slot: u32) -> &[u8] {
        let m = self.n_chunks();
        &self.held()[slot as usize * m..][..m]
    }

    /// The codes in memory, without the padding.
    fn held(&self) -> &[u8] {
        &self.codes[..self.held_bytes]
    }

    /// M: bytes of a code.
    pub fn n_chunks(&self) -> usize {
        self.book.n_chunks()
    }

    /// Memory it takes: `n * M + 4 * K * dim` bytes, 8 for each end of a chunk, and the rotation if there is one.
    pub fn memory_bytes(&self) -> u64 {
        let rotation = self.rotation.as_ref().map_or(0, Rotation::memory_bytes);
        self.held_bytes as u64 + self.book.memory_bytes() + rotation
    }

    /// Fills the distance table of a query, rotated if the codes are; see [`Codebook::fill_table`].
    pub fn fill_table(&self, query: &[f32], table: &mut CodeTable) -> Result<()> {
        let mut rotated = std::mem::take(&mut table.rotated);
        let coded = match &self.rotation {
            None => query,
            Some(rotation) => {
                rotated.clear();
                rotated.extend(rotation.rotated(query));
                rotated.as_slice()
            }
        };
        let filled = table.fill(&self.book.path, true, |entries| self.book.fill_table(coded, entries));
        table.rotated = rotated;
        filled
    }

    /// Prefetches codes that are scored soon.
    pub fn prefetch(&self, slots: &[u32]) {
        let (m, codes) = (self.n_chunks(), self.codes.as_ptr());
        slots.iter().for_each(|&slot| prefetch_row(codes.wrapping_add(slot as usize * m), m));
    }

    /// As [`Codes::score`], for the codes that lie in `bytes`, one after the other.
    pub fn score_bytes(&self, table: &mut CodeTable, bytes: &[u8], bar: Option<f32>, take: impl FnMut(usize, f32)) {
        let m = self.n_chunks();
        table.score(bytes.len() / m, |i| &bytes[i * m..][..m], bar, |_| false, take);
    }

    /// Calls `take(i, distance)` for each of `slots` in order, with its distance by the table: the sum over the chunks in
    /// their order. Of those farther than `bar`, if there is a bar, some or all are left out.
    ///
    /// # Panics
    /// As [`Codes::code`] does.
    pub fn score(&self, table: &mut CodeTable, slots: &[u32], bar: Option<f32>, take: impl FnMut(usize, f32)) {
        self.score_unless(table, slots, bar, |_| false, take);
    }

    /// As [`Codes::score`]. If there is a bar, some or all for which `is_known(slot)` are left out, too.
    pub fn score_unless(
        &self,
        table: &mut CodeTable,
        slots: &[u32],
        bar: Option<f32>,
        mut is_known: impl FnMut(u32) -> bool,
        take: impl FnMut(usize, f32),
    ) {
        let (m, codes) = (self.n_chunks(), self.held());
        table.score(slots.len(), |i| &codes[slots[i] as usize * m..][..m], bar, |i| is_known(slots[i]), take);
    }
}

/// Pivots `[k, dim]` as rows of components, each k wide.
fn transposed(path: &Path, raw: &[u8], k: usize, dim: usize) -> Result<Vec<f32>> {
    let mut pivots: Vec<f32> = reserve(path, dim * k)?;
    pivots.resize(dim * k, 0.0);
    for (i, value) in f32s(raw).enumerate().take(k * dim) {
        if !value.is_finite() {
            return Err(Error::corrupt(path, format!("pivot {}", i / dim), "finite numbers", value));
        }
        pivots[(i % dim) * k + i / dim] = value;
    }
    Ok(pivots)
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;
    use crate::testing::Random;

    fn codebook(n_centres: usize, offsets: Vec<usize>, raw: &[u8]) -> Codebook {
        let (path, dim) = (PathBuf::from("codes.imx"), offsets[offsets.len() - 1]);
        let pivots = transposed(&path, raw, n_centres, dim).unwrap();
        Codebook { path, n_centres, offsets, pivots }
    }

    fn region(bytes: &[u8]) -> Region {
        let mut region = Region::new(Path::new("codes.imx"), bytes.len()).unwrap();
        region.copy_from_slice(bytes);
        region
    }

    #[test]
    fn centres_take_the_memory_that_they_take_in_their_file() {
        for (k, dim) in [(1usize, 700usize), (3, 5), (256, 40)] {
            let raw = vec![0u8; 4 * k * dim];
            let book = codebook(k, vec![0, dim], &raw);
            assert_eq!(book.memory_bytes(), raw.len() as u64 + 2 * 8);
        }
    }

    #[test]
    fn table_scores_equal_the_sum_over_chunks() {
        let mut random = Random::new(9);
        let (n, dim, k, offsets) = (23usize, 11usize, 200usize, vec![0usize, 3, 4, 11]);
        let rows: Vec<Vec<f32>> = (0..k).map(|_| (0..dim).map(|_| random.float()).collect()).collect();
        let raw: Vec<u8> = rows.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
        let codes: Vec<u8> = (0..n * 3).map(|_| random.below(k) as u8).collect();
        let book = codebook(k, offsets, &raw);
        let quantizer =
            Codes { build_id: [0; 16], book, rotation: None, held_bytes: codes.len(), codes: region(&codes) };
        let query: Vec<f32> = (0..dim).map(|_| random.float()).collect();
        let (mut table, mut got) = (CodeTable::default(), Vec::new());
        quantizer.fill_table(&query, &mut table).unwrap();
        let slots: Vec<u32> = (0..n as u32).rev().collect();
        quantizer.score(&mut table, &slots, None, |_, distance| got.push(distance));
        assert_eq!(got.len(), n);
        for &bar in &got {
            let mut within = Vec::new();
            quantizer.score(&mut table, &slots, Some(bar), |i, distance| within.push((i, distance)));
            assert!(within.iter().all(|&(i, distance)| distance == got[i]) && within.is_sorted_by(|a, b| a.0 < b.0));
            within.retain(|&(_, distance)| distance <= bar);
            assert_eq!(within.len(), got.iter().filter(|&&distance| distance <= bar).count());
            within.retain(|&(i, _)| slots[i] % 2 == 1);
            let (mut odd, is_even) = (Vec::new(), |slot: u32| slot.is_multiple_of(2));
            quantizer.score_unless(&mut table, &slots, Some(bar), is_even, |i, distance| odd.push((i, distance)));
            odd.retain(|&(i, distance)| distance <= bar && slots[i] % 2 == 1);
            assert_eq!(odd, within);
        }
        for (&slot, &score) in slots.iter().zip(&got) {
            let mut want = 0f64;
            for j in 0..3 {
                let centre = &rows[quantizer.codes[slot as usize * 3 + j] as usize];
                let chunk = quantizer.book.offsets[j]..quantizer.book.offsets[j + 1];
                want += chunk.map(|d| f64::from(query[d] - centre[d]).powi(2)).sum::<f64>();
            }
            assert!((f64::from(score) - want).abs() < 1e-4);
        }
    }

    #[test]
    fn codes_are_checked_piece_by_piece_unless_all_values_are_centres() {
        let of = |k: usize, bytes: Vec<u8>| {
            let (book, held_bytes) = (codebook(k, vec![0, 1, 2], &vec![0; 8 * k]), bytes.len());
            Codes { build_id: [0; 16], book, rotation: None, codes: region(&bytes), held_bytes }
        };
        let asked = |codes: &Codes| {
            let mut asked = 0;
            let mut count = || {
                asked += 1;
                false
            };
            let checked = codes.check_values(&mut count);
            (checked.map_err(|error| error.to_string()), asked)
        };
        let sound = vec![254; 2 * PIECE_BYTES + 6];
        assert_eq!(asked(&of(256, sound.clone())), (Ok(()), 0));
        let mut codes = of(255, sound);
        assert_eq!(asked(&codes), (Ok(()), 3));
        assert!(matches!(codes.check_values(&mut || true), Err(Error::Interrupted)));
        codes.codes[PIECE_BYTES + 5] = 255;
        let (refused, n_asked) = asked(&codes);
        let want = format!("codes.imx: code of slot {}: expected values below 255, got 255;", PIECE_BYTES / 2 + 2);
        assert!(refused.is_err_and(|error| error.starts_with(&want)) && n_asked == 2);
    }

    #[test]
    fn there_is_no_code_in_the_padding() {
        let book = codebook(1, vec![0, 1, 2], &[0; 8]);
        let codes = Codes { build_id: [0; 16], book, rotation: None, codes: region(&[0; 64]), held_bytes: 6 };
        assert_eq!(codes.code(2), [0, 0]);
        assert!(std::panic::catch_unwind(|| codes.code(3).len()).is_err());
        let mut table = CodeTable::default();
        codes.fill_table(&[1.0, 2.0], &mut table).unwrap();
        let score = AssertUnwindSafe(|| codes.score(&mut table, &[3], None, |_, _| ()));
        assert!(std::panic::catch_unwind(score).is_err());
    }

    #[test]
    fn a_rotated_query_is_measured_from_the_centres() {
        // One quarter turn: (x, y) becomes (y, -x).
        let rotation = Some(Rotation { dim: 2, rows: vec![0.0, 1.0, -1.0, 0.0] });
        let raw: Vec<u8> = [5.0f32, 7.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let book = codebook(1, vec![0, 2], &raw);
        let plain = book.memory_bytes();
        let quantizer = Codes { build_id: [0; 16], book, rotation, codes: region(&[0]), held_bytes: 1 };
        let (mut table, mut got) = (CodeTable::default(), Vec::new());
        quantizer.fill_table(&[1.0, 2.0], &mut table).unwrap();
        quantizer.score(&mut table, &[0], None, |_, distance| got.push(distance));
        assert_eq!(got, [9.0 + 64.0]);
        assert_eq!(quantizer.memory_bytes(), 1 + plain + 16);
        let place = table.rotated.as_ptr();
        quantizer.fill_table(&[-2.0, 1.0], &mut table).unwrap();
        quantizer.score(&mut table, &[0], None, |_, distance| got.push(distance));
        assert_eq!(got[1], 16.0 + 25.0);
        assert_eq!(table.rotated.as_ptr(), place, "the next query takes no memory of its own");
    }
}
