//! AVX2: eight rows in a register, sixteen rows at a time.

use std::arch::x86_64::*;

use super::level::{GROUP, Level, TILE_ROWS};

const LANES: usize = 8;
/// Two registers of rows and four centres take 8 of 16 registers for sums.
const PARTS: usize = 2;

/// The kernel for CPUs with AVX2 and FMA.
pub static LEVEL: Level = Level { name: "avx2", tile };

/// # Safety
/// What `Tile` says, and AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile(
    rows: *const f32,
    centres: *const f32,
    halves: *const f32,
    width: usize,
    groups: usize,
    nearest: *mut u8,
) {
    for first in (0..TILE_ROWS).step_by(PARTS * LANES) {
        let mut least = [_mm256_set1_ps(f32::INFINITY); PARTS];
        let mut index = [_mm256_setzero_si256(); PARTS];
        for g in 0..groups {
            let mut scores = [[_mm256_setzero_ps(); PARTS]; GROUP];
            for (c, own) in scores.iter_mut().enumerate() {
                // SAFETY: a half for every centre.
                *own = unsafe { [_mm256_set1_ps(*halves.add(g * GROUP + c)); PARTS] };
            }
            for d in 0..width {
                let mut components = [_mm256_setzero_ps(); PARTS];
                for (p, x) in components.iter_mut().enumerate() {
                    // SAFETY: 64 components of the rows for each of `width`.
                    *x = unsafe { _mm256_loadu_ps(rows.add(d * TILE_ROWS + first + p * LANES)) };
                }
                for (c, own) in scores.iter_mut().enumerate() {
                    // SAFETY: four components of a group for each of `width`.
                    let y = unsafe { _mm256_set1_ps(*centres.add((g * width + d) * GROUP + c)) };
                    for (score, x) in own.iter_mut().zip(components) {
                        *score = _mm256_fmadd_ps(x, y, *score);
                    }
                }
            }
            for (c, own) in scores.into_iter().enumerate() {
                let number = _mm256_set1_epi32((g * GROUP + c) as i32);
                for p in 0..PARTS {
                    let nearer = _mm256_cmp_ps::<_CMP_LT_OQ>(own[p], least[p]);
                    least[p] = _mm256_blendv_ps(least[p], own[p], nearer);
                    index[p] = _mm256_blendv_epi8(index[p], number, _mm256_castps_si256(nearer));
                }
            }
        }
        let mut lanes = [0i32; LANES];
        for (p, index) in index.into_iter().enumerate() {
            // SAFETY: eight of 64 indexes.
            unsafe {
                _mm256_storeu_si256(lanes.as_mut_ptr().cast(), index);
                (0..LANES).for_each(|i| *nearest.add(first + p * LANES + i) = lanes[i] as u8);
            }
        }
    }
}
