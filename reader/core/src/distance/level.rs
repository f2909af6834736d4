//! What every level of instructions offers: one kernel for each distance.

/// Points of a panel of float32 vectors.
pub const FLOAT_PANEL: usize = 16;

/// Distance of two arrays of `dim` components; the first may have a type of its own.
pub type Pair<T, Q = T> = unsafe fn(*const Q, *const T, usize) -> f32;
/// Distances of a query to rows of a matrix: `(query, base, dim, ids, n_ids, out)`.
pub type Gather<T, Q = T> = unsafe fn(*const Q, *const T, usize, *const u32, usize, *mut f32);
/// Widens `dim` codes into floats: `(codes, dim, out)`.
pub type Widen<T> = unsafe fn(*const T, usize, *mut f32);
/// Decodes `dim` scaled codes into floats: `(codes, min, step, dim, out)`.
pub type Unscale<T> = unsafe fn(*const T, *const f32, *const f32, usize, *mut f32);

/// The kernels of one instruction-set level.
///
/// All pointers must be valid for `dim` elements (rows of `base`: for every id). No alignment beyond that of the
/// element type is needed.
pub struct Kernels {
    /// Name of the level, for reports.
    pub name: &'static str,
    /// Squared Euclidean distance of float32 vectors.
    pub l2_f32: Pair<f32>,
    /// `l2_f32` of a float32 vector and a binary16 one, which is widened first.
    pub l2_f16: Pair<u16, f32>,
    /// Squared Euclidean distance of uint8 vectors, exact before the final rounding to f32.
    pub l2_u8: Pair<u8>,
    /// Squared Euclidean distance of int8 vectors, exact before the final rounding to f32.
    pub l2_i8: Pair<i8>,
    /// Inner product of float32 vectors.
    pub ip_f32: Pair<f32>,
    /// `ip_f32` of a float32 vector and a binary16 one, which is widened first.
    pub ip_f16: Pair<u16, f32>,
    /// Inner product of uint8 vectors, exact before the final rounding to f32.
    pub ip_u8: Pair<u8>,
    /// Inner product of int8 vectors, exact before the final rounding to f32.
    pub ip_i8: Pair<i8>,
    /// `l2_f32` of a query to many rows, with the rows prefetched.
    pub gather_l2_f32: Gather<f32>,
    /// `l2_f16` likewise.
    pub gather_l2_f16: Gather<u16, f32>,
    /// `l2_u8` likewise.
    pub gather_l2_u8: Gather<u8>,
    /// `l2_i8` likewise.
    pub gather_l2_i8: Gather<i8>,
    /// `ip_f32` likewise.
    pub gather_ip_f32: Gather<f32>,
    /// `ip_f16` likewise.
    pub gather_ip_f16: Gather<u16, f32>,
    /// `ip_u8` likewise.
    pub gather_ip_u8: Gather<u8>,
    /// `ip_i8` likewise.
    pub gather_ip_i8: Gather<i8>,
    /// IEEE binary16 to binary32, exact.
    pub widen_f16: Widen<u16>,
    /// `min[j] + step[j] * code[j]`, multiplication and addition rounded separately.
    pub unscale_u8: Unscale<u8>,
    /// As `unscale_u8` for 16-bit codes.
    pub unscale_u16: Unscale<u16>,
    /// Squared distances of a query's chunk to `n` centres, `(query, width, centres, n, out)`: component d of centre c is
    /// `centres[d * n + c]`. Components are added in order; subtraction, square and addition are rounded separately.
    pub squares: unsafe fn(*const f32, usize, *const f32, usize, *mut f32),
    /// The least `l2_f32` of a query and points in panels, infinite if there are none: `(query, panels, n_panels, dim)`.
    /// A panel has the component of 16 points for each of `dim` dimensions.
    pub least_l2_f32: unsafe fn(*const f32, *const [f32; FLOAT_PANEL], usize, usize) -> f32,
    /// Fits byte codes to `n` rows, `(rows, n, dim, low)`: code c means `low[j] + step * c`. Returns the step.
    pub fit_codes: unsafe fn(*const *const f32, usize, usize, *mut f32) -> f32,
    /// Byte codes of a row, `(row, low, step, dim, codes)`; returns the squared norm of what they leave over.
    pub encode_u8: unsafe fn(*const f32, *const f32, f32, usize, *mut u8) -> f32,
}

/// Components of an integer block: its sum of squares fits an i32 (32768 * 255^2 < 2^31), so only blocks are added
/// in 64 bits.
pub const INTEGER_BLOCK: usize = 32768;

/// Splits `dim` into integer blocks and adds their 32-bit sums in 64 bits.
macro_rules! in_blocks {
    ($a:expr, $b:expr, $dim:expr, $block:path) => {{
        let (a, b, dim) = ($a, $b, $dim);
        let (mut total, mut start) = (0i64, 0usize);
        while start < dim {
            let len = (dim - start).min($crate::distance::level::INTEGER_BLOCK);
            // SAFETY: start + len <= dim, within what the caller vouches for.
            total += i64::from(unsafe { $block(a.add(start), b.add(start), len) });
            start += len;
        }
        total as f32
    }};
}
pub(crate) use in_blocks;

/// The kernels of the module that asks, by their names.
macro_rules! kernels_of_module {
    ($name:literal) => {
        $crate::distance::level::Kernels {
            name: $name,
            l2_f32,
            l2_f16,
            l2_u8,
            l2_i8,
            ip_f32,
            ip_f16,
            ip_u8,
            ip_i8,
            gather_l2_f32,
            gather_l2_f16,
            gather_l2_u8,
            gather_l2_i8,
            gather_ip_f32,
            gather_ip_f16,
            gather_ip_u8,
            gather_ip_i8,
            widen_f16,
            unscale_u8,
            unscale_u16,
            squares,
            least_l2_f32,
            fit_codes,
            encode_u8,
        }
    };
}
pub(crate) use kernels_of_module;
