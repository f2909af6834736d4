//! Distance kernels with C names, for numba code that calls them by address (`indexmill.reader.kernels`).
//!
//! They are exported symbols of the Python extension module itself, so a process that imported it can link them.

use indexmill_core::distance::block::{Lists, Panels, Rows, level};
use indexmill_core::distance::kernels;

/// Squared Euclidean distance of two uint8 vectors.
///
/// # Safety
/// `a` and `b` point to `dim` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_l2_u8(a: *const u8, b: *const u8, dim: i64) -> f32 {
    // SAFETY: the caller's contract.
    unsafe { (kernels().l2_u8)(a, b, dim.max(0) as usize) }
}

/// Squared Euclidean distance of two float32 vectors.
///
/// # Safety
/// `a` and `b` point to `dim` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_l2_f32(a: *const f32, b: *const f32, dim: i64) -> f32 {
    // SAFETY: the caller's contract.
    unsafe { (kernels().l2_f32)(a, b, dim.max(0) as usize) }
}

/// `out[i] = |query - base[ids[i]]|^2` for uint8 rows.
///
/// # Safety
/// `query` points to `dim` bytes, `ids` and `out` to `n_ids` values, and every id is a row of `base`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_l2_gather_u8(
    query: *const u8,
    base: *const u8,
    dim: i64,
    ids: *const u32,
    n_ids: i64,
    out: *mut f32,
) {
    // SAFETY: the caller's contract.
    unsafe { (kernels().gather_l2_u8)(query, base, dim.max(0) as usize, ids, n_ids.max(0) as usize, out) }
}

/// `out[i] = |query - base[ids[i]]|^2` for float32 rows.
///
/// # Safety
/// `query` points to `dim` floats, `ids` and `out` to `n_ids` values, and every id is a row of `base`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_l2_gather_f32(
    query: *const f32,
    base: *const f32,
    dim: i64,
    ids: *const u32,
    n_ids: i64,
    out: *mut f32,
) {
    // SAFETY: the caller's contract.
    unsafe { (kernels().gather_l2_f32)(query, base, dim.max(0) as usize, ids, n_ids.max(0) as usize, out) }
}

/// Merges points in panels into the lists of uint8 rows (`indexmill_core::distance::block`).
///
/// # Safety
/// `vectors` holds rows of `dim` bytes, at most 32,768; `rows` names `n_rows` different ones. `panels` holds
/// `n_panels * ceil(dim / 4) * 64` bytes, `offsets` and `ids` 16 values a panel, `scores` and `found` `fanout` values
/// for every row of `vectors`, ascending; `fanout` is at least 1.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn im_nearest_u8(
    vectors: *const u8,
    dim: i64,
    rows: *const i64,
    n_rows: i64,
    panels: *const u8,
    offsets: *const i32,
    ids: *const u32,
    n_panels: i64,
    fanout: i64,
    scores: *mut i32,
    found: *mut u32,
) {
    let rows = Rows { vectors, dim: dim.max(0) as usize, rows, n_rows: n_rows.max(0) as usize };
    let panels = Panels { bytes: panels, offsets, n_panels: n_panels.max(0) as usize };
    // SAFETY: the caller's contract.
    unsafe { level().nearest(rows, panels, ids, Lists { scores, ids: found, fanout: fanout.max(1) as usize }) }
}

/// Writes the scores of uint8 rows and points in panels, `16 * n_panels` a row.
///
/// # Safety
/// As `im_nearest_u8`; `out` has room for `n_rows * n_panels * 16` values.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn im_scores_u8(
    vectors: *const u8,
    dim: i64,
    rows: *const i64,
    n_rows: i64,
    panels: *const u8,
    offsets: *const i32,
    n_panels: i64,
    out: *mut i32,
) {
    let rows = Rows { vectors, dim: dim.max(0) as usize, rows, n_rows: n_rows.max(0) as usize };
    let panels = Panels { bytes: panels, offsets, n_panels: n_panels.max(0) as usize };
    // SAFETY: the caller's contract.
    unsafe { level().scores(rows, panels, out) }
}
