//! The AVX2 + FMA + F16C level.

use std::arch::x86_64::*;

use super::gather::gather_kernel;
use super::{Kernels, convert, in_blocks};

/// Kernels for CPUs with AVX2, FMA and F16C.
pub static KERNELS: Kernels = Kernels {
    name: "avx2",
    l2_f32,
    l2_u8,
    l2_i8,
    ip_f32,
    ip_u8,
    gather_l2_f32,
    gather_l2_u8,
    widen_f16,
    unscale_u8,
    unscale_u16,
    add_squares,
};

/// Floats of one turn of the loop: four registers of eight.
const TURN: usize = 32;

/// Adds lanes by halves: register 0 holds lanes 0..8, register 1 lanes 8..16 and so on.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add_lanes(acc: [__m256; 4]) -> f32 {
    let eight = _mm256_add_ps(_mm256_add_ps(acc[0], acc[2]), _mm256_add_ps(acc[1], acc[3]));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

macro_rules! float_kernel {
    ($name:ident, |$x:ident, $y:ident, $acc:ident| $step:expr) => {
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $name(a: *const f32, b: *const f32, dim: usize) -> f32 {
            let mut acc = [_mm256_setzero_ps(); 4];
            let whole = dim - dim % TURN;
            let mut i = 0;
            while i < whole {
                for (r, $acc) in acc.iter_mut().enumerate() {
                    // SAFETY: i + 8 * r + 8 <= i + 32 <= dim.
                    let ($x, $y) = unsafe { (_mm256_loadu_ps(a.add(i + 8 * r)), _mm256_loadu_ps(b.add(i + 8 * r))) };
                    *$acc = $step;
                }
                i += TURN;
            }
            if whole < dim {
                let rest = dim - whole;
                for (r, $acc) in acc.iter_mut().enumerate() {
                    let mask = first_lanes(rest.saturating_sub(8 * r).min(8));
                    // SAFETY: masked lanes are not read.
                    let ($x, $y) = unsafe {
                        (
                            _mm256_maskload_ps(a.wrapping_add(whole + 8 * r), mask),
                            _mm256_maskload_ps(b.wrapping_add(whole + 8 * r), mask),
                        )
                    };
                    // Other lanes stay: adding zero would turn -0.0 into +0.0.
                    *$acc = _mm256_blendv_ps(*$acc, $step, _mm256_castsi256_ps(mask));
                }
            }
            add_lanes(acc)
        }
    };
}

/// Mask with the first `n` of eight lanes set.
#[inline]
#[target_feature(enable = "avx2")]
fn first_lanes(n: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

float_kernel!(l2_f32, |x, y, acc| {
    let d = _mm256_sub_ps(x, y);
    _mm256_fmadd_ps(d, d, *acc)
});
float_kernel!(ip_f32, |x, y, acc| _mm256_fmadd_ps(x, y, *acc));

#[inline]
#[target_feature(enable = "avx2")]
fn add_integers(sum: __m256i) -> i32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b00_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b01>(two)))
}

macro_rules! integer_kernel {
    ($name:ident, $block:ident, $t:ty, $widen:ident, |$x:ident, $y:ident| $madd:expr, |$p:ident, $q:ident| $term:expr) => {
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $block(a: *const $t, b: *const $t, len: usize) -> i32 {
            let mut sums = [_mm256_setzero_si256(); 2];
            let whole = len - len % 32;
            let mut i = 0;
            while i < whole {
                for (r, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: i + 16 * r + 16 <= len.
                    let ($x, $y) = unsafe {
                        (
                            $widen(_mm_loadu_si128(a.add(i + 16 * r).cast())),
                            $widen(_mm_loadu_si128(b.add(i + 16 * r).cast())),
                        )
                    };
                    *sum = _mm256_add_epi32(*sum, $madd);
                }
                i += 32;
            }
            let mut total = add_integers(_mm256_add_epi32(sums[0], sums[1]));
            while i < len {
                // SAFETY: i < len.
                let ($p, $q) = unsafe { (*a.add(i) as i32, *b.add(i) as i32) };
                total += $term;
                i += 1;
            }
            total
        }
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(a: *const $t, b: *const $t, dim: usize) -> f32 {
            in_blocks!(a, b, dim, $block)
        }
    };
}

integer_kernel!(
    l2_u8,
    l2_u8_block,
    u8,
    _mm256_cvtepu8_epi16,
    |x, y| {
        let d = _mm256_sub_epi16(x, y);
        _mm256_madd_epi16(d, d)
    },
    |p, q| (p - q) * (p - q)
);
integer_kernel!(
    l2_i8,
    l2_i8_block,
    i8,
    _mm256_cvtepi8_epi16,
    |x, y| {
        let d = _mm256_sub_epi16(x, y);
        _mm256_madd_epi16(d, d)
    },
    |p, q| (p - q) * (p - q)
);
integer_kernel!(ip_u8, ip_u8_block, u8, _mm256_cvtepu8_epi16, |x, y| _mm256_madd_epi16(x, y), |p, q| p * q);

#[target_feature(enable = "avx2,f16c")]
unsafe fn widen_f16(codes: *const u16, dim: usize, out: *mut f32) {
    let whole = dim - dim % 8;
    let mut j = 0;
    while j < whole {
        // SAFETY: j + 8 <= dim.
        unsafe { _mm256_storeu_ps(out.add(j), _mm256_cvtph_ps(_mm_loadu_si128(codes.add(j).cast()))) };
        j += 8;
    }
    // SAFETY: the rest of the same arrays.
    unsafe { convert::widen_f16_portable(codes.add(whole), dim - whole, out.add(whole)) };
}

#[target_feature(enable = "avx2")]
unsafe fn unscale_u8(codes: *const u8, min: *const f32, step: *const f32, dim: usize, out: *mut f32) {
    // SAFETY: the caller's contract is the same.
    unsafe { convert::unscale_portable(codes, min, step, dim, out) }
}

#[target_feature(enable = "avx2")]
unsafe fn unscale_u16(codes: *const u16, min: *const f32, step: *const f32, dim: usize, out: *mut f32) {
    // SAFETY: the caller's contract is the same.
    unsafe { convert::unscale_portable(codes, min, step, dim, out) }
}

#[target_feature(enable = "avx2")]
unsafe fn add_squares(x: f32, centres: *const f32, n: usize, sums: *mut f32) {
    // SAFETY: the caller's contract is the same.
    unsafe { convert::add_squares_portable(x, centres, n, sums) }
}

gather_kernel!(
    #[target_feature(enable = "avx2,fma")]
    gather_l2_f32,
    l2_f32,
    f32
);
gather_kernel!(
    #[target_feature(enable = "avx2")]
    gather_l2_u8,
    l2_u8,
    u8
);
