//! Range searches against brute force.

use crate::common::searches::{POLICIES, filter, params, range_search, row, same_ranges_except_times, timeless};
use crate::common::{FLOAT16, FLOAT32, INT8, SQ8, SQ16, Spec, UINT8, Written, write_index};
use indexmill_core::graph::{Policy, RangeOutput, SearchParams};
use indexmill_core::{Error, Index};

fn rows(found: &RangeOutput, n_queries: usize) -> Vec<Vec<(f32, i64)>> {
    assert_eq!((found.starts.len(), found.counters.len()), (n_queries + 1, n_queries));
    found.starts.windows(2).map(|ends| row(&found.scores, &found.slots, ends[0]..ends[1]).collect()).collect()
}

fn want(written: &Written, i: usize, radius: f32, allows: impl Fn(i64) -> bool) -> Vec<(f32, i64)> {
    let mut all = written.exact(&written.query(i), written.spec.n);
    all.retain(|&(distance, slot)| distance <= radius && allows(slot));
    all
}

#[test]
fn a_list_of_all_vertices_finds_all_within_the_radius_in_every_type_and_policy() {
    for dtype in [FLOAT32, FLOAT16, UINT8, INT8, SQ16, SQ8] {
        let written = write_index(Spec { dtype, seed: dtype, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let tenth = written.exact(&written.query(0), 10)[9].0; // a distance that occurs: the bound counts as within
        for policy in POLICIES {
            for radius in [0.0, tenth, 1500.0, 3000.5] {
                let found = range_search(&written, &index, 4, radius, &params(1, 300, policy)).unwrap();
                for (i, got) in rows(&found, 4).into_iter().enumerate() {
                    assert_eq!(got, want(&written, i, radius, |_| true), "dtype {dtype}, {policy:?}, radius {radius}");
                }
                let ids: Vec<i64> =
                    found.slots.iter().map(|&slot| i64::from(written.vector_ids[slot as usize])).collect();
                assert_eq!(found.vector_ids, ids);
            }
        }
    }
}

#[test]
fn the_list_grows_until_everything_within_is_found_and_no_page_is_read_twice() {
    let written = write_index(Spec { n: 3000, max_degree: 8, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let n_pages = u64::from(index.graph.layout().n_blocks());
    for policy in POLICIES {
        let found = range_search(&written, &index, 3, f32::INFINITY, &params(1, 1, policy)).unwrap();
        assert_eq!(found.starts, [0, 3000, 6000, 9000], "{policy:?}");
        for counters in &found.counters {
            assert_eq!((counters.distances, counters.expansions), (3000, 3000), "{policy:?}");
            if matches!(policy, Policy::Page | Policy::Pipeline | Policy::Rounds) {
                assert_eq!(counters.pages_read, n_pages);
            }
        }
        // Here the list ends somewhere between its first length and all.
        let some = range_search(&written, &index, 3, 1000.0, &params(1, 4, policy)).unwrap();
        assert!(some.counters.iter().all(|c| c.distances <= 3000 && c.expansions <= 3000));
        if matches!(policy, Policy::Page | Policy::Pipeline | Policy::Rounds) {
            assert!(some.counters.iter().all(|c| c.pages_read <= n_pages && c.bytes_read == 4096 * c.pages_read));
        }
        for (i, got) in rows(&some, 3).into_iter().enumerate() {
            let within = want(&written, i, 1000.0, |_| true);
            assert!(got.is_sorted_by(|a, b| a < b) && got.iter().all(|hit| within.contains(hit)));
        }
    }
}

#[test]
fn a_radius_below_everything_finds_nothing_and_one_that_is_no_number_is_refused() {
    let written = write_index(Spec::default());
    let index = Index::open(written.path(), "auto").unwrap();
    for policy in POLICIES {
        for radius in [-1.0, f32::NEG_INFINITY] {
            let found = range_search(&written, &index, 5, radius, &params(1, 20, policy)).unwrap();
            assert_eq!((found.starts, found.slots.len()), (vec![0; 6], 0));
            assert!(found.counters.iter().all(|c| c.pages_read > 0));
        }
        let refused = range_search(&written, &index, 1, f32::NAN, &params(1, 20, policy));
        assert!(matches!(refused, Err(Error::Input(message)) if message.contains("radius")));
    }
}

#[test]
fn filters_hold_in_range_searches_by_scan_and_by_edges() {
    let written = write_index(Spec { n: 5000, max_degree: 10, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    // 500 allowed vertices are scanned; 3,400 are reached along edges, through others.
    for n_allowed in [0, 500, 3400] {
        let allows = |slot: i64| (slot * 1237) % 5000 < n_allowed;
        let allow = Some(filter(&written, &index, |slot| allows(i64::from(slot))));
        for policy in POLICIES {
            let params = params(1, 1, policy).allow(allow.clone());
            let all = range_search(&written, &index, 2, f32::INFINITY, &params).unwrap();
            for (i, got) in rows(&all, 2).into_iter().enumerate() {
                assert_eq!(got, want(&written, i, f32::INFINITY, allows), "{policy:?}, {n_allowed} allowed");
            }
            let scanned = all.counters.iter().all(|c| c.code_distances == n_allowed as u64);
            assert_eq!(scanned, n_allowed <= 500);
            let exact = params.list_size(5000);
            let some = range_search(&written, &index, 2, 1200.0, &exact).unwrap();
            for (i, got) in rows(&some, 2).into_iter().enumerate() {
                assert_eq!(got, want(&written, i, 1200.0, allows), "{policy:?}, {n_allowed} allowed");
            }
        }
    }
}

#[test]
fn range_searches_repeat_over_engines_threads_and_interleaving() {
    let written = write_index(Spec { n: 1000, ..Spec::default() });
    for policy in POLICIES {
        let mut first = None;
        for (engine, threads, inflight) in [("pread", 1, 1), ("pread", 3, 7), ("auto", 1, 64), ("auto", 2, 3)] {
            let index = Index::open(written.path(), engine).unwrap();
            let params = params(1, 6, policy).threads(threads).inflight(inflight);
            let again = range_search(&written, &index, 40, 1500.0, &params).unwrap();
            same_ranges_except_times(first.get_or_insert(again_of(&written, &index, &params)), &again);
        }
    }
}

fn again_of(written: &Written, index: &Index, params: &SearchParams) -> RangeOutput {
    range_search(written, index, 40, 1500.0, params).unwrap()
}

#[test]
fn nodes_larger_than_a_page_are_found_by_radius() {
    let written = write_index(Spec { n: 40, dim: 1500, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let radius = written.exact(&written.query(0), 20)[19].0;
    for policy in POLICIES {
        let found = range_search(&written, &index, 1, radius, &params(1, 40, policy)).unwrap();
        assert_eq!(rows(&found, 1)[0], want(&written, 0, radius, |_| true));
        assert_eq!(found.counters[0].pages_read, 80);
    }
}

#[test]
fn completion_widens_as_beam_does() {
    let written = write_index(Spec { n: 3000, max_degree: 8, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    for (list_size, beam_width) in [(1, 4), (2, 1), (4, 7), (16, 16)] {
        let under = |policy| {
            let params = params(1, list_size, policy).beam_width(beam_width);
            range_search(&written, &index, 40, 1100.0, &params).unwrap()
        };
        let (beam, completion) = (under(Policy::Beam), under(Policy::Completion));
        assert_eq!((&beam.starts, &beam.slots), (&completion.starts, &completion.slots));
        assert_eq!(timeless(&beam.counters), timeless(&completion.counters));
    }
}
