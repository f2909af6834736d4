//! Opens, verifies and searches indexmill index directories.
//!
//! The crate depends on the format specification (`docs/formats`) alone and never on Python: it is the second
//! decoder of that specification. Nothing read from a file is trusted: sizes are compared with the file before
//! anything is allocated, memory is used as pages arrive and pass their checksums ([`pagefile`]), every page is checked
//! against its CRC32C when it is read, and bad bytes give an [`Error`], never a panic and never a wrong answer.
//!
//! One thing is left out of that promise. A search of hash tables on storage reads a sector of pointers, not the page
//! that has a checksum, and checks a pointer by the tag of the block that it leads to. Damage that leads to a block of
//! another bucket is found with probability 1 - 2^-16, and damage that leads to a later block of the same chain is not:
//! the search then misses vectors. [`verify::verify`] finds both, and so does opening an index with its tables in memory.
//!
//! [`Index::open`] is cheap, [`Index::search`] reads a few pages a query, [`verify::verify`] reads everything.
//!
//! # Searching a graph
//!
//! Hand over many queries at once: each thread interleaves `inflight` of them, so that one computes while others wait
//! for the device. An open index is searched from any number of threads; where they are more than processors, threads of
//! the index answer their queries together. [`Index::search_later`] returns at once and calls back;
//! [`Index::search_unless`] asks its caller now and then whether to go on.
//!
//! ```
//! use std::path::Path;
//!
//! use indexmill_core::graph::SearchParams;
//! use indexmill_core::ids::UserIds;
//! use indexmill_core::search::{Queries, Values};
//! use indexmill_core::{Index, Result};
//!
//! /// Ids and scores of the three vectors nearest to one query.
//! fn nearest(directory: &Path, query: &[f32]) -> Result<Vec<(i64, f32)>> {
//!     let index = Index::open(directory, "auto")?;
//!     let queries = Queries { values: Values::Float32(query), n: 1, dim: query.len() };
//!     let params = SearchParams::new(3).list_size(10);
//!     let found = index.search(&queries, &params)?;
//!     let ids = match found.user_ids {
//!         UserIds::Int64(ids) => ids,
//!         _ => found.vector_ids, // positions in the input: it has no ids, or ids of another type
//!     };
//!     // Slot -1 stands where fewer than k vertices were reachable.
//!     let answers = ids.into_iter().zip(found.scores).zip(found.slots);
//!     Ok(answers.filter(|&(_, slot)| slot >= 0).map(|(answer, _)| answer).collect())
//! }
//! # let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/v1_3");
//! # let found = nearest(&golden, &[1.0, -2.0, 0.5, 3.0, 1.0]).unwrap();
//! # assert_eq!(found.len(), 3);
//! # assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1), "the largest inner product comes first");
//! ```
//!
//! # Searching hash tables
//!
//! ```
//! use std::path::Path;
//!
//! use indexmill_core::lsh::{InMemory, LshParams};
//! use indexmill_core::search::{Queries, Values};
//! use indexmill_core::{LshIndex, Result};
//!
//! /// Slots (of this kind of index, positions in the input) and squared distances of two near vectors.
//! fn near(directory: &Path, query: &[u8]) -> Result<(Vec<i64>, Vec<f32>)> {
//!     let index = LshIndex::open(directory, "auto", InMemory::default())?;
//!     let queries = Queries { values: Values::Uint8(query), n: 1, dim: query.len() };
//!     let params = LshParams::new(2);
//!     let found = index.search(&queries, &params)?;
//!     Ok((found.slots, found.scores))
//! }
//! # let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/v1_3_lsh");
//! # let (slots, scores) = near(&golden, &[10, 20, 30]).unwrap();
//! # assert_eq!((slots.len(), scores.len()), (2, 2));
//! ```
//!
//! # Errors
//!
//! A message says what failed, where, what was expected and found, and what to do; the variant says of what kind it is,
//! [`Error::path`] and [`Error::page`] where it is.
//!
//! ```
//! use std::path::Path;
//!
//! use indexmill_core::Index;
//!
//! let error = Index::open(Path::new("/nowhere/index"), "auto").err().unwrap();
//! assert!(error.to_string().contains("/nowhere/index"));
//! assert!(error.path().unwrap().starts_with("/nowhere/index"));
//! ```
//!
//! # Checking every byte
//!
//! ```
//! use std::path::Path;
//!
//! # let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/v1_3");
//! for damage in indexmill_core::verify::verify(&directory) {
//!     eprintln!("{damage}");
//! }
//! # assert!(indexmill_core::verify::verify(&directory).is_empty());
//! ```

#[cfg(target_endian = "big")]
compile_error!("indexmill files are little-endian and this reader maps them without swapping bytes");

mod bytes;
mod checksum;
mod code_table;
pub mod codes;
pub mod device;
pub mod directory;
pub mod distance;
pub mod engine;
pub mod error;
mod file_id;
mod files;
pub mod graph;
pub mod ids;
mod interrupt;
pub mod ivf;
pub mod living;
pub mod lsh;
pub mod manifest;
mod memory;
pub mod metric;
pub mod pagefile;
mod random;
pub mod search;
pub mod stored;
pub mod vectors;
pub mod verify;

pub use error::{Error, Result};
pub use graph::Index;
pub use ivf::IvfIndex;
pub use lsh::LshIndex;
pub use metric::Metric;
pub use stored::Dtype;

#[cfg(test)]
extern crate self as indexmill_core; // what the writers of test indexes call it
#[cfg(test)]
#[path = "../tests/all/common/mod.rs"]
#[allow(unreachable_pub)]
mod common;
#[cfg(test)]
mod testing;
