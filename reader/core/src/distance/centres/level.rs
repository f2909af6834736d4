//! What every level of instructions offers for centres.

/// Rows of a tile.
pub(super) const TILE_ROWS: usize = 64;
/// Centres whose scores are computed together.
pub(super) const GROUP: usize = 4;

/// Finds the nearest centres of a tile: `(rows, centres, halves, width, groups, nearest)`.
///
/// `rows` holds `width` times 64 components, minus the origin; `centres` holds `width` times four negated components for
/// each of `groups`, and `halves` four values of `|c|^2 / 2`. Writes 64 indexes to `nearest`. NaN and +infinity are never
/// the least score; without another one, the index is 0.
pub(super) type Tile = unsafe fn(*const f32, *const f32, *const f32, usize, usize, *mut u8);

/// The kernel of one instruction-set level.
pub struct Level {
    /// Name of the level, for reports.
    pub name: &'static str,
    pub(super) tile: Tile,
}
