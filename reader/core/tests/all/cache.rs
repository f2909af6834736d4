//! The cache of hot pages: how much it takes, what it saves, and what it must not change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::searches::{POLICIES, params, range_search, same_answers, search, with_queries};
use crate::common::{Spec, write_index};
use indexmill_core::graph::{Cache, Policy};
use indexmill_core::{Error, Index, Result};

/// Bytes that a cached block takes besides itself.
const DIRECTORY_BYTES: usize = 8;

fn fill(written: &crate::common::Written, index: &Index, trained: bool, bytes: usize) -> Result<Arc<Cache>> {
    if !trained {
        return index.cache_around_entries(bytes);
    }
    with_queries(written, 50, |queries| index.cache_from_queries(queries, &params(1, 30, Policy::Page), bytes))
}

#[test]
fn a_cache_takes_as_many_whole_blocks_as_fit_and_no_byte_more() {
    for (n, dim) in [(1000, 12), (30, 1500)] {
        let written = write_index(Spec { n, dim, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let (each, n_blocks) =
            (index.graph.layout().block_bytes() + DIRECTORY_BYTES, index.graph.layout().n_blocks() as usize);
        for trained in [false, true] {
            for bytes in [0, 1, each - 1, each, each + 1, 7 * each - 1, 7 * each, usize::MAX] {
                let cache = fill(&written, &index, trained, bytes).unwrap();
                assert!(cache.bytes() <= bytes);
                assert_eq!(cache.bytes(), cache.len() * each);
                if bytes < usize::MAX || !trained {
                    assert_eq!(cache.len(), n_blocks.min(bytes / each), "{bytes} bytes, trained {trained}");
                }
                assert_eq!(index.cache().is_some(), bytes >= each);
            }
        }
    }
}

#[test]
fn a_cache_that_was_dropped_is_freed() {
    let written = write_index(Spec { n: 1000, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let weak = Arc::downgrade(&index.cache_around_entries(100_000).unwrap());
    for policy in POLICIES {
        search(&written, &index, 20, &params(3, 20, policy));
        range_search(&written, &index, 20, 900.0, &params(1, 20, policy)).unwrap();
    }
    assert!(weak.upgrade().is_some());
    index.cache_around_entries(0).unwrap();
    assert!(weak.upgrade().is_none(), "a search state kept for the next call holds it");
}

#[test]
fn a_cache_saves_reads_and_changes_no_answer() {
    for (n, dim) in [(600, 12), (20, 1500)] {
        let written = write_index(Spec { n, dim, max_degree: 10, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let all = index.graph.layout().n_blocks() as usize * (index.graph.layout().block_bytes() + DIRECTORY_BYTES);
        for policy in POLICIES {
            let params = params(5, 20, policy);
            index.cache_around_entries(0).unwrap();
            let plain = search(&written, &index, 20, &params);
            assert!(plain.counters.iter().all(|c| c.cache_hits == 0));
            for trained in [false, true] {
                for bytes in [all / 10, all / 2, all] {
                    let cache = fill(&written, &index, trained, bytes).unwrap();
                    let cached = search(&written, &index, 20, &params);
                    same_answers(&plain, &cached);
                    for (with, without) in cached.counters.iter().zip(&plain.counters) {
                        assert_eq!((with.hops, with.distances), (without.hops, without.distances));
                        assert_eq!(
                            (with.expansions, with.code_distances),
                            (without.expansions, without.code_distances)
                        );
                    }
                    let pages = |found: &indexmill_core::graph::SearchOutput| -> u64 {
                        found.counters.iter().map(|c| c.pages_read).sum()
                    };
                    assert!(pages(&cached) < pages(&plain), "{policy:?}, trained {trained}, {bytes} bytes");
                    assert!(cached.counters.iter().any(|c| c.cache_hits > 0));
                    if cache.len() == index.graph.layout().n_blocks() as usize {
                        assert_eq!(pages(&cached), 0);
                    }
                }
            }
        }
    }
}

#[test]
fn cached_searches_repeat_over_engines_threads_and_interleaving() {
    let written = write_index(Spec { n: 1000, ..Spec::default() });
    for policy in POLICIES {
        let mut first = None;
        for (engine, threads, inflight) in [("pread", 1, 1), ("pread", 3, 7), ("auto", 1, 64), ("auto", 2, 3)] {
            let index = Index::open(written.path(), engine).unwrap();
            fill(&written, &index, true, 60_000).unwrap();
            let params = params(5, 20, policy).threads(threads).inflight(inflight);
            let again = search(&written, &index, 40, &params);
            crate::common::searches::same_except_times(
                first.get_or_insert_with(|| search(&written, &index, 40, &params)),
                &again,
            );
        }
    }
}

#[test]
fn a_damaged_page_is_named_while_the_cache_is_filled_and_the_old_cache_stays() {
    let written = write_index(Spec { n: 1000, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let before = index.cache_around_entries(20_000).unwrap();
    let path = written.path().join("graph.imx");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = index.graph.layout().page_of(index.graph.layout().n_blocks() - 1) as usize * 4096 + 5;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let refused = index.cache_around_entries(usize::MAX);
    let Err(error @ Error::Corrupt(_)) = refused else { panic!("the damaged page was cached") };
    assert_eq!((error.path(), error.page()), (Some(&*path), Some(at as u64 / 4096)), "{error}");
    assert!(Arc::ptr_eq(&before, &index.cache().unwrap()));
}

#[test]
fn searches_go_on_while_the_cache_is_replaced() {
    let written = write_index(Spec { n: 500, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for policy in [Policy::Beam, Policy::Pipeline] {
            let (written, index, done) = (&written, &index, &done);
            scope.spawn(move || {
                let exact = params(5, 500, policy);
                let want = search(written, index, 5, &exact);
                while !done.load(Ordering::Relaxed) {
                    same_answers(&want, &search(written, index, 5, &exact));
                }
            });
        }
        for round in 0..30 {
            fill(&written, &index, round % 3 == 1, [0, 20_000, usize::MAX][round % 3]).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}
