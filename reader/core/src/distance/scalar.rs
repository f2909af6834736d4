//! The portable level: plain loops that define what the other levels must return.

use super::gather::gather_kernels;
use super::level::{Kernels, in_blocks};
use super::{convert, least};

/// Kernels without any instruction-set requirement.
pub static KERNELS: Kernels = Kernels {
    name: "scalar",
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
    widen_f16: convert::widen_f16_portable,
    unscale_u8: convert::unscale_portable::<u8>,
    unscale_u16: convert::unscale_portable::<u16>,
    add_squares: convert::add_squares_portable,
    least_l2_f32: least::least_l2_f32_portable,
};

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
float_kernel!(l2_f16, u16, convert::half_to_f32, |x, y, lane| (x - y).mul_add(x - y, lane));
float_kernel!(ip_f32, f32, f32::from, |x, y, lane| x.mul_add(y, lane));
float_kernel!(ip_f16, u16, convert::half_to_f32, |x, y, lane| x.mul_add(y, lane));

macro_rules! integer_kernel {
    ($name:ident, $block:ident, $t:ty, |$x:ident, $y:ident| $term:expr) => {
        unsafe fn $block(a: *const $t, b: *const $t, len: usize) -> i32 {
            let mut sum = 0i32;
            for i in 0..len {
                // SAFETY: i < len.
                let ($x, $y) = unsafe { (*a.add(i) as i32, *b.add(i) as i32) };
                sum += $term;
            }
            sum
        }
        unsafe fn $name(a: *const $t, b: *const $t, dim: usize) -> f32 {
            in_blocks!(a, b, dim, $block)
        }
    };
}

integer_kernel!(l2_u8, l2_u8_block, u8, |x, y| (x - y) * (x - y));
integer_kernel!(l2_i8, l2_i8_block, i8, |x, y| (x - y) * (x - y));
integer_kernel!(ip_u8, ip_u8_block, u8, |x, y| x * y);
integer_kernel!(ip_i8, ip_i8_block, i8, |x, y| x * y);

gather_kernels!();
