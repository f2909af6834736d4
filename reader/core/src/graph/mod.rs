//! An index of kind "graph": nodes in pages on disk, searched by four policies for the k nearest vertices or all within
//! a radius.

mod answers;
mod cache;
pub mod codes;
pub mod entries;
pub mod file;
pub mod filter;
mod hops;
mod index;
pub mod navigation;
mod nodes;
mod page_heap;
mod params;
mod pipeline;
mod plan;
mod query;
pub(crate) mod remap;
mod results;
mod search;
mod trace;
mod traversal;

pub use cache::Cache;
pub use filter::Filter;
pub use index::Index;
pub use params::{Entry, Policy, SearchParams};
pub use search::{Counters, RangeOutput, SearchOutput};
pub use trace::{Event, EventKind, NO_SLOT, Trace};
