//! Opens, verifies and searches indexmill index directories.
//!
//! The crate depends on the format specification (`docs/formats`) alone and never on Python: it is the second
//! decoder of that specification. Nothing read from a file is trusted: sizes are compared with the file before
//! anything is allocated, every page is checked against its CRC32C when it is read, and bad bytes give an
//! [`Error`], never a panic and never a wrong answer.
//!
//! [`Index::open`] is cheap, [`Index::search`] reads a few pages a query, [`verify::verify`] reads everything.

#[cfg(target_endian = "big")]
compile_error!("indexmill files are little-endian and this reader maps them without swapping bytes");

mod bytes;
mod checksum;
pub mod codes;
pub mod device;
pub mod distance;
pub mod engine;
pub mod entries;
pub mod error;
mod file_id;
pub mod filter;
pub mod graph;
pub mod ids;
pub mod index;
pub mod lsh;
pub mod manifest;
mod memory;
mod metric;
pub mod navigation;
mod nodes;
pub mod pagefile;
mod random;
mod region;
pub mod remap;
pub mod search;
mod stored;
pub mod verify;

pub use error::{Error, Result};
pub use index::Index;
pub use lsh::LshIndex;

#[cfg(test)]
extern crate self as indexmill_core; // what the writers of test indexes call it
#[cfg(test)]
mod testing;
