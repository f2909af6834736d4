//! Indexes that are searched together, against brute force over the vectors of all, and against a single index.

use std::fs;
use std::sync::Arc;

use crate::common::searches::{POLICIES, filter, params, row, same_answers, same_except_times, with_typed};
use crate::common::{FLOAT16, FLOAT32, INT8, SQ8, SQ16, Spec, UINT8, Written, user_text, write_index};
use crate::deleted::deletion::delete;
use indexmill_core::graph::{Entry, GraphSet, Policy, SearchOutput, SearchParams};
use indexmill_core::ids::UserIds;
use indexmill_core::search::Queries;
use indexmill_core::{Error, Index, Result};

const SIZES: [usize; 3] = [300, 410, 257];
const N: usize = SIZES[0] + SIZES[1] + SIZES[2];

/// Indexes with a codebook in common.
struct Set {
    parts: Vec<Written>,
    indexes: Vec<Arc<Index>>,
}

impl Set {
    fn new(spec: Spec) -> Self {
        Self::opened(
            SIZES.iter().zip(1..).map(|(&n, seed)| write_index(Spec { n, seed, book: Some(9), ..spec })).collect(),
        )
    }

    fn opened(parts: Vec<Written>) -> Self {
        let indexes = parts.iter().map(|part| Arc::new(Index::open(part.path(), "pread").unwrap())).collect();
        Set { parts, indexes }
    }

    fn together(&self) -> GraphSet {
        GraphSet::new(self.indexes.clone()).unwrap()
    }

    /// Slots of all by (squared distance, slot), of those for which `has(part, slot)`.
    fn exact(&self, query: &[f32], k: usize, has: impl Fn(usize, i64) -> bool) -> Vec<(f32, i64)> {
        let (mut all, mut before) = (Vec::new(), 0);
        for (number, part) in self.parts.iter().enumerate() {
            let mut own = part.exact(query, part.spec.n);
            own.retain(|&(_, slot)| has(number, slot));
            all.extend(own.into_iter().map(|(distance, slot)| (distance, before + slot)));
            before += part.spec.n as i64;
        }
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all.truncate(k);
        all
    }

    /// Queries near vectors of each part.
    fn queries(&self, n: usize) -> Vec<Vec<f32>> {
        (0..n).map(|i| self.parts[i % self.parts.len()].query(i)).collect()
    }

    fn asked<T>(&self, queries: &[Vec<f32>], ask: impl FnOnce(&Queries<'_>) -> T) -> T {
        with_typed(self.parts[0].spec.dtype, self.parts[0].spec.dim, &queries.concat(), ask)
    }

    fn search(&self, set: &GraphSet, queries: &[Vec<f32>], params: &SearchParams) -> Result<SearchOutput> {
        let routes = vec![true; queries.len() * self.parts.len()];
        self.asked(queries, |queries| set.search(queries, &routes, params))
    }
}

fn answers(found: &SearchOutput, i: usize) -> Vec<(f32, i64)> {
    row(&found.scores, &found.slots, i * found.k..(i + 1) * found.k).filter(|&(_, slot)| slot >= 0).collect()
}

#[test]
fn a_list_of_all_vertices_finds_what_brute_force_finds() {
    for dtype in [FLOAT32, FLOAT16, UINT8, INT8, SQ16, SQ8] {
        let set = Set::new(Spec { dtype, ..Spec::default() });
        let (together, queries, k) = (set.together(), set.queries(6), 10);
        for (policy, entry) in
            POLICIES.into_iter().zip([Entry::Medoid, Entry::Centroids, Entry::Navigation].into_iter().cycle())
        {
            let found = set.search(&together, &queries, &params(k, N, policy).entry(entry)).unwrap();
            for (i, query) in queries.iter().enumerate() {
                assert_eq!(
                    answers(&found, i),
                    set.exact(query, k, |_, _| true),
                    "dtype {dtype}, {policy:?}, query {i}"
                );
            }
        }
    }
}

#[test]
fn one_index_is_searched_as_by_itself() {
    let written = write_index(Spec { n: 3000, ..Spec::default() });
    let index = Arc::new(Index::open(written.path(), "pread").unwrap());
    let set = GraphSet::new(vec![index.clone()]).unwrap();
    for policy in POLICIES {
        for entry in [Entry::Centroids, Entry::Navigation] {
            let params = params(10, 30, policy).entry(entry);
            let floats: Vec<f32> = (0..8).flat_map(|i| written.query(i)).collect();
            with_typed(FLOAT32, 12, &floats, |queries| {
                let alone = index.search(queries, &params).unwrap();
                same_except_times(&alone, &set.search(queries, &[true; 8], &params).unwrap());
            });
        }
    }
}

#[test]
fn ids_are_those_of_the_index_that_has_the_vector() {
    for id_type in 1..=4 {
        let set = Set::new(Spec { id_type, ..Spec::default() });
        let (together, queries, k) = (set.together(), set.queries(5), 7);
        let read = set.search(&together, &queries, &params(k, N, Policy::Pipeline)).unwrap();
        assert!(read.counters.iter().all(|counters| counters.id_pages_read >= 3));
        set.indexes.iter().for_each(|index| index.ids.hold().unwrap());
        let held = set.search(&together, &queries, &params(k, N, Policy::Pipeline)).unwrap();
        assert!(held.counters.iter().all(|counters| counters.id_pages_read == 0));
        same_answers(&read, &held);
        let starts = [0, SIZES[0], SIZES[0] + SIZES[1], N];
        let mut own = Vec::new();
        for (&slot, &id) in read.slots.iter().zip(&read.vector_ids) {
            let number = starts.partition_point(|&start| start as i64 <= slot) - 1;
            let vector_id = set.parts[number].vector_ids[slot as usize - starts[number]];
            assert_eq!(id, starts[number] as i64 + i64::from(vector_id));
            own.push(vector_id);
        }
        let value = |&id: &u32| u64::from(id) * 3 + (1 << 40);
        match read.user_ids {
            UserIds::Int64(ids) => assert!(ids.iter().map(|&id| id as u64).eq(own.iter().map(value))),
            UserIds::Uint64(ids) => assert!(ids.iter().copied().eq(own.iter().map(value))),
            UserIds::String(texts) | UserIds::Binary(texts) => {
                let want: Vec<String> = own.iter().map(|&id| user_text(id)).collect();
                assert!(texts.iter().eq(want.iter().map(String::as_bytes)));
            }
            _ => panic!("no ids"),
        }
    }
}

#[test]
fn only_indexes_that_a_query_needs_are_searched() {
    let set = Set::new(Spec::default());
    let (together, queries, k) = (set.together(), set.queries(6), 10);
    let needs = |i: usize, number: usize| !(i + number).is_multiple_of(3);
    let routes: Vec<bool> = (0..6).flat_map(|i| (0..3).map(move |number| needs(i, number))).collect();
    let params = params(k, N, Policy::Pipeline);
    let found = set.asked(&queries, |queries| together.search(queries, &routes, &params)).unwrap();
    for (i, query) in queries.iter().enumerate() {
        assert_eq!(answers(&found, i), set.exact(query, k, |number, _| needs(i, number)), "query {i}");
    }
}

#[test]
fn filters_and_deletions_leave_out_what_they_should() {
    let parts: Vec<Written> = SIZES
        .iter()
        .zip(1..)
        .map(|(&n, seed)| write_index(Spec { n, seed, book: Some(9), ..Spec::default() }))
        .collect();
    let gone: Vec<u32> = (0..SIZES[1] as u32).filter(|slot| slot % 4 == 1).collect();
    delete(parts[1].path(), SIZES[1], &gone);
    let set = Set::opened(parts);
    let (together, queries, k) = (set.together(), set.queries(5), 10);
    let lives = |number: usize, slot: i64| number != 1 || slot % 4 != 1;
    for policy in POLICIES {
        let found = set.search(&together, &queries, &params(k, N, policy)).unwrap();
        for (i, query) in queries.iter().enumerate() {
            assert_eq!(answers(&found, i), set.exact(query, k, lives), "{policy:?}, query {i}");
        }
        for step in [1, 2, 40, 1000] {
            let made: Vec<_> = set
                .parts
                .iter()
                .zip(&set.indexes)
                .map(|(part, index)| filter(part, index, |slot| slot % step == 1 % step))
                .collect();
            let allow = Arc::new(together.filter(&made).unwrap());
            let found = set.search(&together, &queries, &params(k, N, policy).allow(allow)).unwrap();
            for (i, query) in queries.iter().enumerate() {
                let has =
                    |number: usize, slot: i64| lives(number, slot) && slot % i64::from(step) == i64::from(1 % step);
                assert_eq!(answers(&found, i), set.exact(query, k, has), "{policy:?}, step {step}, query {i}");
            }
        }
    }
}

#[test]
fn filters_of_other_indexes_are_refused_by_name() {
    let set = Set::new(Spec::default());
    let together = set.together();
    let made: Vec<_> = set.parts.iter().zip(&set.indexes).map(|(part, index)| filter(part, index, |_| true)).collect();
    let refused = |filters: &[Arc<_>]| together.filter(filters).unwrap_err().to_string();
    assert!(refused(&made[..2]).contains("expected 3 filters"));
    let exchanged = [made[0].clone(), made[2].clone(), made[1].clone()];
    assert!(refused(&exchanged).contains(set.parts[1].path().to_str().unwrap()));
    let alone = params(3, 10, Policy::Beam).allow(made[0].clone());
    let message = set.search(&together, &set.queries(1), &alone).unwrap_err().to_string();
    assert!(message.contains("made for another build"), "{message}");
}

#[test]
fn engines_threads_queries_in_flight_and_caches_change_no_answer() {
    let set = Set::new(Spec { n_sample: 40, ..Spec::default() });
    let (queries, k) = (set.queries(40), 5);
    for policy in POLICIES {
        let params = params(k, 24, policy).entry(Entry::Navigation);
        let want = set.search(&set.together(), &queries, &params.clone().inflight(1)).unwrap();
        for engine in ["auto", "pread", "mmap"] {
            let indexes = set.parts.iter().map(|part| Arc::new(Index::open(part.path(), engine).unwrap()));
            let together = GraphSet::new(indexes.collect()).unwrap();
            for (threads, inflight) in [(1, 7), (3, 2)] {
                let found =
                    set.search(&together, &queries, &params.clone().threads(threads).inflight(inflight)).unwrap();
                same_except_times(&want, &found);
            }
        }
        for index in &set.indexes[1..] {
            index.cache_around_entries(40_000).unwrap();
        }
        let cached = set.search(&set.together(), &queries, &params).unwrap();
        same_answers(&want, &cached);
        let reads = |found: &SearchOutput| found.counters.iter().map(|c| c.pages_read).sum::<u64>();
        assert!(reads(&cached) < reads(&want), "{policy:?}");
        assert!(cached.counters.iter().any(|c| c.cache_hits > 0), "{policy:?}");
        for index in &set.indexes {
            index.cache_around_entries(0).unwrap();
        }
    }
}

#[test]
fn damage_names_the_index() {
    let set = Set::new(Spec::default());
    let path = set.parts[1].path().join("graph.imx");
    let mut bytes = fs::read(&path).unwrap();
    let nodes = set.indexes[1].graph.layout().page_of(0) as usize * 4096;
    bytes[nodes..].iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
    let together = GraphSet::new(set.indexes.clone()).unwrap();
    fs::write(&path, bytes).unwrap();
    let error = set.search(&together, &set.queries(2), &params(3, N, Policy::Pipeline)).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert_eq!(error.path(), Some(&*path));
}

#[test]
fn indexes_whose_codes_do_not_compare_are_refused_by_name() {
    let first = write_index(Spec { book: Some(9), ..Spec::default() });
    let others = [
        (Spec { seed: 2, ..Spec::default() }, "another codebook"),
        (Spec { seed: 2, book: Some(9), dtype: SQ8, ..Spec::default() }, "another format of nodes"),
        (Spec { seed: 2, book: Some(9), max_degree: 5, ..Spec::default() }, "another format of nodes"),
        (Spec { seed: 2, book: Some(9), id_type: 3, ..Spec::default() }, "another type of ids"),
        (Spec { seed: 2, book: Some(9), id_type: 0, ..Spec::default() }, "no user ids"),
        (Spec { seed: 2, book: Some(9), n_sample: 0, with_codes: true, ..Spec::default() }, "codes are in the nodes"),
    ];
    for (spec, reason) in others {
        let other = write_index(spec);
        let indexes = [&first, &other].map(|written| Arc::new(Index::open(written.path(), "pread").unwrap()));
        let message = GraphSet::new(indexes.to_vec()).err().unwrap().to_string();
        assert!(message.contains(reason) && message.contains(other.path().to_str().unwrap()), "{message}");
    }
    assert!(GraphSet::new(Vec::new()).err().unwrap().to_string().contains("at least one index"));
}

#[test]
fn what_does_not_fit_a_set_is_refused() {
    let set = Set::new(Spec::default());
    let together = set.together();
    let refused = |params: &SearchParams| set.search(&together, &set.queries(1), params).unwrap_err().to_string();
    let previous = params(3, 10, Policy::Beam).entry(Entry::Previous).inflight(1);
    assert!(refused(&previous).contains("entry \"previous\""));
    assert!(refused(&params(N + 1, N + 1, Policy::Beam)).contains(&format!("the index has {N} vectors")));
    let few = set.asked(&set.queries(2), |queries| together.search(queries, &[true; 5], &params(3, 10, Policy::Beam)));
    assert!(few.unwrap_err().to_string().contains("expected 2 x 3 booleans"));
}

#[test]
fn a_caller_that_gives_up_ends_the_search() {
    let set = Set::new(Spec::default());
    let together = set.together();
    let queries = set.queries(200);
    let routes = vec![true; 600];
    let params = params(3, N, Policy::Beam);
    let ended = set.asked(&queries, |queries| together.search_unless(queries, &routes, &params, &mut || true));
    assert!(matches!(ended, Err(Error::Interrupted)));
}

#[test]
fn a_walk_through_a_filter_finds_allowed_vertices_of_all_indexes() {
    let parts = (1..4).map(|seed| write_index(Spec { n: 1200, seed, book: Some(9), ..Spec::default() }));
    let set = Set::opened(parts.collect());
    let (together, queries) = (set.together(), set.queries(12));
    let made: Vec<_> =
        set.parts.iter().zip(&set.indexes).map(|(part, index)| filter(part, index, |slot| slot % 10 != 0)).collect();
    let allow = Arc::new(together.filter(&made).unwrap());
    let walked = set.search(&together, &queries, &params(1, 1, Policy::Pipeline).allow(allow)).unwrap();
    assert!(walked.slots.iter().all(|&slot| slot >= 0 && slot % 1200 % 10 != 0));
    assert!(walked.counters.iter().all(|c| c.expansions < 600 && c.code_distances < 3000), "all are scanned");
}
