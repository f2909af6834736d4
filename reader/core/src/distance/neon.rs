//! The NEON level, which every 64-bit ARM CPU has.

use std::arch::aarch64::*;
use std::arch::asm;

use super::convert::{self, portable_kernels};
use super::gather::gather_kernels;
use super::least;
use super::level::{FLOAT_PANEL, Kernels, in_blocks, kernels_of_module};

/// Kernels for 64-bit ARM.
pub static KERNELS: Kernels = kernels_of_module!("neon");

/// Floats of one turn of the loop: eight registers of four.
const TURN: usize = 32;

/// Adds lanes by halves: register r holds lanes 4r..4r + 4.
#[inline]
#[target_feature(enable = "neon")]
fn add_lanes(acc: [float32x4_t; 8]) -> f32 {
    let sixteen = [0, 1, 2, 3].map(|r| vaddq_f32(acc[r], acc[r + 4]));
    let eight = [0, 1].map(|r| vaddq_f32(sixteen[r], sixteen[r + 2]));
    let four = vaddq_f32(eight[0], eight[1]);
    vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
}

/// The first `n` of four floats, zero beyond them.
///
/// # Safety
/// `n` floats, at most 4.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn first_floats(floats: *const f32, n: usize) -> float32x4_t {
    let mut four = [0f32; 4];
    // SAFETY: the caller vouches for n floats, and n is at most 4.
    unsafe {
        std::ptr::copy_nonoverlapping(floats, four.as_mut_ptr(), n);
        vld1q_f32(four.as_ptr())
    }
}

/// Mask with the first `n` of four lanes set.
#[inline]
#[target_feature(enable = "neon")]
fn first_lanes(n: usize) -> uint32x4_t {
    const LANES: [u32; 4] = [0, 1, 2, 3];
    // SAFETY: four integers.
    vcltq_u32(unsafe { vld1q_u32(LANES.as_ptr()) }, vdupq_n_u32(n as u32))
}

/// Defines a distance: the sum of the products of `$factors`, lane by lane.
macro_rules! float_kernel {
    ($name:ident, $t:ty, $load:ident, $load_first:ident, |$x:ident, $y:ident| $factors:expr) => {
        /// # Safety
        /// What `Kernels` says.
        #[inline]
        #[target_feature(enable = "neon")]
        unsafe fn $name(a: *const f32, b: *const $t, dim: usize) -> f32 {
            let mut acc = [vdupq_n_f32(0.0); 8];
            let whole = dim - dim % TURN;
            let mut i = 0;
            while i < whole {
                for (r, acc) in acc.iter_mut().enumerate() {
                    // SAFETY: i + 4 * r + 4 <= i + 32 <= dim.
                    let ($x, $y) = unsafe { (vld1q_f32(a.add(i + 4 * r)), $load(b.add(i + 4 * r))) };
                    let [f, g] = $factors;
                    *acc = vfmaq_f32(*acc, f, g);
                }
                i += TURN;
            }
            for (r, acc) in acc.iter_mut().enumerate().take((dim - whole).div_ceil(4)) {
                let at = whole + 4 * r;
                let lanes = (dim - at).min(4);
                // SAFETY: at + lanes <= dim.
                let ($x, $y) = unsafe { (first_floats(a.add(at), lanes), $load_first(b.add(at), lanes)) };
                let [f, g] = $factors;
                *acc = vbslq_f32(first_lanes(lanes), vfmaq_f32(*acc, f, g), *acc);
            }
            add_lanes(acc)
        }
    };
}

float_kernel!(l2_f32, f32, vld1q_f32, first_floats, |x, y| [vsubq_f32(x, y); 2]);
float_kernel!(l2_f16, u16, halves, first_halves, |x, y| [vsubq_f32(x, y); 2]);
float_kernel!(ip_f32, f32, vld1q_f32, first_floats, |x, y| [x, y]);
float_kernel!(ip_f16, u16, halves, first_halves, |x, y| [x, y]);

/// Defines a distance: the sum of the products of `$factors`, pair by pair and block by block.
macro_rules! integer_kernel {
    ($name:ident, $block:ident, $t:ty, $load:ident, |$x:ident, $y:ident| $factors:expr, |$p:ident, $q:ident| $rest:expr) => {
        /// # Safety
        /// `len` components each.
        #[inline]
        #[target_feature(enable = "neon")]
        unsafe fn $block(a: *const $t, b: *const $t, len: usize) -> i32 {
            let mut sums = [vdupq_n_u32(0); 2];
            let whole = len - len % 16;
            let mut i = 0;
            while i < whole {
                // SAFETY: i + 16 <= len.
                let ($x, $y) = unsafe { ($load(a.add(i)), $load(b.add(i))) };
                let [f, g] = $factors;
                // A product is at most 255 * 255 and fits 16 bits; pairs of them are added in 32.
                sums[0] = vpadalq_u16(sums[0], vmull_u8(vget_low_u8(f), vget_low_u8(g)));
                sums[1] = vpadalq_u16(sums[1], vmull_high_u8(f, g));
                i += 16;
            }
            let mut total = vaddvq_u32(vaddq_u32(sums[0], sums[1])) as i32;
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
        /// What `Kernels` says.
        #[inline]
        #[target_feature(enable = "neon")]
        unsafe fn $name(a: *const $t, b: *const $t, dim: usize) -> f32 {
            in_blocks!(a, b, dim, $block)
        }
    };
}

integer_kernel!(l2_u8, l2_u8_block, u8, vld1q_u8, |x, y| [vabdq_u8(x, y); 2], |p, q| [p - q; 2]);
// Up to 255, so the bits are those of an unsigned byte.
integer_kernel!(l2_i8, l2_i8_block, i8, vld1q_s8, |x, y| [vreinterpretq_u8_s8(vabdq_s8(x, y)); 2], |p, q| [p - q; 2]);
integer_kernel!(ip_u8, ip_u8_block, u8, vld1q_u8, |x, y| [x, y], |p, q| [p, q]);

/// # Safety
/// `len` components each.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn ip_i8_block(a: *const i8, b: *const i8, len: usize) -> i32 {
    let mut sums = [vdupq_n_s32(0); 2];
    let whole = len - len % 16;
    let mut i = 0;
    while i < whole {
        // SAFETY: i + 16 <= len.
        let (x, y) = unsafe { (vld1q_s8(a.add(i)), vld1q_s8(b.add(i))) };
        // A product is at most 128 * 128 and fits 16 bits; pairs of them are added in 32.
        sums[0] = vpadalq_s16(sums[0], vmull_s8(vget_low_s8(x), vget_low_s8(y)));
        sums[1] = vpadalq_s16(sums[1], vmull_high_s8(x, y));
        i += 16;
    }
    let mut total = vaddvq_s32(vaddq_s32(sums[0], sums[1]));
    while i < len {
        // SAFETY: i < len.
        total += unsafe { *a.add(i) as i32 * *b.add(i) as i32 };
        i += 1;
    }
    total
}

/// # Safety
/// What `Kernels` says.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn ip_i8(a: *const i8, b: *const i8, dim: usize) -> f32 {
    in_blocks!(a, b, dim, ip_i8_block)
}

/// FCVTL, whose intrinsic is not in stable Rust.
#[inline]
#[target_feature(enable = "neon")]
fn widen_four(halves: uint16x4_t) -> float32x4_t {
    let floats: float32x4_t;
    // SAFETY: the instruction reads and writes the two registers alone.
    unsafe {
        asm!("fcvtl {floats:v}.4s, {halves:v}.4h", floats = lateout(vreg) floats, halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags));
    }
    floats
}

/// Four floats from binary16.
///
/// # Safety
/// Four values.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn halves(from: *const u16) -> float32x4_t {
    // SAFETY: the caller vouches for four values.
    widen_four(unsafe { vld1_u16(from) })
}

/// The first `n` of four floats from binary16, zero beyond them.
///
/// # Safety
/// `n` values, at most 4.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn first_halves(from: *const u16, n: usize) -> float32x4_t {
    let mut four = [0u16; 4];
    // SAFETY: the caller vouches for n values, at most four.
    unsafe {
        std::ptr::copy_nonoverlapping(from, four.as_mut_ptr(), n);
        halves(four.as_ptr())
    }
}

/// # Safety
/// What `Kernels` says.
#[target_feature(enable = "neon")]
unsafe fn widen_f16(codes: *const u16, dim: usize, out: *mut f32) {
    let whole = dim - dim % 4;
    let mut j = 0;
    while j < whole {
        // SAFETY: j + 4 <= dim.
        unsafe { vst1q_f32(out.add(j), halves(codes.add(j))) };
        j += 4;
    }
    // SAFETY: the rest of the same arrays.
    unsafe { convert::widen_f16_portable(codes.add(whole), dim - whole, out.add(whole)) };
}

portable_kernels!(#[target_feature(enable = "neon")]);
gather_kernels!(#[target_feature(enable = "neon")]);

/// # Safety
/// What `Kernels` says.
#[target_feature(enable = "neon")]
unsafe fn least_l2_f32(query: *const f32, panels: *const [f32; FLOAT_PANEL], n_panels: usize, dim: usize) -> f32 {
    // SAFETY: the caller's contract is the same.
    unsafe { least::least_l2_f32_portable(query, panels, n_panels, dim) }
}
