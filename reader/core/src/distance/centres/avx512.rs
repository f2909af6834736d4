//! AVX-512: sixteen rows in a register.

use std::arch::x86_64::*;

use super::level::{GROUP, Level, TILE_ROWS};

const LANES: usize = 16;
/// Four registers of rows and four centres take 16 of 32 registers for sums, and a load feeds four multiplications.
const PARTS: usize = TILE_ROWS / LANES;

/// The kernel for CPUs with AVX-512 F.
pub static LEVEL: Level = Level { name: "avx512", tile };

/// # Safety
/// What `Tile` says, and AVX-512 F.
#[target_feature(enable = "avx512f")]
unsafe fn tile(
    rows: *const f32,
    centres: *const f32,
    halves: *const f32,
    width: usize,
    groups: usize,
    nearest: *mut u8,
) {
    let mut least = [_mm512_set1_ps(f32::INFINITY); PARTS];
    let mut index = [_mm512_setzero_si512(); PARTS];
    let mut number = _mm512_setzero_si512();
    for g in 0..groups {
        let mut scores = [[_mm512_setzero_ps(); PARTS]; GROUP];
        for (c, own) in scores.iter_mut().enumerate() {
            // SAFETY: a half for every centre.
            *own = unsafe { [_mm512_set1_ps(*halves.add(g * GROUP + c)); PARTS] };
        }
        for d in 0..width {
            let mut components = [_mm512_setzero_ps(); PARTS];
            for (p, x) in components.iter_mut().enumerate() {
                // SAFETY: 64 components of the rows for each of `width`.
                *x = unsafe { _mm512_loadu_ps(rows.add(d * TILE_ROWS + p * LANES)) };
            }
            for (c, own) in scores.iter_mut().enumerate() {
                // SAFETY: four components of a group for each of `width`.
                let y = unsafe { _mm512_set1_ps(*centres.add((g * width + d) * GROUP + c)) };
                for (score, x) in own.iter_mut().zip(components) {
                    *score = _mm512_fmadd_ps(x, y, *score);
                }
            }
        }
        for own in scores {
            for p in 0..PARTS {
                let nearer = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(own[p], least[p]);
                least[p] = _mm512_mask_mov_ps(least[p], nearer, own[p]);
                index[p] = _mm512_mask_mov_epi32(index[p], nearer, number);
            }
            number = _mm512_add_epi32(number, _mm512_set1_epi32(1));
        }
    }
    for (p, index) in index.into_iter().enumerate() {
        // SAFETY: 16 of 64 indexes.
        unsafe { _mm_storeu_si128(nearest.add(p * LANES).cast(), _mm512_cvtepi32_epi8(index)) };
    }
}
