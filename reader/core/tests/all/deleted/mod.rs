//! Searches of indexes with deletions against brute force over what is left, and damage of the file of deletions.

pub(crate) mod deletion;

use std::collections::HashSet;
use std::path::Path;

use crate::common::ivf::{FLAT, IvfSpec, PQ, RABITQ, SQ8 as SQ8_ROWS, write_ivf};
use crate::common::lsh::{LshSpec, write_lsh};
use crate::common::searches::{
    POLICIES, bitmap, filter, params, range_search, row, same_except_times, search, with_queries,
};
use crate::common::{FLOAT32, Random, SQ8, Spec, UINT8, Written, write_index};

use self::deletion::{Deletion, delete};
use indexmill_core::graph::{Entry, Policy};
use indexmill_core::ids::UserIds;
use indexmill_core::ivf::IvfParams;
use indexmill_core::lsh::{InMemory, LshParams};
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;
use indexmill_core::{Error, Index, IvfIndex, LshIndex, Result};

/// `count` of `n` slots, ascending, the same for the same seed.
fn some(n: usize, count: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    let mut slots: Vec<u32> = (0..n as u32).collect();
    (1..n).for_each(|i| slots.swap(i, random.below(i + 1)));
    slots.truncate(count);
    slots.sort_unstable();
    slots
}

/// The k nearest of query `i` that are left, and nothing in the places of others.
#[track_caller]
fn assert_nearest(written: &Written, i: usize, k: usize, deleted: &[u32], got: &[(f32, i64)], what: &str) {
    let mut want = written.exact(&written.query(i), written.spec.n);
    want.retain(|&(_, slot)| !deleted.contains(&(slot as u32)));
    want.truncate(k);
    assert_eq!(got[..want.len()], want, "{what}, query {i}");
    assert!(got[want.len()..].iter().all(|&(score, slot)| slot == -1 && score.is_nan()), "{what}");
}

#[test]
fn graph_searches_find_exactly_what_is_left() {
    let (n, k) = (500, 10);
    for (dtype, with_codes) in [(FLOAT32, false), (UINT8, false), (SQ8, false), (FLOAT32, true)] {
        for count in [1, 50, 249, 251, 450, 495, 500] {
            let n_sample = if with_codes { 0 } else { 40 };
            let written = write_index(Spec { n, dtype, with_codes, n_sample, ..Spec::default() });
            let before = Index::open(written.path(), "auto").unwrap().memory_bytes();
            let deleted = some(n, count, dtype + count as u64);
            delete(written.path(), n, &deleted);
            assert_eq!(verify(written.path()), [""; 0]);
            let index = Index::open(written.path(), "auto").unwrap();
            assert_eq!(index.memory_bytes(), before + (n as u64).div_ceil(64) * 8);
            assert_eq!(index.living.as_ref().unwrap().n_deleted() as usize, count);
            let what = format!("dtype {dtype}, {count} deleted");
            for policy in POLICIES {
                let found = search(&written, &index, 4, &params(k, n, policy));
                for i in 0..4 {
                    let got: Vec<_> = row(&found.scores, &found.slots, i * k..(i + 1) * k).collect();
                    assert_nearest(&written, i, k, &deleted, &got, &what);
                }
                let found = range_search(&written, &index, 2, f32::INFINITY, &params(1, 20, policy)).unwrap();
                for i in 0..2 {
                    let got: Vec<_> = row(&found.scores, &found.slots, found.starts[i]..found.starts[i + 1]).collect();
                    assert_eq!(got.len(), n - count, "{what}");
                    assert_nearest(&written, i, n, &deleted, &got, &what);
                }
            }
        }
    }
}

#[test]
fn an_index_is_walked_through_what_was_deleted() {
    let (n, k) = (5000, 2);
    for with_codes in [false, true] {
        let written = write_index(Spec { n, max_degree: 10, n_sample: 0, with_codes, ..Spec::default() });
        let deleted = some(n, 1000, 3);
        let whole = Index::open(written.path(), "auto").unwrap();
        let living = filter(&written, &whole, |slot| deleted.binary_search(&slot).is_err());
        delete(written.path(), n, &deleted);
        let index = Index::open(written.path(), "auto").unwrap();
        let mut n_missed = [0; 2]; // by `rounds` and by the others: it comes to more vertices, of which more are deleted
        for policy in POLICIES {
            let found = search(&written, &index, 20, &params(k, 8, policy));
            assert!(found.counters.iter().all(|c| c.code_distances > 0 && c.code_distances != 4000), "no scan");
            let all = search(&written, &whole, 20, &params(k, 8, policy));
            for i in 0..20 {
                let got: Vec<_> = row(&found.scores, &found.slots, i * k..(i + 1) * k).collect();
                assert!(got.iter().all(|&(_, slot)| slot >= 0 && living.allowed().contains(slot as u32)), "{got:?}");
                let nearest = row(&all.scores, &all.slots, i * k..(i + 1) * k);
                let missed = &mut n_missed[usize::from(policy != Policy::Rounds)];
                *missed += nearest.filter(|hit| living.allowed().contains(hit.1 as u32) && !got.contains(hit)).count();
            }
        }
        assert!(n_missed[0] * 3 <= 20 * k, "{n_missed:?} of the nearest are missed");
        assert!(n_missed[1] * 10 <= (POLICIES.len() - 1) * 20 * k, "{n_missed:?} of the nearest are missed");
    }
}

#[test]
fn a_filter_leaves_out_what_was_deleted_and_serves_its_generation_alone() {
    let n = 600;
    let written = write_index(Spec { n, ..Spec::default() });
    let whole = Index::open(written.path(), "auto").unwrap();
    let old = filter(&written, &whole, |slot| slot % 3 == 0);
    let deleted = some(n, 300, 9);
    delete(written.path(), n, &deleted);
    let index = Index::open(written.path(), "auto").unwrap();
    let allow = filter(&written, &index, |slot| slot % 3 == 0);
    let want: Vec<u32> = (0..n as u32).filter(|slot| slot % 3 == 0 && !deleted.contains(slot)).collect();
    assert_eq!(allow.allowed().iter().collect::<Vec<_>>(), want);
    let others: Vec<u32> = (0..n as u32).filter(|slot| !want.contains(slot)).collect();
    for policy in POLICIES {
        let found = search(&written, &index, 3, &params(5, n, policy).allow(allow.clone()));
        for i in 0..3 {
            let got: Vec<_> = row(&found.scores, &found.slots, i * 5..(i + 1) * 5).collect();
            assert_nearest(&written, i, 5, &others, &got, "filtered");
        }
    }
    for (index, allow) in [(&index, old.clone()), (&whole, allow)] {
        let refused =
            with_queries(&written, 1, |queries| index.search(queries, &params(3, 20, Policy::Page).allow(allow)));
        let Err(Error::Input(message)) = refused else { panic!("expected an input error") };
        assert!(message.contains("for another generation"), "{message}");
    }
    let again = Index::open(written.path(), "auto").unwrap();
    search(&written, &again, 1, &params(3, 20, Policy::Page).allow(filter(&written, &index, |_| true)));
    assert!(search(&written, &whole, 1, &params(n, n, Policy::Page).allow(old)).slots[199] >= 0, "it goes on");
}

#[test]
fn a_search_within_a_label_finds_all_of_it_through_its_deleted_vertices_alone() {
    let n = 600;
    for (with_codes, count) in [(true, 0), (true, 150), (false, 150)] {
        let written = write_index(Spec { n, max_degree: 24, n_sample: 0, with_codes, ..Spec::default() });
        let deleted = some(n, count, 9);
        if count > 0 {
            delete(written.path(), n, &deleted);
        }
        let index = Index::open(written.path(), "auto").unwrap();
        let is_of_label = |slot: u32| slot.is_multiple_of(2);
        let allow = std::sync::Arc::new(index.label_filter(&bitmap(&written, is_of_label)).unwrap());
        let others: Vec<u32> = (0..n as u32).filter(|slot| !is_of_label(*slot) || deleted.contains(slot)).collect();
        assert_eq!(allow.n_allowed() as usize, n - others.len());
        for policy in POLICIES {
            let params = params(1, 20, policy).allow(allow.clone());
            let found = range_search(&written, &index, 2, f32::INFINITY, &params).unwrap();
            for i in 0..2 {
                let got: Vec<_> = row(&found.scores, &found.slots, found.starts[i]..found.starts[i + 1]).collect();
                assert_nearest(&written, i, n, &others, &got, "within a label");
                // Of all vertices, those of the label alone were followed; with codes in memory they are scanned.
                let expansions = found.counters[i].expansions;
                assert!(expansions <= 300 && (!with_codes || expansions > 290), "{policy:?}: {expansions}");
            }
        }
    }
}

#[test]
fn a_view_lacks_the_same_vectors() {
    let n = 400;
    let written = write_index(Spec { n, ..Spec::default() });
    delete(written.path(), n, &some(n, 150, 4));
    let index = Index::open(written.path(), "auto").unwrap();
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_by_key(|slot| (slot * 37) % n as u32);
    let view = index.remapped(&order).unwrap();
    let params = params(10, n, Policy::Pipeline);
    let (a, b) = (search(&written, &view, 20, &params), search(&written, &index, 20, &params));
    assert_eq!(a.scores, b.scores, "both search exhaustively");
    let mut back = vec![0; n];
    order.iter().zip(0..).for_each(|(&slot, at)| back[slot as usize] = at);
    same_except_times(&search(&written, &view.remapped(&back).unwrap(), 20, &params), &b);
    let all = view.filter(&bitmap(&written, |_| true)).unwrap();
    assert_eq!(all.n_allowed(), 250);
}

#[test]
fn ids_of_deleted_vectors_are_not_found() {
    for id_type in [1, 2, 3, 4] {
        let written = write_index(Spec { n: 90, id_type, ..Spec::default() });
        let deleted = some(90, 40, id_type);
        let users = |index: &Index| -> UserIds {
            let found = with_queries(&written, 1, |q| index.search(q, &params(90, 90, Policy::Beam))).unwrap();
            found.user_ids
        };
        let whole = Index::open(written.path(), "auto").unwrap();
        let (all, found_before) = (users(&whole), whole.ids.find(&users(&whole)).unwrap());
        delete(written.path(), 90, &deleted);
        let index = Index::open(written.path(), "auto").unwrap();
        let gone: HashSet<u32> = deleted.iter().map(|&slot| written.vector_ids[slot as usize]).collect();
        for (before, after) in found_before.into_iter().zip(index.ids.find(&all).unwrap()) {
            // Texts repeat: another vector may have the id of a deleted one.
            assert!(after.is_none_or(|id| !gone.contains(&id)));
            assert!(id_type > 2 || after == before.filter(|id| !gone.contains(id)));
        }
    }
}

#[test]
fn numbers_of_generations_may_have_more_than_six_digits() {
    let written = write_index(Spec::default());
    Deletion { file: "deleted-1000000.imx", ..Deletion::new(written.spec.n, &[3]) }.write(written.path());
    assert_eq!(Index::open(written.path(), "pread").unwrap().living.as_ref().unwrap().n_deleted(), 1);
    assert_eq!(verify(written.path()), [""; 0]);
}

#[test]
fn without_user_ids_vector_ids_of_deleted_vectors_are_not_found() {
    let n = 90;
    let written = write_index(Spec { n, id_type: 0, ..Spec::default() });
    let wanted: Vec<i64> = (-2..n as i64 + 2).chain([5, i64::MIN, i64::MAX, 1 << 32]).collect();
    let ask = || {
        let index = Index::open(written.path(), "auto").unwrap();
        let order: Vec<u32> = (0..n as u32).rev().collect();
        let found = index.ids.find(&UserIds::Int64(wanted.clone())).unwrap();
        assert_eq!(index.remapped(&order).unwrap().ids.find(&UserIds::Int64(wanted.clone())).unwrap(), found);
        found
    };
    let among = |ids: &HashSet<u32>| -> Vec<Option<u32>> {
        wanted.iter().map(|&id| u32::try_from(id).ok().filter(|id| ids.contains(id))).collect()
    };
    assert_eq!(ask(), among(&written.vector_ids.iter().copied().collect()));
    let deleted = some(n, 40, 3);
    delete(written.path(), n, &deleted);
    let left = (0..n as u32).filter(|slot| !deleted.contains(slot)).map(|slot| written.vector_ids[slot as usize]);
    assert_eq!(ask(), among(&left.collect()));
}

/// Lists of one read and of several; the nearest of all that are left.
fn ivf_of(spec: IvfSpec, count: usize, k: usize) {
    let written = write_ivf(spec);
    let deleted = some(spec.n, count, 7);
    let ask = |engine: &str, k: usize| {
        let index = IvfIndex::open(written.path(), engine).unwrap();
        let floats: Vec<f32> = (0..3).flat_map(|i| written.query(i)).collect();
        let queries = Queries { values: Values::Float32(&floats), n: 3, dim: spec.dim };
        let rerank = if spec.with_vectors { k } else { 0 };
        let found = index.search(&queries, &IvfParams::new(k, spec.n_lists).rerank(rerank).inflight(2)).unwrap();
        let hits: Vec<(f32, i64)> = found.scores.into_iter().zip(found.slots).collect();
        (hits, index.memory().deleted)
    };
    let (whole, nothing) = ask("pread", spec.n);
    assert_eq!(nothing, 0);
    delete(written.path(), spec.n, &deleted);
    assert_eq!(verify(written.path()), [""; 0]);
    for engine in ["pread", "memory"] {
        let (found, bytes) = ask(engine, k);
        assert_eq!(bytes, (spec.n as u64).div_ceil(64) * 8);
        for (got, want) in found.chunks(k).zip(whole.chunks(spec.n)) {
            let mut want: Vec<_> = want.to_vec();
            want.retain(|&(_, id)| deleted.binary_search(&(id as u32)).is_err());
            want.truncate(k);
            assert_eq!(got[..want.len()], want, "{spec:?}, {count} deleted, {engine}");
            assert!(got[want.len()..].iter().all(|&(_, id)| id == -1));
        }
    }
}

#[test]
fn searches_of_all_lists_find_exactly_what_is_left() {
    for codec in [FLAT, SQ8_ROWS, PQ, RABITQ] {
        for count in [1, 100, 296, 300] {
            let copies = 1 + codec % 2;
            ivf_of(IvfSpec { codec, copies, with_vectors: codec == SQ8_ROWS, ..IvfSpec::default() }, count, 7);
        }
    }
    let long = IvfSpec { n: 4000, dim: 60, n_lists: 2, n_batches: 1, ..IvfSpec::default() };
    ivf_of(long, 1000, 5);
    ivf_of(long, 3998, 5);
}

#[test]
fn searches_of_hash_tables_skip_what_was_deleted() {
    let spec = LshSpec::default();
    let written = write_lsh(spec);
    let floats: Vec<f32> = (0..6).flat_map(|i| written.vectors[i * 90].clone()).collect();
    let ask = |engine: &str, k: usize, candidates: Option<u64>| {
        let index = LshIndex::open(written.path(), engine, InMemory::default()).unwrap();
        let queries = Queries { values: Values::Float32(&floats), n: 6, dim: spec.dim };
        index.search(&queries, &LshParams::new(k).candidates(candidates)).unwrap()
    };
    let whole = ask("pread", spec.n, Some(1 << 20));
    let deleted = some(spec.n, 300, 2);
    delete(written.path(), spec.n, &deleted);
    assert_eq!(verify(written.path()), [""; 0]);
    for engine in ["pread", "memory"] {
        // As many as there are: all radii are searched, before and after.
        let found = ask(engine, spec.n, Some(1 << 20));
        for (got, want) in found.slots.chunks(spec.n).zip(whole.slots.chunks(spec.n)) {
            let is_left = |&&slot: &&i64| slot >= 0 && deleted.binary_search(&(slot as u32)).is_err();
            let want: Vec<i64> = want.iter().filter(is_left).copied().collect();
            assert_eq!(got[..want.len()], want);
            assert!(got[want.len()..].iter().all(|&slot| slot == -1) && want.len() > 10);
        }
        let found = ask(engine, 3, None);
        assert!(found.slots.iter().all(|&slot| slot < 0 || deleted.binary_search(&(slot as u32)).is_err()));
        assert!(found.counters.iter().all(|counters| counters.distances < counters.candidates));
    }
    delete(written.path(), spec.n, &(0..spec.n as u32).collect::<Vec<_>>());
    let index = LshIndex::open(written.path(), "pread", InMemory::default()).unwrap();
    assert_eq!(index.memory().deleted, (spec.n as u64).div_ceil(64) * 8);
    assert!(ask("pread", 3, None).slots.iter().all(|&slot| slot == -1));
}

#[test]
fn damage_is_named() {
    let n = 3000;
    type Change = fn(&mut Deletion);
    let changes: [(&str, &str, Change); 14] = [
        ("deleted-000002.imx", "field \"n_vertices\"", |d| d.n_vertices += 1),
        ("deleted-000002.imx", "field \"n_deleted\"", |d| d.n_deleted += 1),
        ("deleted-000002.imx", "field \"n_deleted\"", |d| d.vectors -= 1),
        ("deleted-000002.imx", "section \"slots\"", |d| d.slots.truncate(1499)),
        ("deleted-000002.imx", "page 1: deleted slot 1: expected ascending, 1..2999", |d| d.slots[1] = 0),
        ("deleted-000002.imx", "page 2: deleted slot 1025", |d| d.slots.swap(1024, 1025)),
        ("deleted-000002.imx", "deleted slot 1499: expected ascending", |d| d.slots[1499] = 3000),
        ("deleted-000002.imx", "deleted slot 1499: expected ascending", |d| d.slots[1499] = u32::MAX),
        ("deleted-000002.imx", "build id in the header", |d| d.build_id_off = 1),
        ("manifest.json", "deleted: file: expected \"deleted-\" and at least six digits", |d| d.file = "deleted-2.imx"),
        ("manifest.json", "deleted: file: expected", |d| d.file = "deleted-0000002.imx"),
        ("manifest.json", "deleted: vectors: expected 1..4294967295, got 0", |d| d.vectors = 0),
        ("manifest.json", "deleted: previous: expected 1..1, got 0", |d| d.previous = 0),
        ("manifest.json", "deleted: previous: expected 1..1, got 2", |d| d.previous = 2),
    ];
    for (file, words, change) in changes {
        let written = write_index(Spec { n, dim: 3, max_degree: 3, ..Spec::default() });
        let mut deletion = Deletion::new(n, &(0..1500).map(|i| 2 * i).collect::<Vec<_>>());
        change(&mut deletion);
        deletion.write(written.path());
        let error = Index::open(written.path(), "pread").err().expect("damage that nobody notices");
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        let named = format!("{}: ", written.path().join(file).display());
        for text in verify(written.path()).iter().chain([&error.to_string()]) {
            assert!(text.starts_with(&named) && text.contains(words), "{text}");
        }
    }
}

fn open(path: &Path) -> Result<()> {
    Index::open(path, "pread").map(drop)
}

#[test]
fn every_byte_of_the_file_counts() {
    let n = 1200;
    let written = write_index(Spec { n, dim: 3, max_degree: 3, ..Spec::default() });
    delete(written.path(), n, &some(n, 1100, 5));
    let file = written.path().join("deleted-000002.imx");
    let sound = std::fs::read(&file).unwrap();
    open(written.path()).unwrap();
    for at in (0..sound.len()).step_by(97) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&file, bytes).unwrap();
        open(written.path()).unwrap_err();
        assert!(!verify(written.path()).is_empty(), "byte {at}");
    }
    std::fs::write(&file, &sound[..sound.len() - 4096]).unwrap();
    assert!(open(written.path()).unwrap_err().to_string().contains("size of the file"));
    std::fs::remove_file(&file).unwrap();
    assert!(open(written.path()).unwrap_err().to_string().contains("no such file"));
}

#[test]
fn searches_begin_anywhere_among_deleted_vertices() {
    let n = 300;
    let written = write_index(Spec { n, ..Spec::default() });
    let sampled = &written.navigation.as_ref().unwrap().slots;
    let mut deleted: Vec<u32> = sampled.iter().copied().chain([0, 1, 2, n as u32 / 2]).collect();
    deleted.sort_unstable();
    deleted.dedup();
    delete(written.path(), n, &deleted);
    let index = Index::open(written.path(), "auto").unwrap();
    for entry in [Entry::Medoid, Entry::Centroids, Entry::Navigation] {
        let found = search(&written, &index, 9, &params(5, n, Policy::Pipeline).entry(entry));
        for i in 0..9 {
            let got: Vec<_> = row(&found.scores, &found.slots, i * 5..(i + 1) * 5).collect();
            assert_nearest(&written, i, 5, &deleted, &got, "entries deleted");
        }
    }
}
