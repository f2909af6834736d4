//! Scans of a filter, which is long enough for several turns.

#[path = "../../tests/all/common/mod.rs"]
#[allow(unreachable_pub)]
mod common;

use std::sync::Arc;

use common::{Spec, write_index};

use super::query::QueryState;
use super::results::Goal;
use super::{Entry, Index, Policy, SearchParams};
use crate::search::task::{Query, Step};
use crate::search::{Queries, Values};

#[test]
fn a_scan_gives_way_to_other_queries_and_to_the_caller() {
    let n = 70_000;
    let written = write_index(Spec { n, dim: 2, max_degree: 2, n_sample: 0, ..Spec::default() });
    let index = Index::open(written.path(), "pread").unwrap();
    let allow = Some(Arc::new(index.filter(&vec![0xff; n / 8], &mut || false).unwrap()));
    let params = SearchParams {
        k: 1,
        list_size: 100,
        beam_width: 1,
        policy: Policy::Page,
        entry: Entry::Medoid,
        threads: 1,
        inflight: 1,
        deterministic: true,
        allow,
    };
    let floats = written.query(3);
    let queries = Queries { values: Values::Float32(&floats), n: 1, dim: 2 };
    let search = index.prepare(&params, &queries, Goal::Nearest(1)).unwrap();
    assert!(search.shared.plan.scans);
    let mut state = QueryState::default();
    state.start(&search.shared, 0).unwrap();
    let mut turns = 0;
    while state.advance(&search.shared, |_| unreachable!("nothing was read")).unwrap() == Step::Again {
        turns += 1;
    }
    assert_eq!(turns, 1, "65,536 vertices, then the others and the first reads");
    let found = index.search(&queries, &params, &mut || false).unwrap();
    assert_eq!(found.counters[0].code_distances, n as u64);
}
