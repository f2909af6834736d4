//! Tests of the crate from outside, one program: each program of its own would cost seconds of linking.

mod cache;
mod common;
mod damage;
mod deleted;
mod device;
mod exchanged;
mod filter;
#[cfg(target_os = "linux")]
mod forbidden_ring;
mod ids;
mod interrupted;
mod ivf_damage;
mod lsh;
mod navigation;
mod nodes;
mod policies;
mod range;
mod refused;
mod remapped;
mod search;
mod sparse;
mod trace;
mod unit;
