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
pub mod centres;
mod convert;
mod encode;
mod floors;
mod gather;
mod least;
mod level;
mod lookup;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod prune;
mod scalar;
mod unit;

pub use convert::half_to_f32;
pub use floors::Floors;
pub use gather::{prefetch_line, prefetch_row};
pub use level::{FLOAT_PANEL, Gather, Kernels, Pair, Unscale, Widen};
pub use lookup::{TABLE_WIDTH, score_codes};
pub use unit::{Unit, available, kernels, products, unit};

#[cfg(test)]
mod tests;
