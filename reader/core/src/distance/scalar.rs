//! The portable level: plain loops that define what the other levels must return.

use super::convert::{half_to_f32, portable_kernels, widen_f16_portable as widen_f16};
use super::gather::gather_kernels;
use super::least::least_l2_f32_portable as least_l2_f32;
use super::level::{Kernels, in_blocks, kernels_of_module};

/// Kernels without any instruction-set requirement.
pub static KERNELS: Kernels = kernels_of_module!("scalar");

const LANES: usize = 32;

/// Adds the 32 lanes by halves.
fn add_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

macro_rules! float_kernel {
    ($name:ident, $t:ty, $widen:expr, |$x:ident, $y:ident, $lane:ident| $step:expr) => {
        /// # Safety
        /// What `Kernels` says.
        unsafe fn $name(a: *const f32, b: *const $t, dim: usize) -> f32 {
            let mut lanes = [0f32; LANES];
            for i in 0..dim {
                // SAFETY: i < dim.
                let ($x, $y) = unsafe { (*a.add(i), $widen(*b.add(i))) };
                let $lane = lanes[i % LANES];
                lanes[i % LANES] = $step;
            }
            add_lanes(lanes)
        }
    };
}

float_kernel!(l2_f32, f32, f32::from, |x, y, lane| (x - y).mul_add(x - y, lane));
float_kernel!(l2_f16, u16, half_to_f32, |x, y, lane| (x - y).mul_add(x - y, lane));
float_kernel!(ip_f32, f32, f32::from, |x, y, lane| x.mul_add(y, lane));
float_kernel!(ip_f16, u16, half_to_f32, |x, y, lane| x.mul_add(y, lane));

macro_rules! integer_kernel {
    ($name:ident, $block:ident, $t:ty, |$x:ident, $y:ident| $term:expr) => {
        /// # Safety
        /// `len` components each.
        unsafe fn $block(a: *const $t, b: *const $t, len: usize) -> i32 {
            let mut sum = 0i32;
            for i in 0..len {
                // SAFETY: i < len.
                let ($x, $y) = unsafe { (*a.add(i) as i32, *b.add(i) as i32) };
                sum += $term;
            }
            sum
        }
        /// # Safety
        /// What `Kernels` says.
        unsafe fn $name(a: *const $t, b: *const $t, dim: usize) -> f32 {
            in_blocks!(a, b, dim, $block)
        }
    };
}

integer_kernel!(l2_u8, l2_u8_block, u8, |x, y| (x - y) * (x - y));
integer_kernel!(l2_i8, l2_i8_block, i8, |x, y| (x - y) * (x - y));
integer_kernel!(ip_u8, ip_u8_block, u8, |x, y| x * y);
integer_kernel!(ip_i8, ip_i8_block, i8, |x, y| x * y);

portable_kernels!();
gather_kernels!();
