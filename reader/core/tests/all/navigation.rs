//! The navigation graph: its search against a naive one, and what a hostile file cannot do.

use std::fs;

use crate::common::{SmallNavigation, Spec, Written, page_file, write_directory, write_index};
use indexmill_core::codes::{CodeTable, Codes};
use indexmill_core::directory::Directory;
use indexmill_core::graph::navigation::{Navigation, NavigationSearch};
use indexmill_core::verify::verify;
use indexmill_core::{Error, Index};

/// Few dimensions, so that many vertices share a code and the slot decides.
fn with_sample(n: usize, n_sample: usize) -> (Written, Index) {
    let written = write_index(Spec { n, n_sample, dim: 2, seed: n_sample as u64, ..Spec::default() });
    let index = Index::open(written.path(), "pread").unwrap();
    (written, index)
}

/// (distance, slot) of a key.
fn decode(key: u64) -> (f32, u32) {
    (f32::from_bits((key >> 32) as u32 & !(1 << 31)), key as u32)
}

/// Best-first search with lists that are scanned and sorted whole; (distance, slot) of the candidates, and how many
/// code distances were computed.
fn naive(codes: &Codes, graph: &SmallNavigation, table: &mut CodeTable, list_size: usize) -> (Vec<(f32, u32)>, u64) {
    let mut candidate = |v: u32| {
        let (slot, mut score) = (graph.slots[v as usize], Vec::new());
        codes.score(table, &[slot], None, |_, distance| score.push(distance));
        (score[0], slot, v, false)
    };
    let (mut seen, mut scored) = (vec![graph.entry as u32], 1);
    let mut candidates = vec![candidate(graph.entry as u32)];
    while let Some(nearest) = candidates.iter_mut().find(|c| !c.3) {
        nearest.3 = true;
        for &u in &graph.lists[nearest.2 as usize] {
            scored += 1;
            if !seen.contains(&u) {
                seen.push(u);
                candidates.push(candidate(u));
            }
        }
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        candidates.truncate(list_size);
    }
    (candidates.iter().map(|c| (c.0, c.1)).collect(), scored)
}

#[test]
fn the_search_is_that_of_a_naive_one_for_any_list_and_a_used_state() {
    let mut state = NavigationSearch::default();
    let (mut table, mut out) = (CodeTable::default(), Vec::new());
    for (n, n_sample) in [(1, 1), (7, 2), (300, 40), (1500, 1500)] {
        let (written, index) = with_sample(n, n_sample);
        let (graph, navigation) = (written.navigation.as_ref().unwrap(), index.navigation.as_ref().unwrap());
        for i in 0..20 {
            index.codes.fill_table(&written.query(i), &mut table).unwrap();
            for list_size in [1, 2, 5, 32, n_sample] {
                let scored = navigation.search(&index.codes, &mut table, list_size, &mut state, &mut out);
                let got: Vec<_> = out.iter().map(|&key| decode(key)).collect();
                assert_eq!(
                    (got, scored),
                    naive(&index.codes, graph, &mut table, list_size),
                    "{n_sample}, L={list_size}"
                );
            }
        }
    }
}

#[test]
fn a_list_of_the_whole_sample_ranks_it_by_code_distance_then_slot() {
    let (written, index) = with_sample(400, 150);
    let (graph, navigation) = (written.navigation.as_ref().unwrap(), index.navigation.as_ref().unwrap());
    let (mut table, mut scores, mut out) = (CodeTable::default(), Vec::new(), Vec::new());
    index.codes.fill_table(&written.query(3), &mut table).unwrap();
    index.codes.score(&mut table, &graph.slots, None, |_, distance| scores.push(distance));
    let mut want: Vec<(f32, u32)> = scores.iter().copied().zip(graph.slots.iter().copied()).collect();
    want.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert!(want.windows(2).any(|pair| pair[0].0 == pair[1].0), "no tie: the slot was never asked");
    let scored = navigation.search(&index.codes, &mut table, 150, &mut NavigationSearch::default(), &mut out);
    assert_eq!(out.iter().map(|&key| decode(key)).collect::<Vec<_>>(), want);
    let edges: usize = graph.lists.iter().map(Vec::len).sum();
    assert_eq!(scored, 1 + edges as u64);
}

#[test]
fn an_opened_graph_is_what_was_written_and_its_memory_is_counted() {
    let (written, index) = with_sample(300, 40);
    let (graph, navigation) = (written.navigation.as_ref().unwrap(), index.navigation.as_ref().unwrap());
    assert_eq!((&navigation.slots, navigation.entry as usize), (&graph.slots, graph.entry));
    assert!((0..40).all(|v| navigation.neighbours(v) == graph.lists[v as usize]));
    let edges = graph.lists.concat().len() as u64;
    assert_eq!(navigation.memory_bytes(), 4 * (40 + 41 + edges));
    let pages = |name: &str| fs::metadata(written.path().join(name)).unwrap().len() / 4096 - 3; // one page of checksums
    let codes = 300 * 2 + 1024 * 2 + 3 * 8;
    let rest = 3 * 4 * (2 + 1) + 4 * pages("graph.imx");
    assert_eq!(index.memory_bytes(), navigation.memory_bytes() + codes + rest);
}

#[test]
fn an_index_may_lack_the_graph_and_ignores_one_that_the_manifest_does_not_name() {
    let (written, index) = with_sample(50, 0);
    assert!(index.navigation.is_none());
    fs::write(written.path().join("navigation.imx"), b"nothing of ours").unwrap();
    assert!(Index::open(written.path(), "pread").unwrap().navigation.is_none());
    assert!(verify(written.path()).is_empty());
}

/// An index of 60 vertices whose navigation.imx is `graph`.
fn index_with(graph: Vec<u8>) -> Written {
    let written = write_index(Spec { n: 60, n_sample: 0, ..Spec::default() });
    let names = ["codes.imx", "entries.imx", "graph.imx", "ids.imx"];
    let mut files: Vec<(&str, Vec<u8>)> =
        names.iter().map(|&name| (name, fs::read(written.path().join(name)).unwrap())).collect();
    files.push(("navigation.imx", graph));
    write_directory(written.path(), &mut files);
    written
}

/// Message of the error that opening `graph` gives; opening and verifying its index give the same.
fn refusal(graph: Vec<u8>) -> String {
    let written = index_with(graph);
    let error = Navigation::open(&Directory::open(written.path()).unwrap(), 60, &mut || false).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let opened = Index::open(written.path(), "pread").err().unwrap();
    assert_eq!((opened.to_string(), verify(written.path())), (error.to_string(), vec![error.to_string()]));
    error.to_string()
}

/// The file of a graph of three vertices after `change`, with fields that agree with its contents.
fn changed(change: impl FnOnce(&mut SmallNavigation)) -> Vec<u8> {
    let lists = vec![vec![1, 2], vec![2], vec![0]];
    let mut graph = SmallNavigation { n_vertices: 60, max_degree: 2, entry: 1, slots: vec![4, 9, 59], lists };
    change(&mut graph);
    graph.file()
}

#[test]
fn every_value_out_of_range_is_refused_with_its_place() {
    type Change = fn(&mut SmallNavigation);
    let cases: [(Change, &str); 10] = [
        (|g| g.n_vertices = 61, "field \"n_vertices\" in the header: expected 60, got 61"),
        (|g| g.max_degree = 0, "field \"max_degree\" in the header: expected 1..512, got 0"),
        (|g| g.max_degree = 513, "field \"max_degree\" in the header: expected 1..512, got 513"),
        (|g| g.max_degree = 1, "field \"n_edges\" in the header: expected 0..3, got 4"),
        (|g| g.entry = 3, "field \"entry\" in the header: expected 0..2, got 3"),
        (|g| g.slots[2] = 60, "section \"slots\": expected ascending slots below 60"),
        (|g| g.slots[1] = 4, "section \"slots\": expected ascending slots"),
        (|g| g.slots[0] = 10, "section \"slots\": expected ascending slots"),
        (|g| g.lists[1] = vec![3], "neighbour 2: expected a local position below 3, got 3"),
        (|g| g.lists = vec![vec![0, 1, 2], vec![], vec![]], "offset 1: expected 0..2 more than 0, got 3"),
    ];
    for (change, words) in cases {
        let message = refusal(changed(change));
        assert!(message.contains("navigation.imx: ") && message.contains(words), "{message}");
    }
}

#[test]
fn offsets_must_lead_from_nothing_to_everything_without_going_back() {
    let file = |offsets: [u32; 4]| {
        let fields = [("n_vertices", 60u64), ("n_sample", 3), ("max_degree", 2), ("n_edges", 4), ("entry", 0)];
        let words = |values: &[u32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let sections =
            [("slots", words(&[4, 9, 59])), ("offsets", words(&offsets)), ("neighbours", words(&[0, 1, 2, 0]))];
        page_file(b"NAVI", &[0; 16], &fields, &sections)
    };
    for (offsets, words) in [
        ([1, 2, 3, 4], "section \"offsets\": expected offsets from 0 to 4"),
        ([0, 2, 3, 5], "section \"offsets\": expected offsets from 0 to 4"),
        ([0, 2, 1, 4], "offset 2: expected 0..2 more than 2, got 1"),
        ([0, u32::MAX, 2, 4], "offset 1: expected 0..2 more than 0"),
    ] {
        let message = refusal(file(offsets));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn sizes_and_counts_that_disagree_are_refused_before_anything_is_read() {
    let sections = |missing: &str, words: usize| {
        let all = [("slots", 3), ("offsets", 4), ("neighbours", 4)];
        let kept = all.into_iter().filter(|(name, _)| *name != missing);
        kept.map(|(name, count)| (name, vec![0u8; 4 * count * words])).collect::<Vec<_>>()
    };
    let fields = |n_sample: u64, n_edges: u64| {
        [("n_vertices", 60), ("n_sample", n_sample), ("max_degree", 512), ("n_edges", n_edges), ("entry", 0)]
    };
    for (n_sample, n_edges, missing, words, expected) in [
        (0, 4, "", 1, "field \"n_sample\" in the header: expected 1..60, got 0"),
        (61, 4, "", 1, "field \"n_sample\" in the header: expected 1..60, got 61"),
        (u64::MAX, 4, "", 1, "field \"n_sample\""),
        (3, u64::MAX, "", 1, "field \"n_edges\""),
        (3, 5, "", 1, "section \"neighbours\" in the header: expected 20 bytes, got 16"),
        (4, 4, "", 1, "section \"slots\" in the header: expected 16 bytes, got 12"),
        (3, 4, "", 2, "section \"slots\" in the header: expected 12 bytes, got 24"),
        (3, 4, "slots", 1, "section \"slots\" in the header: expected an entry, got none"),
        (3, 4, "offsets", 1, "section \"offsets\" in the header: expected an entry, got none"),
        (3, 4, "neighbours", 1, "section \"neighbours\" in the header: expected an entry, got none"),
    ] {
        let message = refusal(page_file(b"NAVI", &[0; 16], &fields(n_sample, n_edges), &sections(missing, words)));
        assert!(message.contains(expected), "{message}");
    }
    for missing in 0..5 {
        let mut kept = fields(3, 4).to_vec();
        let name = kept.remove(missing).0;
        let message = refusal(page_file(b"NAVI", &[0; 16], &kept, &sections("", 1)));
        assert!(message.contains(&format!("field {name:?} in the header: expected a value")), "{message}");
    }
}

#[test]
fn a_repeated_neighbour_does_no_harm_and_verify_finds_it() {
    let written = index_with(changed(|g| g.lists[0] = vec![2, 2]));
    let index = Index::open(written.path(), "pread").unwrap();
    let (mut table, mut out) = (CodeTable::default(), Vec::new());
    index.codes.fill_table(&written.query(0), &mut table).unwrap();
    let navigation = index.navigation.as_ref().unwrap();
    assert_eq!(navigation.search(&index.codes, &mut table, 3, &mut NavigationSearch::default(), &mut out), 5);
    assert_eq!(out.len(), 3);
    let found = verify(written.path()).concat();
    assert!(found.contains("local position 0: expected distinct neighbours, got 2 twice"), "{found}");
}
