//! An index of kind "ivf": inverted lists in page-aligned batches, probed query by query (docs/formats/ivf.md).
//!
//! | file | one idea |
//! |---|---|
//! | `centroids`, `batch` | one file kind each (vectors.imx is also read for other kinds: `vectors` at the top) |
//! | `index` | an opened index |
//! | `params` | what a caller can choose |
//! | `shared` | what the queries of one search share, and what one of them costs |
//! | `query` | one query as a state machine: `lists` scans what it probes, `rerank` measures candidates exactly |
//! | `cells` | which lists a query probes |
//! | `pieces` | the reads that a list takes |
//! | `rows` | distances to the rows of a list; `rabitq` those of its codes |
//! | `best` | the nearest so far, copies once |
//! | `search` | a block of queries on all threads |

pub mod batch;
mod best;
mod cells;
pub mod centroids;
mod index;
mod lists;
mod params;
mod pieces;
mod query;
mod rabitq;
mod rerank;
mod rows;
mod search;
mod shared;

pub use index::{IvfIndex, IvfMemory};
pub use params::IvfParams;
pub use search::IvfOutput;
pub use shared::IvfCounters;
