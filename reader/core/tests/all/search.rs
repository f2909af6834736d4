//! Searches of small indexes against brute force, and against themselves under other engines and interleavings.

use crate::common::searches::{POLICIES, params, same_except_times, search};
use crate::common::{FLOAT16, FLOAT32, INT8, SQ8, SQ16, Spec, UINT8, user_text, write_index};
use indexmill_core::graph::{Policy, SearchParams};
use indexmill_core::ids::UserId;
use indexmill_core::search::{Queries, Values};
use indexmill_core::{Error, Index};

#[test]
fn a_list_of_all_vertices_finds_the_exact_answer_in_every_type_and_policy() {
    for dtype in [FLOAT32, FLOAT16, UINT8, INT8, SQ16, SQ8] {
        let written = write_index(Spec { dtype, seed: dtype, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        for policy in POLICIES {
            let found = search(&written, &index, 5, &params(10, written.spec.n, policy));
            for i in 0..5 {
                let want = written.exact(&written.query(i), 10);
                let row = i * 10..(i + 1) * 10;
                let got: Vec<(f32, i64)> =
                    found.scores[row.clone()].iter().copied().zip(found.slots[row].iter().copied()).collect();
                assert_eq!(got, want, "dtype {dtype}, {policy:?}, query {i}");
            }
        }
    }
}

#[test]
fn nodes_larger_than_a_page_are_searched_exactly() {
    let written = write_index(Spec { n: 40, dim: 1500, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    assert_eq!(index.graph.layout().pages_per_block, 2);
    for policy in POLICIES {
        let found = search(&written, &index, 3, &params(5, 40, policy));
        for i in 0..3 {
            let want: Vec<i64> = written.exact(&written.query(i), 5).iter().map(|x| x.1).collect();
            assert_eq!(found.slots[i * 5..][..5], want);
        }
        assert!(found.counters.iter().all(|c| c.pages_read == 80 && c.bytes_read == 80 * 4096));
    }
}

#[test]
fn engines_threads_and_interleaving_change_nothing_but_times() {
    let written = write_index(Spec { n: 2000, ..Spec::default() });
    for policy in POLICIES {
        let pread = Index::open(written.path(), "pread").unwrap();
        let once = params(5, 20, policy).inflight(1);
        let first = search(&written, &pread, 40, &once);
        for engine in ["auto", "pread"] {
            let index = Index::open(written.path(), engine).unwrap();
            for (threads, inflight) in [(1, 1), (1, 16), (3, 1), (3, 7), (1, 256)] {
                let again = once.clone().threads(threads).inflight(inflight);
                same_except_times(&first, &search(&written, &index, 40, &again));
            }
        }
    }
}

#[test]
fn a_search_list_smaller_than_the_graph_reads_a_part_of_it() {
    let written = write_index(Spec { n: 5000, max_degree: 12, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    for policy in POLICIES {
        let found = search(&written, &index, 10, &params(1, 10, policy));
        let pages = u64::from(index.graph.layout().n_blocks());
        assert!(found.counters.iter().all(|c| c.pages_read > 0 && c.pages_read < pages / 2));
        assert!(found.counters.iter().all(|c| c.hops > 0 && c.expansions > 0 && c.code_distances > c.expansions));
    }
}

#[test]
fn results_lead_back_to_vector_ids_and_user_ids() {
    for id_type in 0..=4 {
        let written = write_index(Spec { id_type, n: 700, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let found = search(&written, &index, 4, &params(3, 30, Policy::Page));
        let slots: Vec<u32> = found.slots.iter().map(|&s| s as u32).collect();
        let user_ids = index.ids.user_ids(&slots).unwrap();
        for ((&slot, &vector_id), user_id) in slots.iter().zip(&found.vector_ids).zip(user_ids) {
            let id = written.vector_ids[slot as usize];
            assert_eq!(vector_id, i64::from(id));
            let number = u64::from(id) * 3 + (1 << 40);
            let want = match id_type {
                0 => UserId::Vector(id),
                1 => UserId::Int64(number as i64),
                2 => UserId::Uint64(number),
                3 => UserId::String(user_text(id)),
                _ => UserId::Binary(user_text(id).into_bytes()),
            };
            assert_eq!(user_id, want);
        }
    }
}

#[test]
fn one_vertex_can_be_searched() {
    let written = write_index(Spec { n: 1, max_degree: 1, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    for policy in POLICIES {
        assert_eq!(search(&written, &index, 2, &params(1, 1, policy)).slots, [0, 0]);
    }
}

#[test]
fn parameters_that_cannot_be_met_are_refused_with_the_remedy() {
    let written = write_index(Spec::default());
    let index = Index::open(written.path(), "auto").unwrap();
    let query = written.query(0);
    let refuse = |values: Values<'_>, dim: usize, change: fn(&mut SearchParams), words: &str| {
        let mut params = params(5, 20, Policy::Page);
        change(&mut params);
        let error = index.search(&Queries { values, n: 1, dim }, &params).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let good = Values::Float32(&query);
    refuse(good, 12, |p| p.k = 0, "ask for one");
    refuse(good, 12, |p| p.k = 301, "ask for at most 300");
    refuse(good, 12, |p| p.list_size = 4, "raise L");
    refuse(good, 12, |p| p.beam_width = 0, "beam_width");
    refuse(good, 12, |p| p.beam_width = 65, "1..64");
    refuse(good, 12, |p| p.threads = 0, "threads");
    refuse(good, 12, |p| p.inflight = 257, "inflight");
    refuse(Values::Float32(&query[..11]), 11, |_| {}, "expected 12 dimensions");
    refuse(Values::Uint8(&[0; 12]), 12, |_| {}, "expected float32");
    refuse(Values::Float32(&[f32::NAN; 12]), 12, |_| {}, "row 0");
    refuse(Values::Float32(&[f32::INFINITY; 12]), 12, |_| {}, "row 0");
}

#[test]
fn an_interrupted_search_ends_with_that_error_and_the_index_stays_usable() {
    let written = write_index(Spec { n: 3000, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let query = written.query(0).repeat(100_000);
    let queries = Queries { values: Values::Float32(&query), n: 100_000, dim: 12 };
    let result = index.search_unless(&queries, &params(10, 300, Policy::Page), &mut || true);
    assert!(matches!(result, Err(Error::Interrupted)));
    search(&written, &index, 5, &params(10, 30, Policy::Page));
}

#[test]
fn a_search_that_needs_no_read_is_interrupted_as_well() {
    let written = write_index(Spec { n: 3000, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    index.cache_around_entries(usize::MAX >> 8).unwrap();
    let query = written.query(0).repeat(100_000);
    let queries = Queries { values: Values::Float32(&query), n: 100_000, dim: 12 };
    let nothing = std::sync::Arc::new(index.filter(&vec![0; 3000 / 8]).unwrap());
    for policy in POLICIES {
        for allow in [None, Some(nothing.clone())] {
            let began = std::time::Instant::now();
            let params = params(10, 300, policy).allow(allow);
            assert!(matches!(index.search_unless(&queries, &params, &mut || true), Err(Error::Interrupted)));
            assert!(began.elapsed().as_secs() < 5, "{policy:?}");
        }
    }
}

#[test]
fn waiting_is_a_part_of_the_latency() {
    let written = write_index(Spec { n: 2000, ..Spec::default() });
    for engine in ["auto", "pread"] {
        let index = Index::open(written.path(), engine).unwrap();
        for policy in POLICIES {
            for inflight in [1, 5] {
                let params = params(5, 40, policy).inflight(inflight).beam_width(8);
                let found = search(&written, &index, 20, &params);
                assert!(found.counters.iter().all(|c| c.io_wait_us <= c.latency_us * 1.001), "{policy:?}");
                assert!(found.counters.iter().any(|c| c.io_wait_us > 0.0));
            }
        }
    }
}
