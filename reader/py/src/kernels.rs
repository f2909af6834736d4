//! Distance kernels with C names, for numba code that calls them by address (`indexmill.reader.kernels`).
//!
//! They are exported symbols of the Python extension module itself, so a process that imported it can link them.

use std::cell::RefCell;

use indexmill_core::distance::block::{Lists, Panels, Rows};
use indexmill_core::distance::centres::{self, Centres};
use indexmill_core::distance::{TABLE_WIDTH, kernels, prefetch_row, products, prune, score_codes};

thread_local! {
    /// A query as floats.
    static WIDE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Calls `gather` with a query as it is.
fn given<T>(query: *const T, _: usize, gather: impl FnOnce(*const T)) {
    gather(query);
}

/// Calls `gather` with a query of `dim` binary16 components as floats.
///
/// # Safety
/// `query` points to `dim` components.
unsafe fn widened(query: *const u16, dim: usize, gather: impl FnOnce(*const f32)) {
    WIDE.with_borrow_mut(|wide| {
        wide.resize(dim, 0.0);
        // SAFETY: the caller vouches for `dim` components, and there is room for as many floats.
        unsafe { (kernels().widen_f16)(query, dim, wide.as_mut_ptr()) };
        gather(wide.as_ptr());
    });
}

/// Defines a gather kernel for rows of one type, which takes its query by `$query`.
macro_rules! gather {
    ($name:ident, $kernel:ident, $t:ty, $query:ident, $what:literal) => {
        #[doc = $what]
        ///
        /// # Safety
        /// `query` points to `dim` components, `ids` and `out` to `n_ids` values, and every id is a row of `base`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            query: *const $t,
            base: *const $t,
            dim: i64,
            ids: *const u32,
            n_ids: i64,
            out: *mut f32,
        ) {
            let (dim, n) = (dim.max(0) as usize, n_ids.max(0) as usize);
            // SAFETY: the caller's contract.
            unsafe { $query(query, dim, |query| (kernels().$kernel)(query, base, dim, ids, n, out)) }
        }
    };
}

gather!(im_l2_gather_f32, gather_l2_f32, f32, given, "`out[i] = |query - base[ids[i]]|^2` for float32 rows.");
gather!(im_l2_gather_f16, gather_l2_f16, u16, widened, "`out[i] = |query - base[ids[i]]|^2` for binary16 rows.");
gather!(im_l2_gather_u8, gather_l2_u8, u8, given, "`out[i] = |query - base[ids[i]]|^2` for uint8 rows.");
gather!(im_l2_gather_i8, gather_l2_i8, i8, given, "`out[i] = |query - base[ids[i]]|^2` for int8 rows.");
gather!(im_ip_gather_f32, gather_ip_f32, f32, given, "`out[i] = query . base[ids[i]]` for float32 rows.");
gather!(im_ip_gather_f16, gather_ip_f16, u16, widened, "`out[i] = query . base[ids[i]]` for binary16 rows.");
gather!(im_ip_gather_u8, gather_ip_u8, u8, given, "`out[i] = query . base[ids[i]]` for uint8 rows.");
gather!(im_ip_gather_i8, gather_ip_i8, i8, given, "`out[i] = query . base[ids[i]]` for int8 rows.");

/// Widens `dim` binary16 components to floats.
///
/// # Safety
/// `codes` and `out` point to `dim` values each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_widen_f16(codes: *const u16, dim: i64, out: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { (kernels().widen_f16)(codes, dim.max(0) as usize, out) }
}

/// `out[i]`: the distance of code `ids[i]` by a table of 256 floats for each of `n_chunks` chunks.
///
/// # Safety
/// `table` points to `256 * n_chunks` floats, `ids` and `out` to `n_ids` values, and every id is a row of `codes`,
/// `n_chunks` bytes each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_code_distances(
    table: *const f32,
    n_chunks: i64,
    codes: *const u8,
    ids: *const u32,
    n_ids: i64,
    out: *mut f32,
) {
    let m = n_chunks.max(0) as usize;
    let row = |id: u32| codes.wrapping_add(id as usize * m);
    // SAFETY: the caller's contract.
    let (table, ids, out) =
        unsafe { (first(table, TABLE_WIDTH as i64 * n_chunks), first(ids, n_ids), first_mut(out, n_ids)) };
    ids.iter().for_each(|&id| prefetch_row(row(id), m));
    // SAFETY: a code has `m` bytes.
    score_codes(table, |i| unsafe { std::slice::from_raw_parts(row(ids[i]), m) }, out);
}

/// Merges points in panels into the lists of uint8 rows (`indexmill_core::distance::block`).
///
/// # Safety
/// `vectors` holds rows of `dim` bytes, at most 32,768; `rows` names `n_rows` different ones. `panels` holds
/// `n_panels * ceil(dim / 4) * 64` bytes, `offsets` and `ids` 16 values a panel, `scores` and `found` `fanout` values
/// for every row of `vectors`, ascending. Nothing is written for a `dim` or `fanout` below 1.
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
    if dim < 1 || fanout < 1 {
        return; // lists without a place: none has a worst score to look at
    }
    let rows = Rows { vectors, dim: dim as usize, rows, n_rows: n_rows.max(0) as usize };
    let panels = Panels { bytes: panels, offsets, n_panels: n_panels.max(0) as usize };
    // SAFETY: the caller's contract.
    unsafe { products().nearest(rows, panels, ids, Lists { scores, ids: found, fanout: fanout as usize }) }
}

/// Writes the scores of uint8 rows and points in panels, `16 * n_panels` a row.
///
/// # Safety
/// As `im_nearest_u8`; `out` has room for `n_rows * n_panels * 16` values. Nothing is written for a `dim` below 1.
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
    if dim < 1 {
        return;
    }
    let rows = Rows { vectors, dim: dim as usize, rows, n_rows: n_rows.max(0) as usize };
    let panels = Panels { bytes: panels, offsets, n_panels: n_panels.max(0) as usize };
    // SAFETY: the caller's contract.
    unsafe { products().scores(rows, panels, out) }
}

/// Writes the places of the `k` least of every `width` scores, `u32::MAX` after the last (`Level::least`).
///
/// # Safety
/// `scores` holds `n_rows * width` values; `width` is a multiple of 16. `places` has room for `n_rows * k` values.
/// Nothing is written if one of `width` and `k` is below 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_least_scores(scores: *const i32, n_rows: i64, width: i64, k: i64, places: *mut u32) {
    if k < 1 || width < 1 {
        return;
    }
    // SAFETY: the caller's contract.
    let (scores, places) = unsafe { (first(scores, n_rows * width), first_mut(places, n_rows * k)) };
    products().least(scores, width as usize, k as usize, places);
}

/// Finds the nearest centre of each row's chunks (`indexmill_core::distance::centres`).
///
/// # Safety
/// `rows` holds `n_rows` times `dim` floats, `pivots` `n_centres` times as many, 1 to 256; `bounds` `n_chunks + 1`
/// values ascending from 0 to `dim`; `labels` has room for `n_rows * n_chunks` bytes. Nothing is written if one of `dim`,
/// `n_centres` and `n_chunks` is below 1.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn im_nearest_centres(
    rows: *const f32,
    dim: i64,
    n_rows: i64,
    pivots: *const f32,
    n_centres: i64,
    bounds: *const i64,
    n_chunks: i64,
    labels: *mut u8,
) {
    if dim < 1 || n_centres < 1 || n_chunks < 1 {
        return;
    }
    // SAFETY: the caller's contract.
    let (values, pivots, bounds, labels) = unsafe {
        (
            first(rows, n_rows * dim),
            first(pivots, n_centres * dim),
            first(bounds, n_chunks + 1),
            first_mut(labels, n_rows * n_chunks),
        )
    };
    let rows = centres::Rows { values, dim: dim as usize };
    centres::level().nearest(rows, Centres { values: pivots, bounds }, labels);
}

/// The first `n` of an array, which may have no address if there are none.
///
/// # Safety
/// `values` points to `n` values, which nothing changes as long as the slice lives.
unsafe fn first<'a, T>(values: *const T, n: i64) -> &'a [T] {
    if n <= 0 {
        return &[];
    }
    // SAFETY: the caller vouches for `n` values.
    unsafe { std::slice::from_raw_parts(values, n as usize) }
}

/// As `first`, to be written to.
///
/// # Safety
/// `values` points to `n` values, which nothing else uses as long as the slice lives.
unsafe fn first_mut<'a, T>(values: *mut T, n: i64) -> &'a mut [T] {
    if n <= 0 {
        return &mut [];
    }
    // SAFETY: the caller vouches for `n` values that nothing else uses.
    unsafe { std::slice::from_raw_parts_mut(values, n as usize) }
}

/// Sorts candidates by (distance, id), drops repeated ones and returns how many remain.
///
/// # Safety
/// `ids` and `distances` point to `n` values each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_sort_candidates(ids: *mut u32, distances: *mut f32, n: i64) -> i64 {
    // SAFETY: the caller's contract.
    unsafe { prune::sort_candidates(first_mut(ids, n), first_mut(distances, n)) as i64 }
}

/// Defines robust prune for rows of one type.
macro_rules! prune {
    ($name:ident, $kernel:ident, $t:ty, $what:literal) => {
        #[doc = $what]
        ///
        /// # Safety
        /// `ids` and `distances` point to `n` values each, in order, `out` to `max_degree` others, and every id is a
        /// row of `vectors`, which have `dim` components. Nothing is chosen for a `dim` below 1.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name(
            vectors: *const $t,
            dim: i64,
            ids: *const u32,
            distances: *const f32,
            n: i64,
            max_degree: i64,
            alpha: f32,
            saturate: bool,
            out: *mut u32,
        ) -> i64 {
            let rule = prune::Rule { alpha, saturate };
            let rows = prune::Rows { vectors, dim: dim.max(0) as usize };
            // SAFETY: the caller's contract.
            unsafe { prune::$kernel(rows, first(ids, n), first(distances, n), rule, first_mut(out, max_degree)) as i64 }
        }
    };
}

prune!(
    im_prune_f32,
    prune_f32,
    f32,
    "Chooses at most `max_degree` of `n` candidates and returns how many: float32 rows."
);
prune!(im_prune_f16, prune_f16, u16, "As `im_prune_f32`, of binary16 rows.");
prune!(im_prune_u8, prune_u8, u8, "As `im_prune_f32`, of uint8 rows.");
prune!(im_prune_i8, prune_i8, i8, "As `im_prune_f32`, of int8 rows.");
