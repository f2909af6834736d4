//! What every level of instructions offers for panels of uint8 points.

/// Points of a panel.
pub const PANEL_POINTS: usize = 16;
/// Components up to which scores fit 32 bits: `32768 * 255^2 < 2^31`.
pub const MAX_DIM: usize = 32768;

/// Components of a chunk.
pub(crate) const CHUNK: usize = 4;
pub(crate) const CHUNK_BYTES: usize = CHUNK * PANEL_POINTS;
/// The largest tile of any level, in rows and panels.
pub(crate) const MAX_ROWS: usize = 32;
pub(crate) const MAX_PANELS: usize = 4;
/// Rows made ready together: a multiple of every level's rows, few enough to stay in a core's own cache.
pub(super) const READY_ROWS: usize = 96;
/// Fewer rows than these leave most of a large tile unused, so that a level of smaller tiles is faster.
const FEW_ROWS: usize = 12;
/// Scores of a tile: `(queries, panels, offsets, chunks, limits, scores, hits)`, whether any is a hit.
///
/// `queries` holds the level's rows of `4 * chunks` signed bytes, padded as the level says (`Level::depth`); `limits` one
/// value a row. Writes 16 `scores` for
/// each row and panel, rows first, and in `hits` a bit for every score up to its row's limit.
pub(crate) type Tile = unsafe fn(*const i8, *const u8, *const i32, usize, *const i32, *mut i32, *mut u16) -> bool;

/// Places of the least scores of a row: `(scores, places, space)`.
pub(super) type Least = unsafe fn(&[i32], &mut [u32], &mut Vec<u64>);

/// The kernel of one instruction-set level.
pub struct Level {
    /// Name of the level, for reports.
    pub name: &'static str,
    /// Queries of a tile.
    pub(crate) rows: usize,
    /// The tile of one panel, of two and so on.
    pub(crate) tiles: &'static [Tile],
    /// Squared norm and sum of `dim` bytes, at most `MAX_DIM`.
    pub(crate) norm: unsafe fn(*const u8, usize) -> (i32, i32),
    /// See `least::least_portable`.
    pub(super) least: Least,
    /// Chunks that a step of a tile takes; vectors of fewer chunks are one step. Queries are padded to whole steps by
    /// zeros before the chunks of their last step: a tile goes back in the panel, so that it reads no byte behind it.
    pub(super) depth: usize,
    /// Called on a thread before its first tile of vectors of so many chunks, at least 1, and after its last one.
    pub(super) begin: unsafe fn(usize),
    pub(super) end: unsafe fn(),
    /// The level to use for few rows, if not this one.
    pub(super) few_rows: Option<&'static Level>,
}

impl Level {
    /// A level without state between tiles, whose steps are chunks.
    pub(super) const fn plain(
        name: &'static str,
        rows: usize,
        tiles: &'static [Tile],
        norm: unsafe fn(*const u8, usize) -> (i32, i32),
        least: Least,
    ) -> Level {
        Level { name, rows, tiles, norm, least, depth: 1, begin: |_| {}, end: || {}, few_rows: None }
    }

    /// This level, or the one that is faster for so few rows.
    pub(crate) fn for_rows(&self, n_rows: usize) -> &Level {
        self.few_rows.filter(|_| n_rows < FEW_ROWS).unwrap_or(self)
    }
}

/// See [`Level::norm`]; inlined into each level so that the compiler vectorizes it for that level.
///
/// # Safety
/// `row` has `dim` components.
#[inline(always)]
pub unsafe fn norm_portable(row: *const u8, dim: usize) -> (i32, i32) {
    // SAFETY: the caller vouches for the row.
    let row = unsafe { std::slice::from_raw_parts(row, dim) };
    row.iter().fold((0, 0), |(norm, sum), &x| (norm + i32::from(x) * i32::from(x), sum + i32::from(x)))
}
