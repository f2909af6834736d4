//! Squared Euclidean distances and inner products, dispatched at run time to the widest instructions of this CPU.
//!
//! Every level returns the same bits. Integer kernels are exact. Float kernels accumulate component `i` into
//! lane `i % 32` with a fused multiply-add and add the lanes by halves (16, 8, 4, 2, 1), which AVX-512 does with
//! two registers, AVX2 with four, NEON with eight and the portable code with an array. So an index built or searched on
//! one machine gives the same distances on another.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod block;
mod convert;
mod gather;
mod least;
mod lookup;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod prune;
mod scalar;

use std::sync::OnceLock;

pub use convert::half_to_f32;
pub use gather::{prefetch_line, prefetch_row};
pub use lookup::{TABLE_WIDTH, score_codes};

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
    /// `sums[c] += (x - centres[c])^2`, subtraction, square and addition rounded separately: `(x, centres, n, sums)`.
    pub add_squares: unsafe fn(f32, *const f32, usize, *mut f32),
    /// The least `l2_f32` of a query and points in panels, infinite if there are none: `(query, panels, n_panels, dim)`.
    /// A panel has the component of 16 points for each of `dim` dimensions.
    pub least_l2_f32: unsafe fn(*const f32, *const [f32; FLOAT_PANEL], usize, usize) -> f32,
}

/// Components of an integer block: its sum of squares fits an i32 (32768 * 255^2 < 2^31), so only blocks are added
/// in 64 bits.
const INTEGER_BLOCK: usize = 32768;

/// The kernels of this CPU, chosen once.
pub fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<&'static Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| *available().last().expect("the portable level is always there"))
}

/// Every level this CPU can run, slowest first. Tests compare them.
pub fn available() -> Vec<&'static Kernels> {
    #[allow(unused_mut)]
    let mut levels = vec![&scalar::KERNELS];
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        if has_avx2 {
            levels.push(&avx2::KERNELS);
        }
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        if has_avx2 && has_avx512 {
            levels.push(&avx512::KERNELS);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        levels.push(&neon::KERNELS);
    }
    levels
}

/// Splits `dim` into integer blocks and adds their 32-bit sums in 64 bits.
macro_rules! in_blocks {
    ($a:expr, $b:expr, $dim:expr, $block:path) => {{
        let (a, b, dim) = ($a, $b, $dim);
        let (mut total, mut start) = (0i64, 0usize);
        while start < dim {
            let len = (dim - start).min($crate::distance::INTEGER_BLOCK);
            // SAFETY: start + len <= dim, within what the caller vouches for.
            total += i64::from(unsafe { $block(a.add(start), b.add(start), len) });
            start += len;
        }
        total as f32
    }};
}
pub(crate) use in_blocks;

#[cfg(test)]
mod tests;
