//! Ids of results: found with the results by every kind of index, in one wave of reads that the counters tell, or in memory.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;

use crate::common::ivf::{IvfSpec, write_ivf};
use crate::common::lsh::{LshSpec, write_lsh};
use crate::common::searches::{POLICIES, filter, params, range_search, search, with_queries, with_typed};
use crate::common::{Random, Spec, Written, page_file, user_text, write_directory, write_index};
use indexmill_core::graph::Policy;
use indexmill_core::ids::UserIds;
use indexmill_core::ivf::IvfParams;
use indexmill_core::lsh::{InMemory, LshParams};
use indexmill_core::{Error, Index, IvfIndex, LshIndex};

const QUICK: &str = concat!("simulated:", env!("CARGO_MANIFEST_DIR"), "/tests/data/quick-device.json");
/// Every read takes 50 ms.
const SLOW: &str = concat!("simulated:", env!("CARGO_MANIFEST_DIR"), "/tests/data/slow-device.json");
const SLOW_US: f32 = 50_000.0;

/// The user ids of vector ids, where missing ones are -1.
fn user_ids(id_type: u64, vector_ids: &[i64]) -> UserIds {
    let number = |&id: &i64| if id < 0 { u64::MAX } else { id as u64 * 3 + (1 << 40) };
    let mut texts = indexmill_core::ids::Texts::default();
    let text = |&id: &i64| if id < 0 { String::new() } else { user_text(id as u32) };
    vector_ids.iter().for_each(|id| texts.push(text(id).as_bytes()));
    match id_type {
        0 => UserIds::None,
        1 => UserIds::Int64(vector_ids.iter().map(|id| number(id) as i64).collect()),
        2 => UserIds::Uint64(vector_ids.iter().map(number).collect()),
        3 => UserIds::String(texts),
        _ => UserIds::Binary(texts),
    }
}

/// The vector ids of slots, -1 for -1.
fn vector_ids_of(written: &Written, slots: &[i64]) -> Vec<i64> {
    slots.iter().map(|&slot| usize::try_from(slot).map_or(-1, |slot| i64::from(written.vector_ids[slot]))).collect()
}

#[test]
fn searches_of_every_type_of_ids_return_those_of_their_results() {
    for id_type in 0..=4 {
        let written = write_index(Spec { id_type, n: 3000, ..Spec::default() });
        for (engine, hold) in [("pread", false), ("auto", false), ("mmap", false), (QUICK, false), ("pread", true)] {
            let index = Index::open(written.path(), engine).unwrap();
            if hold {
                index.ids.hold().unwrap();
            }
            let few = Some(filter(&written, &index, |slot| slot < 4));
            for (policy, allow, beam_width) in POLICIES
                .iter()
                .zip([None, few])
                .map(|(&p, a)| (p, a, 4))
                .chain([(Policy::Pipeline, None, 1), (Policy::Beam, None, 64)])
            {
                let params = params(7, 30, policy).allow(allow).beam_width(beam_width).threads(2);
                let found = search(&written, &index, 9, &params);
                assert_eq!(found.vector_ids, vector_ids_of(&written, &found.slots), "{engine}");
                assert_eq!(found.user_ids, user_ids(id_type, &found.vector_ids), "{engine}, {id_type}");
                assert!(found.counters.iter().all(|c| (c.id_pages_read == 0) == hold));
                let within = range_search(&written, &index, 9, 900.0, &params).unwrap();
                assert_eq!(within.vector_ids, vector_ids_of(&written, &within.slots), "{engine}");
                assert_eq!(within.user_ids, user_ids(id_type, &within.vector_ids), "{engine}, {id_type}");
            }
        }
    }
}

#[test]
fn pages_of_ids_are_read_once_a_query_and_counted_apart() {
    let written = write_index(Spec { id_type: 1, n: 5000, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let found = search(&written, &index, 20, &params(30, 60, Policy::Page));
    for (slots, counters) in found.slots.chunks(30).zip(&found.counters) {
        let of_vectors: BTreeSet<i64> = slots.iter().map(|slot| slot / 1024).collect();
        let of_users: BTreeSet<i64> = slots.iter().map(|slot| slot / 512).collect();
        assert_eq!(counters.id_pages_read as usize, of_vectors.len() + of_users.len() + 1, "one page of checksums");
        assert_eq!(counters.bytes_read, counters.pages_read * 4096);
    }
}

#[test]
fn a_sample_that_trains_a_cache_needs_no_ids() {
    let written = write_index(Spec { n: 2000, ..Spec::default() });
    let index = Index::open(written.path(), "pread").unwrap();
    damage(&written, 1);
    let params = params(5, 20, Policy::Page);
    with_queries(&written, 5, |queries| index.cache_from_queries(queries, &params, 1 << 20)).unwrap();
    let refused = with_queries(&written, 5, |queries| index.search(queries, &params)).unwrap_err();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
}

/// Changes a byte of a page of ids.imx in its place.
fn damage(written: &Written, page: usize) {
    let path = written.path().join("ids.imx");
    let file = fs::OpenOptions::new().write(true).read(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, page as u64 * 4096 + 99).unwrap();
    file.write_all_at(&[byte[0] ^ 1], page as u64 * 4096 + 99).unwrap();
}

#[test]
fn a_damaged_page_of_ids_ends_the_searches_that_need_it() {
    for (id_type, page) in [(0, 1), (1, 2), (3, 2), (4, 4)] {
        let written = write_index(Spec { id_type, n: 900, ..Spec::default() });
        let open = || Index::open(written.path(), "auto").unwrap();
        let (sound, index) = (open(), open());
        sound.ids.hold().unwrap();
        let all = params(900, 900, Policy::Page);
        let want = search(&written, &index, 1, &all);
        damage(&written, page);
        let error = with_queries(&written, 1, |queries| index.search(queries, &all)).unwrap_err();
        assert!(error.to_string().contains(&format!("ids.imx: page {page}: expected CRC32C ")), "{error}");
        let held = search(&written, &sound, 1, &all);
        assert_eq!(held.user_ids, want.user_ids, "what is in memory was checked");
        assert!(open().ids.hold().unwrap_err().to_string().contains(&format!("ids.imx: page {page}:")));
    }
}

/// Slowest and quickest query of a search that needs no page of the graph.
fn latencies_of_ids(id_type: u64, hold: bool) -> (f32, f32) {
    let written = write_index(Spec { id_type, n: 3000, ..Spec::default() });
    let index = Index::open(written.path(), SLOW).unwrap();
    index.cache_around_entries(usize::MAX >> 8).unwrap();
    if hold {
        index.ids.hold().unwrap();
    }
    let found = search(&written, &index, 3, &params(10, 30, Policy::Page).inflight(1));
    assert!(found.counters.iter().all(|c| c.pages_read == 0));
    let latencies = || found.counters.iter().map(|c| c.latency_us);
    (latencies().fold(f32::INFINITY, f32::min), latencies().fold(0.0, f32::max))
}

#[test]
fn the_latency_of_a_query_includes_one_wave_of_reads_for_numbers_and_two_for_text() {
    for (id_type, waves) in [(0, 1.0), (1, 1.0), (3, 2.0)] {
        let (least, _) = latencies_of_ids(id_type, false);
        let range = waves * SLOW_US..(waves + 1.0) * SLOW_US;
        assert!(range.contains(&least), "type {id_type}: {least} us");
        let (least, _) = latencies_of_ids(id_type, true);
        assert!(least < SLOW_US, "type {id_type}: {least} us");
    }
}

#[test]
fn ids_in_memory_are_counted_as_memory_and_shared_by_views() {
    for (id_type, bytes) in [(0, 4), (1, 12), (2, 12), (3, 12)] {
        let written = write_index(Spec { id_type, n: 3000, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let mut order: Vec<u32> = (0..3000).collect();
        let mut random = Random(3);
        (1..3000).for_each(|i| order.swap(i, random.below(i + 1)));
        let view = index.remapped(&order).unwrap();
        let before = (index.memory_bytes(), view.memory_bytes());
        assert!(matches!(index.ids.hold_unless(&mut || true), Err(Error::Interrupted)));
        index.ids.hold().unwrap();
        index.ids.hold_unless(&mut || true).unwrap();
        let more = index.memory_bytes() - before.0;
        assert!(more >= 3000 * bytes && more < 3000 * (bytes + 20), "{more}");
        assert_eq!(view.memory_bytes() - before.1, more);
        let found = search(&written, &view, 5, &params(5, 20, Policy::Pipeline));
        let homes: Vec<i64> = found.slots.iter().map(|&slot| order[slot as usize].into()).collect();
        assert_eq!(found.vector_ids, vector_ids_of(&written, &homes));
        assert_eq!(found.user_ids, user_ids(id_type, &found.vector_ids));
    }
}

#[test]
fn a_view_reads_ids_from_the_file_of_its_index() {
    for id_type in 0..=4 {
        let written = write_index(Spec { id_type, n: 2000, ..Spec::default() });
        for engine in ["auto", "mmap", QUICK] {
            let index = Index::open(written.path(), engine).unwrap();
            let order: Vec<u32> = (0..2000).rev().collect();
            let view = index.remapped(&order).unwrap();
            let found = search(&written, &view, 5, &params(5, 20, Policy::Pipeline));
            let homes: Vec<i64> = found.slots.iter().map(|&slot| order[slot as usize].into()).collect();
            assert_eq!(found.vector_ids, vector_ids_of(&written, &homes), "{engine}");
            assert_eq!(found.user_ids, user_ids(id_type, &found.vector_ids), "{engine}");
            assert!(found.counters.iter().all(|c| c.id_pages_read > 0));
        }
    }
}

#[test]
fn searches_of_hash_tables_and_lists_find_the_ids_of_their_results() {
    let (tables, lists) = (write_lsh(LshSpec { n: 2000, ..LshSpec::default() }), write_ivf(IvfSpec::default()));
    for (engine, hold) in [("auto", false), ("pread", true), ("mmap", false), ("memory", false), (QUICK, false)] {
        let reads_none = hold || engine == "memory";
        let index = LshIndex::open(tables.path(), engine, InMemory::default()).unwrap();
        let floats: Vec<f32> = (0..9).flat_map(|i| tables.query(i)).collect();
        let params = LshParams::new(4).threads(2).inflight(3);
        let before = index.memory_bytes();
        if hold {
            index.ids.hold().unwrap();
            assert_eq!(index.memory_bytes() - before, (2000u64 * 8).next_multiple_of(4096), "slots are vector ids");
        }
        let found =
            with_typed(tables.spec.dtype, tables.spec.dim, &floats, |queries| index.search(queries, &params)).unwrap();
        assert_eq!(found.user_ids, user_ids(1, &found.slots), "{engine}");
        assert!(found.counters.iter().all(|c| (c.id_pages_read == 0) == reads_none), "{engine}");

        let index = IvfIndex::open(lists.path(), engine).unwrap();
        if hold {
            index.ids.hold().unwrap();
        }
        assert_eq!(index.memory().ids > 0, reads_none);
        let floats: Vec<f32> = (0..9).flat_map(|i| lists.query(i)).collect();
        let params = IvfParams::new(4, 2).rerank(0).threads(2).inflight(3);
        let found =
            with_typed(lists.spec.dtype, lists.spec.dim, &floats, |queries| index.search(queries, &params)).unwrap();
        assert_eq!(found.user_ids, user_ids(1, &found.slots), "{engine}");
        assert!(found.counters.iter().all(|c| (c.id_pages_read == 0) == reads_none), "{engine}");
    }
}

#[test]
fn user_ids_lead_to_vector_ids_in_one_pass_and_unknown_ones_to_nothing() {
    for id_type in 1..=4 {
        let written = write_index(Spec { id_type, n: 70_000, dim: 2, max_degree: 2, n_sample: 0, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let order: Vec<u32> = (0..70_000).rev().collect();
        let view = index.remapped(&order).unwrap();
        // Of texts of the test index many are equal: a few are found, in whichever vector has them.
        let wanted: Vec<i64> = [69_999, 3, 0, 3, 20_000].into_iter().collect();
        let unknown = match id_type {
            1 => UserIds::Int64(vec![-5, 1 << 40]),
            2 => UserIds::Uint64(vec![u64::MAX, 1 << 40]),
            3 => UserIds::String(["nobody", ""].into_iter().collect()),
            _ => UserIds::Binary(["nobody", ""].into_iter().collect()),
        };
        for hold in [false, true] {
            if hold {
                index.ids.hold().unwrap();
            }
            for ids in [&index.ids, &view.ids] {
                let found = ids.find(&user_ids(id_type, &wanted)).unwrap();
                let found: Vec<i64> = found.into_iter().map(|id| i64::from(id.unwrap())).collect();
                assert_eq!(user_ids(id_type, &found), user_ids(id_type, &wanted));
                assert_eq!(found[1], found[3]);
                assert!(id_type > 2 || found == wanted);
                let none = ids.find(&unknown).unwrap();
                assert!(none[0].is_none() && none[1].is_some(), "the second is that of vector 0");
            }
        }
        assert!(matches!(index.ids.find_unless(&unknown, &mut || true), Err(Error::Interrupted)));
        let refused = index.ids.find(&UserIds::None).unwrap_err().to_string();
        assert!(refused.contains("got ids of type none; pass ids of the index's type"), "{refused}");
    }
}

#[test]
fn sections_of_ids_are_found_by_name_in_any_order() {
    for id_type in [1, 3] {
        let written = write_index(Spec { id_type, n: 3000, n_sample: 0, ..Spec::default() });
        let names = ["graph.imx", "codes.imx", "entries.imx", "ids.imx"];
        let mut files: Vec<(&str, Vec<u8>)> =
            names.iter().map(|&name| (name, fs::read(written.path().join(name)).unwrap())).collect();
        let ids = &files[3].1;
        let payload = |page: usize, bytes: usize| ids[page * 4096..][..bytes].to_vec();
        let vector_ids = ("vector_ids", payload(1, 12_000));
        let values =
            (if id_type == 1 { "values" } else { "offsets" }, payload(4, 24_000 + 8 * usize::from(id_type == 3)));
        let mut sections = vec![values, vector_ids];
        if id_type == 3 {
            let bytes: Vec<u8> = written.vector_ids.iter().flat_map(|&id| user_text(id).into_bytes()).collect();
            sections.insert(0, ("bytes", bytes));
        }
        files[3].1 = page_file(b"IDMP", &[0; 16], &[("n_vertices", 3000), ("id_type", id_type)], &sections);
        write_directory(written.path(), &mut files);
        let index = Index::open(written.path(), "auto").unwrap();
        for hold in [false, true] {
            if hold {
                index.ids.hold().unwrap();
            }
            let found = search(&written, &index, 9, &params(7, 30, Policy::Pipeline));
            assert_eq!(found.vector_ids, vector_ids_of(&written, &found.slots));
            assert_eq!(found.user_ids, user_ids(id_type, &found.vector_ids));
        }
    }
}
