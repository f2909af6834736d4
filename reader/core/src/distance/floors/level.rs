//! What a level of instructions offers to bound codes.

use crate::distance::lookup::TABLE_WIDTH;

/// Codes that are bounded at once.
pub const LANES: usize = 64;

/// The kernels of one instruction-set level.
pub struct Level {
    /// The least entry of a row of floats, the greatest, and about the sum of all.
    pub extent: unsafe fn(&[f32; TABLE_WIDTH]) -> (f32, f32, f32),
    /// Rounds a row down, `(row, least, per_step, bytes)`: the whole part of `(entry - least) * per_step`, at most 255.
    pub round: unsafe fn(&[f32; TABLE_WIDTH], f32, f32, &mut [u8; TABLE_WIDTH]),
    /// Bit i tells whether the bytes of code i add up to at most the limit: `(rows, codes, limit)`. Each code has a byte
    /// for each row. Larger sums than `u16::MAX` count as that.
    pub near: unsafe fn(&[[u8; TABLE_WIDTH]], &[*const u8; LANES], u16) -> u64,
}
