//! The AVX2 + FMA + F16C level.

use std::arch::x86_64::*;

use super::convert::{self, portable_kernels};
use super::gather::gather_kernels;
use super::level::{FLOAT_PANEL, Kernels, in_blocks, kernels_of_module};

/// Kernels for CPUs with AVX2, FMA and F16C.
pub static KERNELS: Kernels = kernels_of_module!("avx2");

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

/// Defines a distance: the sum of the products of `$factors`, lane by lane.
macro_rules! float_kernel {
    ($name:ident, $t:ty, $load:ident, $load_first:ident, |$x:ident, $y:ident| $factors:expr) => {
        /// # Safety
        /// What `Kernels` says, and AVX2, FMA and F16C.
        #[inline]
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn $name(a: *const f32, b: *const $t, dim: usize) -> f32 {
            let mut acc = [_mm256_setzero_ps(); 4];
            let whole = dim - dim % TURN;
            let mut i = 0;
            while i < whole {
                for (r, acc) in acc.iter_mut().enumerate() {
                    // SAFETY: i + 8 * r + 8 <= i + 32 <= dim.
                    let ($x, $y) = unsafe { (_mm256_loadu_ps(a.add(i + 8 * r)), $load(b.add(i + 8 * r))) };
                    let [f, g] = $factors;
                    *acc = _mm256_fmadd_ps(f, g, *acc);
                }
                i += TURN;
            }
            if whole < dim {
                let rest = dim - whole;
                for (r, acc) in acc.iter_mut().enumerate() {
                    let n = rest.saturating_sub(8 * r).min(8);
                    // SAFETY: lanes beyond the first n are not read.
                    let ($x, $y) = unsafe {
                        (first_floats(a.wrapping_add(whole + 8 * r), n), $load_first(b.wrapping_add(whole + 8 * r), n))
                    };
                    // Other lanes stay: adding zero would turn -0.0 into +0.0.
                    let [f, g] = $factors;
                    *acc = _mm256_blendv_ps(*acc, _mm256_fmadd_ps(f, g, *acc), _mm256_castsi256_ps(first_lanes(n)));
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

/// The first `n` of eight floats, zero beyond them.
///
/// # Safety
/// `n` floats, at most 8, and AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn first_floats(from: *const f32, n: usize) -> __m256 {
    // SAFETY: masked lanes are not read.
    unsafe { _mm256_maskload_ps(from, first_lanes(n)) }
}

/// Eight floats from binary16.
///
/// # Safety
/// Eight values, and F16C.
#[inline]
#[target_feature(enable = "f16c")]
unsafe fn halves(from: *const u16) -> __m256 {
    // SAFETY: the caller vouches for eight values.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from.cast()) })
}

/// The first `n` of eight floats from binary16, zero beyond them.
///
/// # Safety
/// `n` values, at most 8, and F16C.
#[inline]
#[target_feature(enable = "f16c")]
unsafe fn first_halves(from: *const u16, n: usize) -> __m256 {
    let mut eight = [0u16; 8];
    // SAFETY: the caller vouches for n values, at most eight.
    unsafe {
        std::ptr::copy_nonoverlapping(from, eight.as_mut_ptr(), n);
        halves(eight.as_ptr())
    }
}

float_kernel!(l2_f32, f32, _mm256_loadu_ps, first_floats, |x, y| [_mm256_sub_ps(x, y); 2]);
float_kernel!(l2_f16, u16, halves, first_halves, |x, y| [_mm256_sub_ps(x, y); 2]);
float_kernel!(ip_f32, f32, _mm256_loadu_ps, first_floats, |x, y| [x, y]);
float_kernel!(ip_f16, u16, halves, first_halves, |x, y| [x, y]);

#[inline]
#[target_feature(enable = "avx2")]
fn add_integers(sum: __m256i) -> i32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b00_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b01>(two)))
}

/// Defines a distance: the sum of the products of `$factors`, pair by pair and block by block.
macro_rules! integer_kernel {
    ($name:ident, $block:ident, $t:ty, $widen:ident, |$x:ident, $y:ident| $factors:expr, |$p:ident, $q:ident| $rest:expr) => {
        /// # Safety
        /// `len` components each, and AVX2.
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
                    let [f, g] = $factors;
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(f, g));
                }
                i += 32;
            }
            let mut total = add_integers(_mm256_add_epi32(sums[0], sums[1]));
            while i < len {
                // SAFETY: i < len.
                let ($p, $q) = unsafe { (*a.add(i) as i32, *b.add(i) as i32) };
                let [f, g] = $rest;
                total += f * g;
                i += 1;
            }
            total
        }
        /// # Safety
        /// What `Kernels` says, and AVX2.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(a: *const $t, b: *const $t, dim: usize) -> f32 {
            in_blocks!(a, b, dim, $block)
        }
    };
}

integer_kernel!(l2_u8, l2_u8_block, u8, _mm256_cvtepu8_epi16, |x, y| [_mm256_sub_epi16(x, y); 2], |p, q| [p - q; 2]);
integer_kernel!(l2_i8, l2_i8_block, i8, _mm256_cvtepi8_epi16, |x, y| [_mm256_sub_epi16(x, y); 2], |p, q| [p - q; 2]);
integer_kernel!(ip_u8, ip_u8_block, u8, _mm256_cvtepu8_epi16, |x, y| [x, y], |p, q| [p, q]);
integer_kernel!(ip_i8, ip_i8_block, i8, _mm256_cvtepi8_epi16, |x, y| [x, y], |p, q| [p, q]);

/// # Safety
/// What `Kernels` says, and AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
unsafe fn widen_f16(codes: *const u16, dim: usize, out: *mut f32) {
    let whole = dim - dim % 8;
    let mut j = 0;
    while j < whole {
        // SAFETY: j + 8 <= dim.
        unsafe { _mm256_storeu_ps(out.add(j), halves(codes.add(j))) };
        j += 8;
    }
    // SAFETY: the rest of the same arrays.
    unsafe { convert::widen_f16_portable(codes.add(whole), dim - whole, out.add(whole)) };
}

portable_kernels!(#[target_feature(enable = "avx2,fma")]);
gather_kernels!(#[target_feature(enable = "avx2,fma,f16c")]);

/// Lane `l` of the sums is a register of 8 points here, so halves are added register by register.
///
/// # Safety
/// What `Kernels` says, and AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn least_l2_f32(query: *const f32, panels: *const [f32; FLOAT_PANEL], n_panels: usize, dim: usize) -> f32 {
    let mut least = _mm256_set1_ps(f32::INFINITY);
    for half in 0..2 * n_panels {
        // SAFETY: a panel has `dim` components, each of two halves.
        let points = unsafe { panels.add(half / 2 * dim).cast::<f32>().add(half % 2 * FLOAT_PANEL / 2) };
        let step = |i: usize, sum: __m256| {
            // SAFETY: i < dim.
            let d =
                unsafe { _mm256_sub_ps(_mm256_set1_ps(*query.add(i)), _mm256_loadu_ps(points.add(i * FLOAT_PANEL))) };
            _mm256_fmadd_ps(d, d, sum)
        };
        let mut sums = [_mm256_setzero_ps(); 16];
        for (lane, sum) in sums.iter_mut().enumerate() {
            let (mut low, mut high) = (_mm256_setzero_ps(), _mm256_setzero_ps());
            let mut i = lane;
            while i + 16 < dim {
                (low, high) = (step(i, low), step(i + 16, high));
                i += 32;
            }
            if i < dim {
                low = step(i, low);
            }
            *sum = _mm256_add_ps(low, high);
        }
        let eight: [__m256; 8] = std::array::from_fn(|l| _mm256_add_ps(sums[l], sums[l + 8]));
        let four: [__m256; 4] = std::array::from_fn(|l| _mm256_add_ps(eight[l], eight[l + 4]));
        let two: [__m256; 2] = std::array::from_fn(|l| _mm256_add_ps(four[l], four[l + 2]));
        least = _mm256_min_ps(_mm256_add_ps(two[0], two[1]), least); // NaN is not the least
    }
    let four = _mm_min_ps(_mm256_castps256_ps128(least), _mm256_extractf128_ps::<1>(least));
    let two = _mm_min_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_min_ss(two, _mm_shuffle_ps::<1>(two, two)))
}
