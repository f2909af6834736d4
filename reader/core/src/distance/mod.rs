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
mod level;
mod lookup;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod prune;
mod scalar;

use std::sync::OnceLock;

pub use convert::half_to_f32;
pub use gather::{prefetch_line, prefetch_row};
pub use level::{FLOAT_PANEL, Gather, Kernels, Pair, Unscale, Widen};
pub use lookup::{TABLE_WIDTH, score_codes};

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

#[cfg(test)]
mod tests;
