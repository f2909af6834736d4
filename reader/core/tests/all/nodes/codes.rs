//! Graphs whose nodes hold the codes of their neighbours.

use crate::common::searches::{POLICIES, filter, params, row, same_except_times, search};
use crate::common::{FLOAT16, FLOAT32, INT8, SQ8, SQ16, Spec, UINT8, Written, write_index};
use indexmill_core::Index;
use indexmill_core::graph::{Entry, Policy};
use indexmill_core::verify::verify;

/// The same graph with codes in memory and in its nodes.
fn both(spec: Spec) -> [(Written, Index); 2] {
    [false, true].map(|with_codes| {
        let written = write_index(Spec { n_sample: 0, with_codes, ..spec });
        let index = Index::open(written.path(), "pread").unwrap();
        (written, index)
    })
}

#[test]
fn a_list_of_all_vertices_finds_exactly_the_nearest() {
    let (n, k) = (500, 8);
    for dtype in [FLOAT32, FLOAT16, UINT8, INT8, SQ16, SQ8] {
        for dim in [5, 40, 900] {
            let [_, (written, index)] = both(Spec { n, dim, dtype, max_degree: 7, ..Spec::default() });
            assert_eq!(verify(written.path()), Vec::<String>::new());
            for policy in POLICIES {
                let found = search(&written, &index, 4, &params(k, n, policy));
                for i in 0..4 {
                    let got: Vec<_> = row(&found.scores, &found.slots, i * k..(i + 1) * k).collect();
                    assert_eq!(got, written.exact(&written.query(i), k), "dtype {dtype}, dim {dim}, {policy:?}");
                }
            }
        }
    }
}

#[test]
fn memory_does_not_grow_with_the_vertices() {
    let held = |n| both(Spec { n, dim: 20, ..Spec::default() }).map(|(_, index)| index.memory_bytes());
    let ([_, small], [plain, large]) = (held(400), held(4000));
    assert_eq!(small, large);
    assert!(plain > large + 4000 * 2, "{plain} {large}");
}

#[test]
fn few_allowed_vertices_are_all_read_once() {
    for dim in [5, 1400] {
        let [_, (written, index)] = both(Spec { n: 900, dim, max_degree: 8, ..Spec::default() });
        let layout = index.graph.layout();
        let allowed = |slot: u32| slot % 30 == 7;
        let allow = Some(filter(&written, &index, allowed));
        let mut blocks: Vec<u32> = (0..900).filter(|&slot| allowed(slot)).map(|slot| layout.block_of(slot)).collect();
        blocks.dedup();
        let pages = blocks.len() as u64 * u64::from(layout.pages_per_block);
        for policy in POLICIES {
            let found = search(&written, &index, 5, &params(30, 30, policy).allow(allow.clone()));
            for (i, c) in found.counters.iter().enumerate() {
                let mut want = written.exact(&written.query(i), 900);
                want.retain(|&(_, slot)| allowed(slot as u32));
                let got: Vec<_> = row(&found.scores, &found.slots, i * 30..(i + 1) * 30).collect();
                assert_eq!(got, want, "{policy:?}");
                assert_eq!((c.code_distances, c.expansions), (0, 30));
                let once = matches!(policy, Policy::Page | Policy::Pipeline | Policy::Rounds);
                assert!(if once { c.pages_read == pages } else { c.pages_read >= pages });
            }
        }
    }
}

#[test]
fn searches_repeat_over_engines_threads_caches_and_views() {
    let written =
        write_index(Spec { n: 1200, dim: 30, max_degree: 9, n_sample: 0, with_codes: true, ..Spec::default() });
    let order: Vec<u32> = (0..1200).collect();
    for policy in POLICIES {
        for entry in [Entry::Medoid, Entry::Centroids] {
            let mut first = None;
            for (engine, threads, inflight) in [("pread", 1, 1), ("auto", 2, 7), ("mmap", 1, 3)] {
                let index = Index::open(written.path(), engine).unwrap();
                let params = params(5, 25, policy).entry(entry).threads(threads).inflight(inflight);
                let found = search(&written, &index, 20, &params);
                same_except_times(first.get_or_insert_with(|| search(&written, &index, 20, &params)), &found);
                let view = index.remapped(&order).unwrap();
                same_except_times(&found, &search(&written, &view, 20, &params));
                index.cache_around_entries(60_000).unwrap();
                let cached = search(&written, &index, 20, &params);
                assert_eq!(cached.slots, found.slots);
            }
        }
    }
}
