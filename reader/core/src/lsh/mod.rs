//! An index of kind "lsh": E2LSH on storage (Nakanishi et al., EDBT 2023).
//!
//! | file | one idea |
//! |---|---|
//! | `functions`, `tables`, `buckets` | one file kind each (vectors.imx is also read for other kinds: `vectors` at the top) |
//! | `files` | which files of an index a search reads |
//! | `covered`, `pair` | which slots tables and buckets cover; the one or two pairs of files of an index |
//! | `index` | an opened index |
//! | `params` | what a caller can choose |
//! | `shared` | what the queries of one search share, and what one of them costs |
//! | `query` | one query as a state machine: `lookup` finds candidates, `measure` measures them |
//! | `probing` | which further buckets of a table are worth a look (Lv et al., VLDB 2007) |
//! | `met` | the set of vectors that a query met |
//! | `search` | a block of queries on all threads |

pub mod buckets;
pub mod covered;
mod files;
pub mod functions;
mod index;
mod lookup;
mod measure;
mod met;
mod pair;
mod params;
mod probing;
mod query;
mod search;
mod shared;
pub mod tables;

pub use index::{InMemory, LshIndex, LshMemory};
pub use pair::Pair;
pub use params::LshParams;
pub use search::LshOutput;
pub use shared::LshCounters;

#[cfg(test)]
mod tests;
