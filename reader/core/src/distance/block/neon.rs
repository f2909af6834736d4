//! NEON: bytes widened to 16 bits, multiplied and added in 32. (`dotprod` is for CPUs that multiply bytes.)

use std::arch::aarch64::*;

use super::least::least_portable;
use super::level::{CHUNK, CHUNK_BYTES, Level, PANEL_POINTS, norm_portable};

/// Four rows of one panel take 16 of 32 registers for sums, and the widened points 8.
const ROWS: usize = 4;
/// Lanes of 32 bits in a register, and registers of a panel.
pub(super) const LANES: usize = 4;
pub(super) const PARTS: usize = PANEL_POINTS / LANES;

/// The kernel for 64-bit ARM.
pub static LEVEL: Level = Level::plain("neon", ROWS, &[tile], norm, least);

/// Adds the products of component `LANE` of 16 points and of a query.
#[inline]
#[target_feature(enable = "neon")]
fn add_products<const LANE: i32>(sums: &mut [int32x4_t; PARTS], points: uint8x16_t, query: int16x4_t) {
    let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(points)));
    let high = vreinterpretq_s16_u16(vmovl_high_u8(points));
    sums[0] = vmlal_lane_s16::<LANE>(sums[0], vget_low_s16(low), query);
    sums[1] = vmlal_high_lane_s16::<LANE>(sums[1], low, query);
    sums[2] = vmlal_lane_s16::<LANE>(sums[2], vget_low_s16(high), query);
    sums[3] = vmlal_high_lane_s16::<LANE>(sums[3], high, query);
}

/// # Safety
/// What `Tile` says.
#[target_feature(enable = "neon")]
unsafe fn tile(
    queries: *const i8,
    panel: *const u8,
    offsets: *const i32,
    chunks: usize,
    limits: *const i32,
    scores: *mut i32,
    hits: *mut u16,
) -> bool {
    let mut sums = [[vdupq_n_s32(0); PARTS]; ROWS];
    for c in 0..chunks {
        // SAFETY: the panel holds `chunks` chunks of 64 bytes; the load puts each component in its own register.
        let points = unsafe { vld4q_u8(panel.add(c * CHUNK_BYTES)) };
        for (r, row) in sums.iter_mut().enumerate() {
            // SAFETY: a query holds `chunks` chunks of four bytes.
            let four = unsafe { queries.add((r * chunks + c) * CHUNK).cast::<u32>().read_unaligned() };
            let query = vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))));
            add_products::<0>(row, points.0, query);
            add_products::<1>(row, points.1, query);
            add_products::<2>(row, points.2, query);
            add_products::<3>(row, points.3, query);
        }
    }
    let mut any = 0;
    for (r, row) in sums.into_iter().enumerate() {
        // SAFETY: one limit a row; 16 offsets; 16 scores and one mask a row.
        any |= unsafe { finish(row, offsets, *limits.add(r), scores.add(r * PANEL_POINTS), hits.add(r)) };
    }
    any != 0
}

/// Writes the scores of a row and a panel, and a bit for each up to `limit`; returns the bits.
///
/// # Safety
/// 16 offsets, room for 16 scores and for one mask.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn finish(
    sums: [int32x4_t; PARTS],
    offsets: *const i32,
    limit: i32,
    scores: *mut i32,
    hits: *mut u16,
) -> u16 {
    const BITS: [u32; LANES] = [1, 2, 4, 8];
    let mut found = 0u16;
    // SAFETY: the caller vouches for 16 offsets, room for 16 scores and for one mask.
    unsafe {
        let (limit, bits) = (vdupq_n_s32(limit), vld1q_u32(BITS.as_ptr()));
        for (h, sum) in sums.into_iter().enumerate() {
            let score = vsubq_s32(vld1q_s32(offsets.add(h * LANES)), vshlq_n_s32::<1>(sum));
            vst1q_s32(scores.add(h * LANES), score);
            found |= (vaddvq_u32(vandq_u32(vcleq_s32(score, limit), bits)) as u16) << (h * LANES);
        }
        *hits = found;
    }
    found
}

/// # Safety
/// `row` has `dim` components.
#[target_feature(enable = "neon")]
pub(super) unsafe fn norm(row: *const u8, dim: usize) -> (i32, i32) {
    // SAFETY: the caller's contract is the same.
    unsafe { norm_portable(row, dim) }
}

/// # Safety
/// NEON, which every 64-bit ARM CPU has.
#[target_feature(enable = "neon")]
pub(super) unsafe fn least(scores: &[i32], places: &mut [u32], kept: &mut Vec<u64>) {
    least_portable(scores, places, kept);
}
