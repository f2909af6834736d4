//! AVX-512 with VNNI: four products and their sum in a lane, in one instruction.

use std::arch::x86_64::*;

use super::least::{PARTS, Sixteen, least_by};
use super::level::{CHUNK, CHUNK_BYTES, Level, PANEL_POINTS, norm_portable};

/// Six rows and four panels take 24 of 32 registers for sums, and a load feeds four to six multiplications.
const ROWS: usize = 6;

/// The kernel for CPUs with AVX-512 F and VNNI.
pub static LEVEL: Level = Level::plain("avx512vnni", ROWS, &[tile::<1>, tile::<2>, tile::<3>, tile::<4>], norm, least);

/// # Safety
/// What `Tile` says, and AVX-512 F and VNNI.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn tile<const PANELS: usize>(
    queries: *const i8,
    panels: *const u8,
    offsets: *const i32,
    chunks: usize,
    limits: *const i32,
    scores: *mut i32,
    hits: *mut u16,
) -> bool {
    let mut sums = [[_mm512_setzero_si512(); PANELS]; ROWS];
    for c in 0..chunks {
        let mut points = [_mm512_setzero_si512(); PANELS];
        for (p, point) in points.iter_mut().enumerate() {
            // SAFETY: a panel holds `chunks` chunks of 64 bytes.
            *point = unsafe { _mm512_loadu_si512(panels.add((p * chunks + c) * CHUNK_BYTES).cast()) };
        }
        for (r, row) in sums.iter_mut().enumerate() {
            // SAFETY: a query holds `chunks` chunks of four bytes.
            let four = unsafe { queries.add((r * chunks + c) * CHUNK).cast::<i32>().read_unaligned() };
            let query = _mm512_set1_epi32(four);
            for (sum, point) in row.iter_mut().zip(points) {
                *sum = _mm512_dpbusd_epi32(*sum, point, query);
            }
        }
    }
    let mut any = 0;
    for (r, row) in sums.into_iter().enumerate() {
        // SAFETY: one limit a row; 16 offsets a panel; 16 scores and one mask a row and panel.
        unsafe {
            let limit = _mm512_set1_epi32(*limits.add(r));
            for (p, sum) in row.into_iter().enumerate() {
                let (at, offsets) = (r * PANELS + p, offsets.add(p * PANEL_POINTS));
                any |= finish(sum, offsets, limit, scores.add(at * PANEL_POINTS), hits.add(at));
            }
        }
    }
    any != 0
}

/// Writes the scores of a row and a panel, and a bit for each up to `limit`; returns the bits.
///
/// # Safety
/// 16 offsets, room for 16 scores and for one mask, and AVX-512.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn finish(
    sum: __m512i,
    offsets: *const i32,
    limit: __m512i,
    scores: *mut i32,
    hits: *mut u16,
) -> u16 {
    // SAFETY: the caller vouches for 16 offsets, room for 16 scores and for one mask.
    unsafe {
        let score = _mm512_sub_epi32(_mm512_loadu_si512(offsets.cast()), _mm512_slli_epi32::<1>(sum));
        let found = _mm512_cmple_epi32_mask(score, limit);
        _mm512_storeu_si512(scores.cast(), score);
        *hits = found;
        found
    }
}

/// # Safety
/// `row` has `dim` components, and AVX-512 F and VNNI.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn norm(row: *const u8, dim: usize) -> (i32, i32) {
    // SAFETY: the caller's contract is the same.
    unsafe { norm_portable(row, dim) }
}

/// # Safety
/// AVX-512 F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn least(scores: &[i32], places: &mut [u32], kept: &mut Vec<u64>) {
    least_by(|panels, k| kth(panels, k), |panel, bound| hits(panel, bound), scores, places, kept);
}

/// A value is among the first k if fewer than k others are below it.
#[inline]
#[target_feature(enable = "avx512f")]
fn kth(panels: &[Sixteen], k: usize) -> i32 {
    let mut minima = [_mm512_set1_epi32(i32::MAX); PARTS];
    for part in panels.chunks(PARTS) {
        for (least, panel) in minima.iter_mut().zip(part) {
            *least = _mm512_min_epi32(*least, load(panel));
        }
    }
    let mut values = [[0; PANEL_POINTS]; PARTS];
    for (to, &part) in values.iter_mut().zip(&minima) {
        // SAFETY: room for 16.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), part) };
    }
    let (mut below, one) = ([_mm512_setzero_si512(); PARTS], _mm512_set1_epi32(1));
    for &value in values.as_flattened() {
        for (count, &part) in below.iter_mut().zip(&minima) {
            let is_below = _mm512_cmpgt_epi32_mask(part, _mm512_set1_epi32(value));
            *count = _mm512_mask_add_epi32(*count, is_below, *count, one);
        }
    }
    let k = _mm512_set1_epi32(k as i32);
    let most = |i: usize| _mm512_mask_reduce_max_epi32(_mm512_cmplt_epi32_mask(below[i], k), minima[i]);
    most(0).max(most(1))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn hits(panel: &Sixteen, bound: i32) -> u16 {
    _mm512_cmple_epi32_mask(load(panel), _mm512_set1_epi32(bound))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(panel: &Sixteen) -> __m512i {
    // SAFETY: 16 scores.
    unsafe { _mm512_loadu_si512(panel.as_ptr().cast()) }
}
