//! One function for each parser of the reader, from the bytes of a fuzzer to a verdict.
//!
//! Whatever the bytes, the reader must return: an answer, or an error that names the file. A target panics where it
//! does neither, where an answer breaks its contract, or where it accepts what `verify` should have refused.
//! `fuzz_targets/` runs the functions under libFuzzer, `tests/replay` runs them on stable Rust over the committed
//! seeds and a fixed number of mutations of them. Inputs are described in [`input`].
//!
//! A new parser takes: its function here or beside [`files`], a row in [`TARGETS`], its seeds in [`seeds`], a file in
//! `fuzz_targets/` and a `[[bin]]` in Cargo.toml; a test compares the four lists.

#[path = "../../core/tests/all/common/mod.rs"]
#[allow(clippy::should_implement_trait)] // public here: `Random::next` is no iterator's
mod common;

mod directory;
mod files;
pub mod input;
mod ivf;
mod lsh;
mod queries;
mod seal;
pub mod seeds;

use indexmill_core::Result;

pub use common::Random;
pub use directory::{search, verify};
pub use files::{codes, deleted, entries, graph, ids, manifest, navigation, profile};
pub use ivf::{centroids, ivf};
pub use lsh::{functions, lsh, vectors};

/// A parser under test.
pub struct Target {
    /// Name of the binary in `fuzz_targets/` and of the folder in `seeds/`.
    pub name: &'static str,
    /// Whether the parser accepted the input; panics where it misbehaved.
    pub run: fn(&[u8]) -> Result<()>,
    /// Mutations that the replay tries; a directory takes ten times as long as a file.
    pub mutations: usize,
}

/// Every target.
pub const TARGETS: [Target; 15] = [
    Target { name: "manifest", run: manifest, mutations: 4000 },
    Target { name: "graph", run: graph, mutations: 4000 },
    Target { name: "codes", run: codes, mutations: 4000 },
    Target { name: "entries", run: entries, mutations: 4000 },
    Target { name: "ids", run: ids, mutations: 4000 },
    Target { name: "navigation", run: navigation, mutations: 4000 },
    Target { name: "profile", run: profile, mutations: 4000 },
    Target { name: "verify", run: verify, mutations: 400 },
    Target { name: "search", run: search, mutations: 400 },
    Target { name: "functions", run: functions, mutations: 4000 },
    Target { name: "vectors", run: vectors, mutations: 4000 },
    Target { name: "lsh", run: lsh, mutations: 600 },
    Target { name: "centroids", run: centroids, mutations: 4000 },
    Target { name: "ivf", run: ivf, mutations: 600 },
    Target { name: "deleted", run: deleted, mutations: 4000 },
];
