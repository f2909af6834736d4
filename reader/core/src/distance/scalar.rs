//! The portable level: plain loops that define what the other levels must return.

use super::gather::gather_kernel;
use super::{Kernels, convert, in_blocks};

/// Kernels without any instruction-set requirement.
pub static KERNELS: Kernels = Kernels {
    name: "scalar",
    l2_f32,
    l2_u8,
    l2_i8,
    ip_f32,
    ip_u8,
    gather_l2_f32,
    gather_l2_u8,
    widen_f16: convert::widen_f16_portable,
    unscale_u8: convert::unscale_portable::<u8>,
    unscale_u16: convert::unscale_portable::<u16>,
    add_squares: convert::add_squares_portable,
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

unsafe fn l2_f32(a: *const f32, b: *const f32, dim: usize) -> f32 {
    let mut lanes = [0f32; LANES];
    for i in 0..dim {
        // SAFETY: i < dim.
        let d = unsafe { *a.add(i) - *b.add(i) };
        lanes[i % LANES] = d.mul_add(d, lanes[i % LANES]);
    }
    add_lanes(lanes)
}

unsafe fn ip_f32(a: *const f32, b: *const f32, dim: usize) -> f32 {
    let mut lanes = [0f32; LANES];
    for i in 0..dim {
        // SAFETY: i < dim.
        lanes[i % LANES] = unsafe { (*a.add(i)).mul_add(*b.add(i), lanes[i % LANES]) };
    }
    add_lanes(lanes)
}

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

gather_kernel!(gather_l2_f32, l2_f32, f32);
gather_kernel!(gather_l2_u8, l2_u8, u8);
