//! What every level of instructions offers for panels of uint8 points.

/// Points of a panel.
pub const PANEL_POINTS: usize = 16;
/// Components up to which scores fit 32 bits: `32768 * 255^2 < 2^31`.
pub const MAX_DIM: usize = 32768;

/// Components of a chunk.
pub(in crate::distance) const CHUNK: usize = 4;
pub(in crate::distance) const CHUNK_BYTES: usize = CHUNK * PANEL_POINTS;
/// The largest tile of any level, in rows and panels.
pub(in crate::distance) const MAX_ROWS: usize = 6;
pub(in crate::distance) const MAX_PANELS: usize = 4;
/// Scores of a tile: `(queries, panels, offsets, chunks, limits, scores, hits)`, whether any is a hit.
///
/// `queries` holds the level's rows of `4 * chunks` signed bytes, `limits` one value a row. Writes 16 `scores` for
/// each row and panel, rows first, and in `hits` a bit for every score up to its row's limit.
pub(in crate::distance) type Tile =
    unsafe fn(*const i8, *const u8, *const i32, usize, *const i32, *mut i32, *mut u16) -> bool;

/// The kernel of one instruction-set level.
pub struct Level {
    /// Name of the level, for reports.
    pub name: &'static str,
    /// Queries of a tile.
    pub(in crate::distance) rows: usize,
    /// The tile of one panel, of two and so on.
    pub(in crate::distance) tiles: &'static [Tile],
    /// Squared norm and sum of `dim` bytes, at most `MAX_DIM`.
    pub(in crate::distance) norm: unsafe fn(*const u8, usize) -> (i32, i32),
}

/// See [`Level::norm`]; inlined into each level so that the compiler vectorizes it for that level.
#[inline(always)]
pub unsafe fn norm_portable(row: *const u8, dim: usize) -> (i32, i32) {
    // SAFETY: the caller vouches for the row.
    let row = unsafe { std::slice::from_raw_parts(row, dim) };
    row.iter().fold((0, 0), |(norm, sum), &x| (norm + i32::from(x) * i32::from(x), sum + i32::from(x)))
}
