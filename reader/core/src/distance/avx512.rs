//! The AVX-512 level (F, BW and VL; VNNI would only fuse the last addition of the integer kernels).

use std::arch::x86_64::*;

use super::convert::portable_kernels;
use super::gather::gather_kernels;
use super::level::{FLOAT_PANEL, Kernels, in_blocks, kernels_of_module};

/// Kernels for CPUs with AVX-512 F, BW and VL.
pub static KERNELS: Kernels = kernels_of_module!("avx512");

/// Adds lanes by halves: register 0 holds lanes 0..16, register 1 lanes 16..32.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_lanes(acc: [__m512; 2]) -> f32 {
    let sixteen = _mm512_add_ps(acc[0], acc[1]);
    let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(sixteen)));
    let eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen), high);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

/// Defines a distance: the sum of the products of `$factors`, lane by lane.
macro_rules! float_kernel {
    ($name:ident, $t:ty, $load:ident, |$x:ident, $y:ident| $factors:expr) => {
        /// # Safety
        /// What `Kernels` says, and AVX-512 F, BW and VL.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn $name(a: *const f32, b: *const $t, dim: usize) -> f32 {
            let mut acc = [_mm512_setzero_ps(); 2];
            let whole = dim - dim % 32;
            let mut i = 0;
            while i < whole {
                for (r, acc) in acc.iter_mut().enumerate() {
                    // SAFETY: i + 16 * r + 16 <= i + 32 <= dim.
                    let ($x, $y) = unsafe { (_mm512_loadu_ps(a.add(i + 16 * r)), $load(u16::MAX, b.add(i + 16 * r))) };
                    let [f, g] = $factors;
                    *acc = _mm512_fmadd_ps(f, g, *acc);
                }
                i += 32;
            }
            if whole < dim {
                let mask = (1u32 << (dim - whole)) - 1;
                for (r, acc) in acc.iter_mut().enumerate() {
                    let lanes = (mask >> (16 * r)) as __mmask16;
                    // SAFETY: masked lanes are not read.
                    let ($x, $y) = unsafe {
                        (
                            _mm512_maskz_loadu_ps(lanes, a.wrapping_add(whole + 16 * r)),
                            $load(lanes, b.wrapping_add(whole + 16 * r)),
                        )
                    };
                    // Other lanes stay: adding zero would turn -0.0 into +0.0.
                    let [f, g] = $factors;
                    *acc = _mm512_mask_mov_ps(*acc, lanes, _mm512_fmadd_ps(f, g, *acc));
                }
            }
            add_lanes(acc)
        }
    };
}

/// The floats of the lanes that are set; the others are zero, and their memory is not read.
///
/// # Safety
/// A float for each lane that is set, and AVX-512 F.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn floats(lanes: __mmask16, from: *const f32) -> __m512 {
    // SAFETY: masked lanes are not read.
    unsafe { _mm512_maskz_loadu_ps(lanes, from) }
}

/// As `floats`, from binary16.
///
/// # Safety
/// A value for each lane that is set, and AVX-512 F, BW and VL.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn halves(lanes: __mmask16, from: *const u16) -> __m512 {
    // SAFETY: masked lanes are not read.
    _mm512_cvtph_ps(unsafe { _mm256_maskz_loadu_epi16(lanes, from.cast()) })
}

float_kernel!(l2_f32, f32, floats, |x, y| [_mm512_sub_ps(x, y); 2]);
float_kernel!(l2_f16, u16, halves, |x, y| [_mm512_sub_ps(x, y); 2]);
float_kernel!(ip_f32, f32, floats, |x, y| [x, y]);
float_kernel!(ip_f16, u16, halves, |x, y| [x, y]);

/// Defines a distance: the sum of the products of `$factors`, pair by pair and block by block.
macro_rules! integer_kernel {
    ($name:ident, $block:ident, $t:ty, $widen:ident, |$x:ident, $y:ident| $factors:expr) => {
        /// # Safety
        /// `len` components each, and AVX-512 F, BW and VL.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn $block(a: *const $t, b: *const $t, len: usize) -> i32 {
            let mut sums = [_mm512_setzero_si512(); 2];
            let whole = len - len % 64;
            let mut i = 0;
            while i < whole {
                for (r, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: i + 32 * r + 32 <= len.
                    let ($x, $y) = unsafe {
                        (
                            $widen(_mm256_loadu_si256(a.add(i + 32 * r).cast())),
                            $widen(_mm256_loadu_si256(b.add(i + 32 * r).cast())),
                        )
                    };
                    let [f, g] = $factors;
                    *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(f, g));
                }
                i += 64;
            }
            if whole < len {
                let mask = (1u64 << (len - whole)) - 1;
                for (r, sum) in sums.iter_mut().enumerate() {
                    let lanes = (mask >> (32 * r)) as __mmask32;
                    // SAFETY: masked lanes are not read.
                    let ($x, $y) = unsafe {
                        (
                            $widen(_mm256_maskz_loadu_epi8(lanes, a.wrapping_add(whole + 32 * r).cast())),
                            $widen(_mm256_maskz_loadu_epi8(lanes, b.wrapping_add(whole + 32 * r).cast())),
                        )
                    };
                    let [f, g] = $factors;
                    *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(f, g));
                }
            }
            _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
        }
        /// # Safety
        /// What `Kernels` says, and AVX-512 F, BW and VL.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn $name(a: *const $t, b: *const $t, dim: usize) -> f32 {
            in_blocks!(a, b, dim, $block)
        }
    };
}

integer_kernel!(l2_u8, l2_u8_block, u8, _mm512_cvtepu8_epi16, |x, y| [_mm512_sub_epi16(x, y); 2]);
integer_kernel!(l2_i8, l2_i8_block, i8, _mm512_cvtepi8_epi16, |x, y| [_mm512_sub_epi16(x, y); 2]);
integer_kernel!(ip_u8, ip_u8_block, u8, _mm512_cvtepu8_epi16, |x, y| [x, y]);
integer_kernel!(ip_i8, ip_i8_block, i8, _mm512_cvtepi8_epi16, |x, y| [x, y]);

/// # Safety
/// What `Kernels` says, and AVX-512 F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn widen_f16(codes: *const u16, dim: usize, out: *mut f32) {
    let mut j = 0;
    while j < dim {
        let lanes = ((1u32 << (dim - j).min(16)) - 1) as __mmask16;
        // SAFETY: masked lanes are neither read nor written.
        unsafe { _mm512_mask_storeu_ps(out.add(j), lanes, halves(lanes, codes.add(j))) };
        j += 16;
    }
}

portable_kernels!(#[target_feature(enable = "avx512f,avx512bw,avx512vl")]);
gather_kernels!(#[target_feature(enable = "avx512f,avx512bw,avx512vl")]);

/// Lane `l` of the sums is a register of 16 points here, so halves are added register by register.
///
/// # Safety
/// What `Kernels` says, and AVX-512 F.
#[target_feature(enable = "avx512f")]
unsafe fn least_l2_f32(query: *const f32, panels: *const [f32; FLOAT_PANEL], n_panels: usize, dim: usize) -> f32 {
    let mut least = _mm512_set1_ps(f32::INFINITY);
    for panel in 0..n_panels {
        let step = |i: usize, sum: __m512| {
            // SAFETY: i < dim, and a panel has `dim` components.
            let (x, points) = unsafe { (*query.add(i), _mm512_loadu_ps(panels.add(panel * dim + i).cast())) };
            let d = _mm512_sub_ps(_mm512_set1_ps(x), points);
            _mm512_fmadd_ps(d, d, sum)
        };
        let mut sums = [_mm512_setzero_ps(); 16];
        for (lane, sum) in sums.iter_mut().enumerate() {
            let (mut low, mut high) = (_mm512_setzero_ps(), _mm512_setzero_ps());
            let mut i = lane;
            while i + 16 < dim {
                (low, high) = (step(i, low), step(i + 16, high));
                i += 32;
            }
            if i < dim {
                low = step(i, low);
            }
            *sum = _mm512_add_ps(low, high);
        }
        let eight: [__m512; 8] = std::array::from_fn(|l| _mm512_add_ps(sums[l], sums[l + 8]));
        let four: [__m512; 4] = std::array::from_fn(|l| _mm512_add_ps(eight[l], eight[l + 4]));
        let two: [__m512; 2] = std::array::from_fn(|l| _mm512_add_ps(four[l], four[l + 2]));
        least = _mm512_min_ps(_mm512_add_ps(two[0], two[1]), least); // NaN is not the least
    }
    _mm512_reduce_min_ps(least)
}
