//! Searches with a filter against brute force over the allowed vectors.

use crate::common::searches::{POLICIES, bitmap, filter, params, row, same_except_times, search};
use crate::common::{FLOAT16, FLOAT32, INT8, Random, SQ8, SQ16, Spec, UINT8, write_index};
use indexmill_core::graph::Policy;
use indexmill_core::{Error, Index};

/// About `share` of all slots, the same for the same seed.
fn some(n: usize, share: f64, seed: u64) -> Vec<bool> {
    let mut random = Random(seed);
    let wanted = (n as f64 * share).round() as usize;
    let mut slots: Vec<usize> = (0..n).collect();
    (1..n).for_each(|i| slots.swap(i, random.below(i + 1)));
    let mut allowed = vec![false; n];
    slots[..wanted].iter().for_each(|&slot| allowed[slot] = true);
    allowed
}

#[test]
fn a_list_of_all_vertices_finds_exactly_the_allowed_ones() {
    let (n, k) = (700, 10);
    for dtype in [FLOAT32, FLOAT16, UINT8, INT8, SQ16, SQ8] {
        let written = write_index(Spec { n, dtype, seed: dtype, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        for share in [0.0, 1.0 / n as f64, 0.01, 0.1, 0.5, 1.0] {
            let allowed = some(n, share, dtype);
            let n_allowed = allowed.iter().filter(|&&is| is).count();
            let allow = Some(filter(&written, &index, |slot| allowed[slot as usize]));
            for policy in POLICIES {
                let found = search(&written, &index, 3, &params(k, n, policy).allow(allow.clone()));
                for i in 0..3 {
                    let mut want = written.exact(&written.query(i), n);
                    want.retain(|&(_, slot)| allowed[slot as usize]);
                    want.truncate(k);
                    let there = k.min(n_allowed);
                    let got: Vec<_> = row(&found.scores, &found.slots, i * k..i * k + there).collect();
                    assert_eq!(got, want, "dtype {dtype}, {policy:?}, share {share}, query {i}");
                    let missing = i * k + there..(i + 1) * k;
                    assert!(found.slots[missing.clone()].iter().all(|&slot| slot == -1));
                    assert!(found.vector_ids[missing.clone()].iter().all(|&id| id == -1));
                    assert!(found.scores[missing].iter().all(|score| score.is_nan()));
                }
            }
        }
    }
}

#[test]
fn few_allowed_vertices_are_scored_once_and_the_nearest_l_of_them_read() {
    let written = write_index(Spec { n: 3000, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    for (n_allowed, list_size) in [(0, 20), (1, 20), (15, 20), (300, 20), (300, 2)] {
        let allowed = some(3000, n_allowed as f64 / 3000.0, 7);
        let allow = Some(filter(&written, &index, |slot| allowed[slot as usize]));
        for policy in POLICIES {
            let params = params(2, list_size, policy).allow(allow.clone());
            for c in search(&written, &index, 6, &params).counters {
                assert_eq!(
                    (c.code_distances, c.expansions),
                    (n_allowed, n_allowed.min(list_size as u64)),
                    "{policy:?}"
                );
                assert!(c.pages_read <= c.expansions && (c.pages_read > 0) == (n_allowed > 0));
            }
        }
    }
}

#[test]
fn many_allowed_vertices_are_walked_to_through_others() {
    for with_codes in [false, true] {
        let (n, k) = (5000, 2);
        let written = write_index(Spec { n, max_degree: 10, n_sample: 0, with_codes, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let allowed = some(n, 0.9, 3);
        let allow = Some(filter(&written, &index, |slot| allowed[slot as usize]));
        for policy in POLICIES {
            let found = search(&written, &index, 20, &params(k, k, policy).allow(allow.clone()));
            assert!(found.counters.iter().all(|c| c.code_distances > 0 && c.code_distances != 4500));
            for i in 0..20 {
                let want = written.exact(&written.query(i), n);
                let got: Vec<_> = row(&found.scores, &found.slots, i * k..(i + 1) * k).collect();
                assert!(got.is_sorted_by(|a, b| a < b), "{got:?}");
                assert!(got.iter().all(|hit| allowed[hit.1 as usize] && want.contains(hit)), "{policy:?}, {got:?}");
            }
        }
    }
}

#[test]
fn allowed_vertices_are_found_though_many_others_are_nearer() {
    let written = write_index(Spec { n: 3000, max_degree: 10, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    for i in 0..5 {
        let nearest: Vec<i64> = written.exact(&written.query(i), 500).into_iter().map(|(_, slot)| slot).collect();
        let allows = |slot: u32| !nearest.contains(&i64::from(slot));
        let allow = Some(filter(&written, &index, allows));
        for policy in POLICIES {
            let found = search(&written, &index, 5, &params(1, 1, policy).allow(allow.clone()));
            assert!(found.counters[i].code_distances != 2500, "a scan");
            assert!(found.slots[i] >= 0 && allows(found.slots[i] as u32), "{policy:?}, query {i}");
        }
    }
}

#[test]
fn a_filter_that_allows_everything_is_walked_through() {
    let written = write_index(Spec { n: 5000, max_degree: 10, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let all = Some(filter(&written, &index, |_| true));
    for policy in POLICIES {
        let found = search(&written, &index, 40, &params(2, 2, policy).allow(all.clone()));
        assert!(found.slots.iter().all(|&slot| slot >= 0), "{policy:?}");
        assert!(found.counters.iter().all(|c| c.code_distances != 5000 && c.expansions >= 2), "{policy:?}");
    }
}

#[test]
fn filtered_searches_repeat_over_engines_threads_and_interleaving() {
    let written = write_index(Spec { n: 3000, ..Spec::default() });
    for (list_size, share) in [(20, 0.1), (1, 0.9)] {
        let allowed = some(3000, share, 5);
        for policy in POLICIES {
            let mut first = None;
            for (engine, threads, inflight) in [("pread", 1, 1), ("pread", 3, 7), ("auto", 1, 64), ("auto", 2, 3)] {
                let index = Index::open(written.path(), engine).unwrap();
                let allow = Some(filter(&written, &index, |slot| allowed[slot as usize]));
                let params = params(1, list_size, policy).allow(allow).threads(threads).inflight(inflight);
                let again = search(&written, &index, 30, &params);
                same_except_times(first.get_or_insert_with(|| search(&written, &index, 30, &params)), &again);
            }
        }
    }
}

#[test]
fn bits_beyond_the_last_vector_allow_nothing() {
    for n in [1, 7, 8, 63, 64, 65, 127, 128, 300] {
        let written = write_index(Spec { n, max_degree: 1.max(n.min(4) - n.min(4) / 2), ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let all = index.filter(&vec![0xff; n.div_ceil(8)]).unwrap();
        assert_eq!(all.n_allowed() as usize, n);
        let all = all.allowed();
        assert_eq!(all.iter().collect::<Vec<_>>(), (0..n as u32).collect::<Vec<_>>());
        assert!((0..n as u32).all(|slot| all.contains(slot)) && !all.contains(n as u32) && !all.contains(u32::MAX));
        let only = |wanted: u32| index.filter(&bitmap(&written, |slot| slot == wanted)).unwrap();
        for slot in [0, n as u32 / 2, n as u32 - 1] {
            assert_eq!(only(slot).allowed().iter().collect::<Vec<_>>(), [slot]);
            let contains = |other: &u32| only(slot).allowed().contains(*other);
            assert_eq!((0..n as u32 + 70).filter(contains).collect::<Vec<_>>(), [slot]);
        }
    }
}

#[test]
fn a_filter_of_another_build_or_of_another_length_is_refused() {
    let (one, other) =
        (write_index(Spec { seed: 1, ..Spec::default() }), write_index(Spec { seed: 2, ..Spec::default() }));
    let (index, foreign) = (Index::open(one.path(), "auto").unwrap(), Index::open(other.path(), "auto").unwrap());
    let allow = Some(filter(&other, &foreign, |_| true));
    let params = params(3, 20, Policy::Page).allow(allow);
    let query = one.query(0);
    let queries = indexmill_core::search::Queries {
        values: indexmill_core::search::Values::Float32(&query),
        n: 1,
        dim: one.spec.dim,
    };
    for refused in [
        index.search(&queries, &params).map(|_| ()),
        index.range_search(&queries, 9.0, &params).map(|_| ()),
        index.filter(&[0; 37]).map(|_| ()),
    ] {
        let Err(Error::Input(message)) = refused else { panic!("expected an input error, got {refused:?}") };
        assert!(message.starts_with("allow: "), "{message}");
    }
}

#[test]
fn making_a_filter_can_be_interrupted() {
    let written = write_index(Spec { n: 300, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    assert!(matches!(index.filter_unless(&[0xff; 38], &mut || true), Err(Error::Interrupted)));
}
