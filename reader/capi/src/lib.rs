//! The reader for C and everything that calls C: whole queries, never single distances.
//!
//! Every function catches panics, returns a negative errno-like code on failure and leaves a message for
//! [`error::im_last_error`]. The ABI changes only together with [`IM_ABI_VERSION`].
//!
//! The modules stand in the order in which their functions appear in the header.

pub mod error;
mod opened;
mod pointers;
mod structures;

pub mod index;
pub mod info;

pub mod cancel;
pub mod params;

pub mod counters;
pub mod search;

pub mod range;

pub mod find;
pub mod ids;
pub mod texts;

pub mod filter;

pub mod cache;
pub mod stats;

/// Version of this interface: structures, codes and functions. It is raised by every change after which a program must
/// be compiled again, and is the number at the end of the library's name (libindexmill.so.3).
pub const IM_ABI_VERSION: u32 = 3;

/// Returns IM_ABI_VERSION of the library in use; compare it with the header's.
///
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn im_abi_version() -> u32 {
    IM_ABI_VERSION
}
