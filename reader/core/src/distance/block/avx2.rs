//! AVX2: bytes widened to 16 bits, even and odd components separately, multiplied and added in pairs.
//!
//! (`vpmaddubsw`, which multiplies bytes, saturates on the full range.)

use std::arch::x86_64::*;

use super::least::least_portable;
use super::level::{CHUNK, CHUNK_BYTES, Level, PANEL_POINTS, norm_portable};

/// Four rows of one panel take 8 of 16 registers for sums.
const ROWS: usize = 4;
/// Lanes of 32 bits in a register, and registers of a panel.
const LANES: usize = 8;
const PARTS: usize = PANEL_POINTS / LANES;

/// The kernel for CPUs with AVX2.
pub static LEVEL: Level = Level::plain("avx2", ROWS, &[tile], norm, least);

/// # Safety
/// What `Tile` says, and AVX2.
#[target_feature(enable = "avx2")]
unsafe fn tile(
    queries: *const i8,
    panel: *const u8,
    offsets: *const i32,
    chunks: usize,
    limits: *const i32,
    scores: *mut i32,
    hits: *mut u16,
) -> bool {
    let mut sums = [[_mm256_setzero_si256(); PARTS]; ROWS];
    let low_bytes = _mm256_set1_epi16(0xff);
    for c in 0..chunks {
        let (mut even, mut odd) = ([_mm256_setzero_si256(); PARTS], [_mm256_setzero_si256(); PARTS]);
        for h in 0..PARTS {
            // SAFETY: the panel holds `chunks` chunks of 64 bytes.
            let points = unsafe { _mm256_loadu_si256(panel.add(c * CHUNK_BYTES + h * CHUNK * LANES).cast()) };
            even[h] = _mm256_and_si256(points, low_bytes);
            odd[h] = _mm256_srli_epi16::<8>(points);
        }
        for (r, row) in sums.iter_mut().enumerate() {
            // SAFETY: a query holds `chunks` chunks of four bytes.
            let four = unsafe { queries.add((r * chunks + c) * CHUNK).cast::<i32>().read_unaligned() };
            let query = _mm256_set1_epi32(four);
            let (low, high) = (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(query)), _mm256_srai_epi16::<8>(query));
            for (h, sum) in row.iter_mut().enumerate() {
                let pairs = _mm256_add_epi32(_mm256_madd_epi16(even[h], low), _mm256_madd_epi16(odd[h], high));
                *sum = _mm256_add_epi32(*sum, pairs);
            }
        }
    }
    let mut any = 0;
    for (r, row) in sums.into_iter().enumerate() {
        let mut found = 0u16;
        // SAFETY: one limit a row; 16 offsets; 16 scores and one mask a row.
        unsafe {
            let limit = _mm256_set1_epi32(*limits.add(r));
            for (h, sum) in row.into_iter().enumerate() {
                let offset = _mm256_loadu_si256(offsets.add(h * LANES).cast());
                let score = _mm256_sub_epi32(offset, _mm256_slli_epi32::<1>(sum));
                let beyond = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(score, limit)));
                _mm256_storeu_si256(scores.add(r * PANEL_POINTS + h * LANES).cast(), score);
                found |= ((!beyond & 0xff) as u16) << (h * LANES);
            }
            *hits.add(r) = found;
        }
        any |= found;
    }
    any != 0
}

/// # Safety
/// `row` has `dim` components, and AVX2.
#[target_feature(enable = "avx2")]
unsafe fn norm(row: *const u8, dim: usize) -> (i32, i32) {
    // SAFETY: the caller's contract is the same.
    unsafe { norm_portable(row, dim) }
}

/// # Safety
/// AVX2.
#[target_feature(enable = "avx2")]
unsafe fn least(scores: &[i32], places: &mut [u32], kept: &mut Vec<u64>) {
    least_portable(scores, places, kept);
}
