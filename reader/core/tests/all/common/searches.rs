//! Searches of small indexes with every type of query.

use std::sync::Arc;

use indexmill_core::graph::Filter;
use indexmill_core::graph::{Counters, Entry, Policy, RangeOutput, SearchOutput, SearchParams};
use indexmill_core::search::{Queries, Values};
use indexmill_core::{Index, Result};

use super::{INT8, UINT8, Written};

pub const POLICIES: [Policy; 5] = [Policy::Beam, Policy::Page, Policy::Completion, Policy::Pipeline, Policy::Rounds];

pub fn params(k: usize, list_size: usize, policy: Policy) -> SearchParams {
    SearchParams::new(k)
        .list_size(list_size)
        .beam_width(4)
        .policy(policy)
        .entry(Entry::Centroids)
        .threads(1)
        .inflight(4)
        .deterministic(true)
}

/// Rows of `dim` floats as queries of the type that an index of type `dtype` expects, given to `ask`.
pub fn with_typed<T>(dtype: u64, dim: usize, floats: &[f32], ask: impl FnOnce(&Queries<'_>) -> T) -> T {
    let bytes: Vec<u8> = floats.iter().map(|&x| x as u8).collect();
    let signed: Vec<i8> = floats.iter().map(|&x| x as i8).collect();
    let values = match dtype {
        UINT8 => Values::Uint8(&bytes),
        INT8 => Values::Int8(&signed),
        _ => Values::Float32(floats),
    };
    ask(&Queries { values, n: floats.len() / dim, dim })
}

/// The first `n` queries of an index, given to `ask`.
pub fn with_queries<T>(written: &Written, n: usize, ask: impl FnOnce(&Queries<'_>) -> T) -> T {
    let floats: Vec<f32> = (0..n).flat_map(|i| written.query(i)).collect();
    with_typed(written.spec.dtype, written.spec.dim, &floats, ask)
}

pub fn search(written: &Written, index: &Index, n: usize, params: &SearchParams) -> SearchOutput {
    with_queries(written, n, |queries| index.search(queries, params)).unwrap()
}

pub fn range_search(
    written: &Written,
    index: &Index,
    n: usize,
    radius: f32,
    params: &SearchParams,
) -> Result<RangeOutput> {
    with_queries(written, n, |queries| index.range_search(queries, radius, params))
}

/// Results of query `i` of a search or range search.
pub fn row<'a>(
    scores: &'a [f32],
    slots: &'a [i64],
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = (f32, i64)> + use<'a> {
    scores[range.clone()].iter().copied().zip(slots[range].iter().copied())
}

/// Bitmap over vector ids of the slots for which `allows` is true.
pub fn bitmap(written: &Written, allows: impl Fn(u32) -> bool) -> Vec<u8> {
    let mut bits = vec![0u8; written.spec.n.div_ceil(8)];
    for (slot, &id) in written.vector_ids.iter().enumerate() {
        bits[id as usize / 8] |= u8::from(allows(slot as u32)) << (id % 8);
    }
    bits
}

pub fn filter(written: &Written, index: &Index, allows: impl Fn(u32) -> bool) -> Arc<Filter> {
    Arc::new(index.filter(&bitmap(written, allows)).unwrap())
}

pub fn timeless(counters: &[Counters]) -> Vec<Counters> {
    let mut counters = counters.to_vec();
    counters.iter_mut().for_each(|c| (c.latency_us, c.io_wait_us) = (0.0, 0.0));
    counters
}

fn bits(scores: &[f32]) -> Vec<u32> {
    scores.iter().map(|x| x.to_bits()).collect()
}

pub fn same_answers(a: &SearchOutput, b: &SearchOutput) {
    assert_eq!((&a.slots, &a.vector_ids, bits(&a.scores)), (&b.slots, &b.vector_ids, bits(&b.scores)));
    assert_eq!(a.user_ids, b.user_ids);
}

pub fn same_except_times(a: &SearchOutput, b: &SearchOutput) {
    same_answers(a, b);
    assert_eq!(timeless(&a.counters), timeless(&b.counters));
}

pub fn same_ranges_except_times(a: &RangeOutput, b: &RangeOutput) {
    assert_eq!((&a.starts, &a.slots, &a.vector_ids), (&b.starts, &b.slots, &b.vector_ids));
    assert_eq!(a.user_ids, b.user_ids);
    assert_eq!(bits(&a.scores), bits(&b.scores));
    assert_eq!(timeless(&a.counters), timeless(&b.counters));
}
