//! Distance kernels with C names, for numba code that calls them by address (`indexmill.reader.kernels`).
//!
//! They are exported symbols of the Python extension module itself, so a process that imported it can link them.

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
