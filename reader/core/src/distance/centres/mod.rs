//! The nearest of up to 256 centres to every chunk of float rows: the step of k-means and of product quantization.
//!
//! Of two centres, the nearer one to x has the smaller `|c|^2 / 2 - x.c`, a score of one fused multiply-add a
//! component. An origin, the mean of a chunk's centres, is subtracted from both first: scores of points that are close
//! together and far from zero would lose their digits. Rows stand in the lanes of registers and each lane adds the
//! components of its row in order, so that scores, and with them the nearest centre, have the same bits at every level.
//!
//! A tile of 64 rows is transposed and compared with all centres of a chunk, four centres at a time.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod level;
mod scalar;

use super::kernels;
pub use level::Level;
use level::{GROUP, TILE_ROWS};

/// Centres of a chunk, which fit one byte.
pub const MAX_CENTRES: usize = 256;
/// Rows that all chunks are labelled of before the next rows: few enough to stay in a core's own cache.
const BLOCK_ROWS: usize = 4 * TILE_ROWS;

/// Rows of a matrix of floats.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The matrix, row after row.
    pub values: &'a [f32],
    /// Components of a row.
    pub dim: usize,
}

/// Centres of the chunks of `dim` components.
#[derive(Clone, Copy)]
pub struct Centres<'a> {
    /// Centre c of all chunks side by side in row c: at least one row and at most `MAX_CENTRES`.
    pub values: &'a [f32],
    /// The bounds of the chunks, ascending from 0 to `dim`.
    pub bounds: &'a [i64],
}

/// The level of the unit in use; portable where there is none of its name.
pub fn level() -> &'static Level {
    let levels = available();
    levels.iter().rfind(|level| level.name == kernels().name).unwrap_or(&levels[0])
}

/// Every level this CPU can run, slowest first. Tests compare them.
pub fn available() -> Vec<&'static Level> {
    #[allow(unused_mut)]
    let mut levels = vec![&scalar::LEVEL];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            levels.push(&avx2::LEVEL);
        }
        if is_x86_feature_detected!("avx512f") {
            levels.push(&avx512::LEVEL);
        }
    }
    levels
}

impl Level {
    /// Writes the index of the nearest centre of each row's chunks, ties by the smaller index: `labels` has one byte
    /// for each chunk of each row.
    ///
    /// # Panics
    /// If the arrays do not have the sizes that their types say.
    pub fn nearest(&self, rows: Rows, centres: Centres, labels: &mut [u8]) {
        let n_chunks = centres.bounds.len() - 1;
        let chunks: Vec<Chunk> = (0..n_chunks).map(|j| Chunk::new(centres, rows.dim, j)).collect();
        let widest = chunks.iter().map(|chunk| chunk.origin.len()).max().unwrap_or(0);
        let mut tile = vec![0f32; widest * TILE_ROWS];
        let mut nearest = [0u8; TILE_ROWS];
        let blocks = rows.values.chunks(BLOCK_ROWS * rows.dim).zip(labels.chunks_mut(BLOCK_ROWS * n_chunks));
        for (block, labels) in blocks {
            for (j, chunk) in chunks.iter().enumerate() {
                let tiles = block.chunks(TILE_ROWS * rows.dim).zip(labels.chunks_mut(TILE_ROWS * n_chunks));
                for (rows_of_tile, labels) in tiles {
                    chunk.transpose(rows_of_tile, rows.dim, &mut tile);
                    // SAFETY: a tile of the chunk's width or wider, and the arrays of the chunk.
                    unsafe {
                        let (centres, halves) = (chunk.negated.as_ptr(), chunk.halves.as_ptr());
                        let (width, groups) = (chunk.origin.len(), chunk.halves.len() / GROUP);
                        (self.tile)(tile.as_ptr(), centres, halves, width, groups, nearest.as_mut_ptr());
                    }
                    for (row, &label) in labels.chunks_mut(n_chunks).zip(&nearest) {
                        row[j] = label;
                    }
                }
            }
        }
    }
}

/// The centres of a chunk, as tiles want them.
struct Chunk {
    /// Place of the first component in a row.
    first: usize,
    /// What is subtracted from rows.
    origin: Vec<f32>,
    /// Negated centres minus the origin, four a group, zero where there is none.
    negated: Vec<f32>,
    /// `|c|^2 / 2`, infinite where there is none.
    halves: Vec<f32>,
}

impl Chunk {
    fn new(centres: Centres, dim: usize, j: usize) -> Chunk {
        let columns = centres.bounds[j] as usize..centres.bounds[j + 1] as usize;
        let (first, width, n) = (columns.start, columns.len(), centres.values.len() / dim);
        let mut sums = vec![0f64; width];
        for centre in centres.values.chunks_exact(dim) {
            sums.iter_mut().zip(&centre[columns.clone()]).for_each(|(sum, &x)| *sum += f64::from(x));
        }
        let origin: Vec<f32> = sums.into_iter().map(|sum| (sum / n as f64) as f32).collect();
        let groups = n.div_ceil(GROUP);
        let mut negated = vec![0f32; groups * width * GROUP];
        let mut halves = vec![f32::INFINITY; groups * GROUP];
        for (c, centre) in centres.values.chunks_exact(dim).enumerate() {
            let group = &mut negated[c / GROUP * width * GROUP..][..width * GROUP];
            let mut square = 0f32;
            for (d, (&x, &o)) in centre[columns.clone()].iter().zip(&origin).enumerate() {
                group[d * GROUP + c % GROUP] = o - x;
                square = (x - o).mul_add(x - o, square);
            }
            halves[c] = square / 2.0;
        }
        Chunk { first, origin, negated, halves }
    }

    /// Writes the chunk's components of at most 64 rows, minus the origin, one component of all rows after the other.
    fn transpose(&self, rows: &[f32], dim: usize, tile: &mut [f32]) {
        for (i, row) in rows.chunks_exact(dim).enumerate() {
            let components = row[self.first..].iter().zip(&self.origin);
            for (place, (&x, &o)) in tile[i..].iter_mut().step_by(TILE_ROWS).zip(components) {
                *place = x - o;
            }
        }
    }
}

#[cfg(test)]
mod tests;
