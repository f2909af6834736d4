//! NEON with dot products: four products and their sum in a lane, in one instruction.
//!
//! SDOT multiplies signed bytes, and components of points are unsigned. With `t = p - 128`, `p.s = t.s + 128 sum(s)`:
//! the last term is the same for all points, and a query's sums begin with it. (USDOT takes unsigned points as they are,
//! but fewer CPUs have it: those with I8MM.)
//!
//! Intrinsics of dot products are stable since Rust 1.98, and this crate asks for an older one, hence inline assembly.

use std::arch::aarch64::*;
use std::arch::asm;

use super::level::{CHUNK, CHUNK_BYTES, Level, PANEL_POINTS};
use super::neon::{self, LANES, PARTS, finish};

/// Six rows of one panel take 24 of 32 registers for sums, and the points 4.
const ROWS: usize = 6;

/// The kernel for 64-bit ARM with dot products.
pub static LEVEL: Level = Level::plain("dotprod", ROWS, &[tile], neon::norm, neon::least);

/// Adds to each lane the products of its four bytes and the four of `query`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_products(mut sums: int32x4_t, bytes: int8x16_t, query: i32) -> int32x4_t {
    // SAFETY: the instruction reads three registers and writes the first.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {bytes:v}.16b, {query:v}.4b[0]",
            sums = inout(vreg) sums, bytes = in(vreg) bytes, query = in(vreg) query,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// The sum of a query's components.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn total(query: &[i8]) -> i32 {
    const ONES: i32 = 0x0101_0101;
    let (sixteens, rest) = query.as_chunks::<16>();
    let mut sums = vdupq_n_s32(0);
    for sixteen in sixteens {
        // SAFETY: 16 bytes.
        sums = add_products(sums, unsafe { vld1q_s8(sixteen.as_ptr()) }, ONES);
    }
    vaddvq_s32(sums) + rest.iter().map(|&x| i32::from(x)).sum::<i32>()
}

/// # Safety
/// What `Tile` says, and dot products.
#[target_feature(enable = "neon,dotprod")]
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
    for (r, row) in sums.iter_mut().enumerate() {
        // SAFETY: a query holds `chunks` chunks of four bytes.
        let query = unsafe { std::slice::from_raw_parts(queries.add(r * chunks * CHUNK), chunks * CHUNK) };
        *row = [vdupq_n_s32(128 * total(query)); PARTS];
    }
    let sign = vdupq_n_u8(0x80);
    for c in 0..chunks {
        let mut points = [vdupq_n_s8(0); PARTS];
        for (h, part) in points.iter_mut().enumerate() {
            // SAFETY: the panel holds `chunks` chunks of 64 bytes.
            let unsigned = unsafe { vld1q_u8(panel.add(c * CHUNK_BYTES + h * CHUNK * LANES)) };
            *part = vreinterpretq_s8_u8(veorq_u8(unsigned, sign));
        }
        for (r, row) in sums.iter_mut().enumerate() {
            // SAFETY: a query holds `chunks` chunks of four bytes.
            let query = unsafe { queries.add((r * chunks + c) * CHUNK).cast::<i32>().read_unaligned() };
            for (sum, part) in row.iter_mut().zip(points) {
                *sum = add_products(*sum, part, query);
            }
        }
    }
    let mut any = 0;
    for (r, row) in sums.into_iter().enumerate() {
        // SAFETY: one limit a row; 16 offsets; 16 scores and one mask a row.
        any |= unsafe { finish(row, offsets, *limits.add(r), scores.add(r * PANEL_POINTS), hits.add(r)) };
    }
    any != 0
}
