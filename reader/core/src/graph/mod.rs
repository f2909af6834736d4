//! An index of kind "graph": nodes in pages on disk, searched by four policies for the k nearest vertices or all within
//! a radius.
//!
//! | file | one idea |
//! |---|---|
//! | `file`, `entries`, `navigation` | one file kind each (codes.imx is also read for other kinds: `codes` at the top) |
//! | `index` | an opened index; `in_use`, its cache, which may be replaced |
//! | `params`, `filter` | what a caller can choose |
//! | `results`, `trace` | what a caller gets |
//! | `shared` | what the queries of one search share |
//! | `query` | one query as a state machine; `hops` and `pipeline` choose its reads |
//! | `apart` | its end, where exact vectors lie apart from the nodes |
//! | `walk` | the steps of which policies are made, over its `traversal` (`lists` of candidates, results), `page_heap` and `cache` (blocks) |
//! | `search` | a block of queries on all threads |
//! | `remap`, `nodes` | views of an index in other orders: pages composed of nodes in memory |

mod apart;
mod cache;
pub mod entries;
pub mod file;
mod filter;
mod hops;
mod in_use;
mod index;
pub mod navigation;
mod nodes;
mod page_heap;
mod params;
mod pipeline;
mod query;
mod remap;
mod results;
mod search;
mod shared;
mod trace;
mod walk;

pub use cache::Cache;
pub use file::Graph;
pub use filter::Filter;
pub use index::Index;
pub use params::{Entry, MAX_BEAM_WIDTH, Policy, SearchParams};
pub use results::{Counters, RangeOutput, SearchOutput};
pub use trace::{Event, EventKind, NO_SLOT, Trace};
