//! What the policies have in common, and what a search remembers.

use std::collections::HashSet;

use crate::common::searches::{filter, params, same_except_times, search, timeless, with_queries};
use crate::common::{Spec, write_index};
use indexmill_core::Index;
use indexmill_core::graph::{Entry, EventKind, Policy, SearchOutput};

#[test]
fn completion_finds_and_costs_what_beam_does() {
    let written = write_index(Spec { n: 1500, max_degree: 10, ..Spec::default() });
    let index = Index::open(written.path(), "pread").unwrap();
    let odd = Some(filter(&written, &index, |slot| slot % 2 == 1));
    for cached in [0, 200_000] {
        index.cache_around_entries(cached).unwrap();
        for entry in [Entry::Medoid, Entry::Centroids, Entry::Navigation] {
            for (k, list_size, beam_width) in [(1, 1, 1), (5, 5, 8), (10, 40, 4), (40, 40, 64)] {
                for allow in [None, odd.clone()] {
                    let under = |policy| {
                        let allow = allow.clone();
                        let params = params(k, list_size, policy).beam_width(beam_width).entry(entry).allow(allow);
                        search(&written, &index, 30, &params)
                    };
                    same_except_times(&under(Policy::Beam), &under(Policy::Completion));
                }
            }
        }
    }
}

#[test]
fn every_vertex_that_was_expanded_was_measured() {
    let written = write_index(Spec { n: 1000, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    for policy in [Policy::Beam, Policy::Completion] {
        for c in search(&written, &index, 50, &params(10, 30, policy)).counters {
            assert_eq!(c.distances, c.expansions);
        }
    }
    for policy in [Policy::Page, Policy::Pipeline, Policy::Rounds] {
        let per_block = u64::from(index.graph.layout().nodes_per_block);
        for c in search(&written, &index, 50, &params(10, 30, policy)).counters {
            assert!(c.expansions <= c.distances && c.distances <= c.pages_read * per_block);
        }
    }
}

#[test]
fn previous_results_are_forgotten_between_calls_only_if_searches_must_repeat() {
    let written = write_index(Spec { n: 1500, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let alone = params(5, 20, Policy::Page).entry(Entry::Previous).inflight(1);
    let first = search(&written, &index, 10, &alone);
    same_except_times(&first, &search(&written, &index, 10, &alone));
    let centroid = search(&written, &index, 1, &alone.clone().entry(Entry::Centroids));
    same_except_times(&centroid, &search(&written, &index, 1, &alone));

    let remembers = alone.deterministic(false);
    let again = search(&written, &index, 1, &remembers);
    assert_ne!(timeless(&again.counters), timeless(&centroid.counters));
    assert!(again.scores.iter().zip(&centroid.scores).all(|(now, before)| now <= before), "it starts from its answers");
}

#[test]
fn previous_results_need_one_query_at_a_time_if_searches_must_repeat() {
    let written = write_index(Spec::default());
    let index = Index::open(written.path(), "auto").unwrap();
    for (threads, inflight) in [(2, 1), (1, 2)] {
        let many = params(3, 20, Policy::Pipeline).entry(Entry::Previous).threads(threads).inflight(inflight);
        let refused = crate::common::searches::with_queries(&written, 4, |q| index.search(q, &many));
        assert!(refused.unwrap_err().to_string().contains("threads = 1 and inflight = 1"));
        search(&written, &index, 4, &many.deterministic(false));
    }
}

#[test]
fn rounds_start_at_many_entries_and_are_fewer_than_those_of_page_search() {
    for with_codes in [false, true] {
        let written = write_index(Spec { n: 3000, max_degree: 8, n_sample: 0, with_codes, ..Spec::default() });
        let index = Index::open(written.path(), "pread").unwrap();
        let under = |policy| {
            let wide = params(10, 40, policy).beam_width(16);
            with_queries(&written, 30, |queries| index.search_traced(queries, &wide)).unwrap()
        };
        let ((page, _), (rounds, trace)) = (under(Policy::Page), under(Policy::Rounds));
        let hops = |found: &SearchOutput| found.counters.iter().map(|c| c.hops).sum::<u64>();
        assert!(hops(&rounds) < hops(&page), "{} and {}", hops(&rounds), hops(&page));
        for span in trace.starts.windows(2) {
            let reads: Vec<_> =
                trace.events[span[0]..span[1]].iter().filter(|event| event.kind == EventKind::Read).collect();
            let in_first = reads.iter().filter(|read| read.hop == 1).count();
            assert!((1..=16).contains(&in_first), "{in_first}");
            let blocks: HashSet<u32> = reads.iter().map(|read| read.block).collect();
            assert_eq!(blocks.len(), reads.len(), "a block was read twice");
        }
    }
}
