//! Traces: complete, true to the counters, and the same however a search is run.

use crate::common::searches::{POLICIES, filter, params, same_except_times, search, with_queries};
use crate::common::{Spec, Written, write_index};
use indexmill_core::Index;
use indexmill_core::graph::{Entry, Event, EventKind, NO_SLOT, SearchOutput, SearchParams, Trace};

fn traced(written: &Written, index: &Index, n: usize, params: &SearchParams) -> (SearchOutput, Trace) {
    with_queries(written, n, |queries| index.search_traced(queries, params)).unwrap()
}

fn count(events: &[Event], kind: EventKind) -> u64 {
    events.iter().filter(|event| event.kind == kind).count() as u64
}

#[test]
fn a_trace_has_an_event_for_all_that_is_counted() {
    for (n, dim) in [(700, 12), (60, 1500)] {
        let written = write_index(Spec { n, dim, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        index.cache_around_entries(12 * index.graph.layout().block_bytes()).unwrap();
        let odd = Some(filter(&written, &index, |slot| slot % 2 == 1));
        for policy in POLICIES {
            for allow in [None, odd.clone()] {
                let params = params(5, 30, policy).allow(allow);
                let (output, trace) = traced(&written, &index, 20, &params);
                same_except_times(&output, &search(&written, &index, 20, &params));
                assert_eq!(trace.starts.len(), 21);
                for (i, c) in output.counters.iter().enumerate() {
                    let events = &trace.events[trace.starts[i]..trace.starts[i + 1]];
                    let pages = u64::from(index.graph.layout().pages_per_block) * count(events, EventKind::Read);
                    assert_eq!(pages, c.pages_read);
                    assert_eq!(count(events, EventKind::Cached), c.cache_hits);
                    assert_eq!(count(events, EventKind::Measure), c.distances);
                    assert_eq!(count(events, EventKind::Expand), c.expansions);
                    assert_eq!(events.iter().map(|event| u64::from(event.hop)).max(), Some(c.hops));
                    for event in events {
                        let has_vertex = matches!(event.kind, EventKind::Measure | EventKind::Expand);
                        assert_eq!(has_vertex, event.slot != NO_SLOT);
                        assert_eq!(has_vertex, event.distance.is_finite());
                    }
                }
            }
        }
    }
}

#[test]
fn a_trace_repeats_over_engines_threads_and_interleaving() {
    let written = write_index(Spec { n: 700, ..Spec::default() });
    for policy in POLICIES {
        let mut first = None;
        for (engine, threads, inflight) in [("pread", 1, 1), ("auto", 3, 8), ("pread", 2, 4), ("mmap", 1, 8)] {
            let index = Index::open(written.path(), engine).unwrap();
            let params = params(5, 30, policy).threads(threads).inflight(inflight).entry(Entry::Medoid);
            let (_, trace) = traced(&written, &index, 30, &params);
            let bits: Vec<_> =
                trace.events.iter().map(|e| (e.kind, e.hop, e.block, e.slot, e.distance.to_bits())).collect();
            let first = first.get_or_insert_with(|| (trace.starts.clone(), bits.clone()));
            assert_eq!(*first, (trace.starts, bits), "{policy:?} by {engine}");
        }
    }
}
