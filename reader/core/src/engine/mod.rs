//! Reading blocks of an index's files behind one trait, `Engine`.
//!
//! | file | engine |
//! |---|---|
//! | `uring.rs`, `ring.rs` | io_uring, also with a polling thread of the kernel (SQPOLL) |
//! | `pread.rs` | a pool of threads that call pread |
//! | `synchronous.rs`, `mapping.rs` | one block after the other: from a map of the file, or from pages composed in memory |
//! | `simulated.rs`, `profile.rs` | a modelled device |
//! | `ranges.rs`, `fetcher.rs`, `store.rs`, `answer.rs`, `aligned.rs`, `disk.rs` | requests for ranges of objects in a store, such as a bucket |
//!
//! `choice.rs` picks one by name, `source.rs` is for searches of what may be in memory, and `progress.rs` decides what the
//! result of a read means.

mod aligned;
mod answer;
mod buffers;
mod choice;
mod contract;
mod disk;
mod fetcher;
mod file;
mod mapping;
mod pread;
mod profile;
mod progress;
mod ranges;
#[cfg(target_os = "linux")]
mod ring;
mod simulated;
mod source;
mod store;
mod synchronous;
#[cfg(target_os = "linux")]
mod uring;

pub use answer::Refusal;
pub use choice::{EngineChoice, Reading};
pub use fetcher::Fetcher;
pub use profile::{Model, Profile};
pub use store::{Limits, Range, Reply, Store, Traffic};

pub(crate) use contract::{Engine, Finished};
pub(crate) use file::{Access, DataFile};
pub(crate) use source::{MEMORY, Source, Start, Storage};
pub(crate) use synchronous::Fill;

#[cfg(test)]
mod tests;
