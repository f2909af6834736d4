//! The reader for C and everything that calls C: whole queries, never single distances.
//!
//! Every function catches panics, returns a negative errno-like code on failure and leaves a message for
//! [`error::im_last_error`]. The ABI changes only together with [`IM_ABI_VERSION`].

pub mod error;
pub mod ids;
pub mod index;
pub mod search;

/// Version of this interface: structures, codes and functions.
pub const IM_ABI_VERSION: u32 = 1;

/// Returns IM_ABI_VERSION of the library in use; compare it with the header's. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn im_abi_version() -> u32 {
    IM_ABI_VERSION
}
