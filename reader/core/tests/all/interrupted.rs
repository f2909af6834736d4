//! Long calls end once their callers want to, at every step.

use std::path::Path;

use crate::common::ivf::{IvfSpec, write_ivf};
use crate::common::lsh::{LshSpec, write_lsh};
use crate::common::{Spec, UINT8, write_index};
use indexmill_core::lsh::InMemory;
use indexmill_core::verify::verify_unless;
use indexmill_core::{Error, Index, IvfIndex, LshIndex, Result};

/// What `call` returns to a caller who goes on; that it ends for one who does not, whenever it asks, which it does more
/// than `n` times.
fn interrupted_everywhere<T>(n: usize, call: impl Fn(&mut dyn FnMut() -> bool) -> Result<T>) -> T {
    let mut asked = 0;
    let returned = call(&mut || {
        asked += 1;
        false
    });
    assert!(asked > n, "asked {asked} times");
    for last in 1..=asked {
        let mut left = last;
        let ended = call(&mut || {
            left -= 1;
            left == 0
        });
        assert!(matches!(ended, Err(Error::Interrupted)), "{last} of {asked}");
    }
    returned.unwrap()
}

#[test]
fn opening_an_index_of_any_kind() {
    let graph = write_index(Spec { n: 300, ..Spec::default() });
    let index = interrupted_everywhere(5, |stop| Index::open_unless(graph.path(), "pread", stop));
    assert_eq!(index.graph.layout().n_vertices, 300);
    let coded = write_index(Spec { n: 300, n_sample: 0, with_codes: true, ..Spec::default() });
    interrupted_everywhere(5, |stop| Index::open_unless(coded.path(), "pread", stop));
    let lists = write_ivf(IvfSpec { n: 60, ..IvfSpec::default() });
    interrupted_everywhere(5, |stop| IvfIndex::open_unless(lists.path(), "memory", stop));
    let tables = write_lsh(LshSpec::default());
    interrupted_everywhere(5, |stop| LshIndex::open_unless(tables.path(), "memory", InMemory::default(), stop));
}

#[test]
fn opening_codes_that_may_name_no_centre() {
    let asked = |n| {
        let (written, mut asked) = (write_index(Spec { n, ..Spec::default() }), 0);
        let mut count = || {
            asked += 1;
            false
        };
        Index::open_unless(written.path(), "pread", &mut count).unwrap();
        asked
    };
    assert_eq!(asked(255), asked(256) + 1, "256 centres have the names that codes can have");
}

#[test]
fn verifying_an_index_of_any_kind() {
    let graph = write_index(Spec { n: 300, ..Spec::default() });
    assert!(interrupted_everywhere(10, |stop| verify_unless(graph.path(), stop)).is_empty());
    let coded = write_index(Spec { n: 300, n_sample: 0, with_codes: true, ..Spec::default() });
    assert!(interrupted_everywhere(10, |stop| verify_unless(coded.path(), stop)).is_empty());
    let lists = write_ivf(IvfSpec { n: 60, ..IvfSpec::default() });
    assert!(interrupted_everywhere(10, |stop| verify_unless(lists.path(), stop)).is_empty());
    let tables = write_lsh(LshSpec::default());
    assert!(interrupted_everywhere(10, |stop| verify_unless(tables.path(), stop)).is_empty());
}

/// How often a verification of a sound index asks.
fn asked_by_verify(path: &Path) -> usize {
    let mut asked = 0;
    let damages = verify_unless(path, &mut || {
        asked += 1;
        false
    });
    assert_eq!(damages.unwrap(), [""; 0]);
    asked
}

#[test]
fn verifying_within_a_large_table_chain_batch_list_or_navigation_graph() {
    // Many times as many buckets as are taken without a question: their file of 8 MiB alone is asked for 8 times.
    let tables = |hash_bits| {
        asked_by_verify(write_lsh(LshSpec { n_tables: 1, n_radii: 1, hash_bits, ..LshSpec::default() }).path())
    };
    assert!(tables(20) - tables(16) > 15);
    let lists =
        |n_lists| asked_by_verify(write_ivf(IvfSpec { n: 60, n_lists, n_batches: 1, ..IvfSpec::default() }).path());
    assert!(lists(4096) - lists(1024) >= 3);
    // A list of many vectors, and chains of many blocks. Files, vectors and ids are read in few pieces of 1 MiB.
    let vectors = |n| asked_by_verify(write_ivf(IvfSpec { n, n_lists: 1, n_batches: 1, ..IvfSpec::default() }).path());
    assert!(vectors(50_000) - vectors(60) >= 8);
    let entries = |n| {
        let spec = LshSpec { n, dim: 2, dtype: UINT8, n_tables: 8, n_radii: 1, hash_bits: 2, ..LshSpec::default() };
        asked_by_verify(write_lsh(spec).path())
    };
    assert!(entries(60_000) - entries(600) >= 14);
    let sample = |n_sample| asked_by_verify(write_index(Spec { n: 3000, n_sample, ..Spec::default() }).path());
    assert!(sample(3000) - sample(1000) >= 2);
}
