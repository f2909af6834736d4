//! Graphs of codes with exact vectors in a file of their own.

use std::collections::HashSet;

use crate::common::searches::{POLICIES, params};
use crate::common::{Random, SQ8, Spec, Written, add_exact, squared, write_index};
use indexmill_core::Index;
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;

/// Of 300 components, each up to half a step from its code: a distance of 0 is about 25 by codes.
const SPEC: Spec =
    Spec { n: 60, dim: 300, dtype: SQ8, max_degree: 6, id_type: 1, n_sample: 0, with_codes: false, seed: 4 };

/// The index, and its exact vectors in slot order.
fn written() -> (Written, Vec<Vec<f32>>) {
    let (written, mut random) = (write_index(SPEC), Random(9));
    let mut near = |&x: &f32| x + random.below(1001) as f32 / 1001.0 - 0.5;
    let exact: Vec<Vec<f32>> = written.vectors.iter().map(|vector| vector.iter().map(&mut near).collect()).collect();
    add_exact(&written, &exact);
    assert_eq!(verify(written.path()), [""; 0]);
    (written, exact)
}

fn one(query: &[f32]) -> Queries<'_> {
    Queries { values: Values::Float32(query), n: 1, dim: query.len() }
}

#[test]
fn the_nearest_are_found_as_exact_vectors_rank_them() {
    let (written, exact) = written();
    let index = Index::open(written.path(), "auto").unwrap();
    for i in 0..10 {
        let mut query = exact[i * 5].clone();
        query[i] += 7.0;
        let mut order: Vec<i64> = (0..SPEC.n as i64).collect();
        order.sort_by(|&a, &b| squared(&exact[a as usize], &query).total_cmp(&squared(&exact[b as usize], &query)));
        for policy in POLICIES {
            let found = index.search(&one(&query), &params(5, SPEC.n, policy)).unwrap();
            let set = |slots: &[i64]| slots.iter().copied().collect::<HashSet<_>>();
            assert_eq!(set(&found.slots), set(&order[..5]), "{policy:?}, query {i}");
            assert_eq!(found.slots[0], order[0]);
        }
    }
}

#[test]
fn a_vector_is_within_a_radius_below_the_mean_error_of_codes() {
    let (written, exact) = written();
    let index = Index::open(written.path(), "auto").unwrap();
    for (slot, query) in (0..).zip(exact.iter().take(20)) {
        assert!(squared(&written.vectors[slot], query) > 20.0, "by codes it is outside");
        for policy in POLICIES {
            for radius in [0.0, 1.0, 10.0, 20.0] {
                let found = index.range_search(&one(query), radius, &params(1, SPEC.n, policy)).unwrap();
                assert_eq!((found.slots, found.scores), (vec![slot as i64], vec![0.0]), "{policy:?}, radius {radius}");
            }
        }
    }
}
