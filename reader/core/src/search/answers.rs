//! What searches for the k nearest find: one thread, and all of them for a block of queries.

use std::ops::Range;

use super::nearest::{distance_of, slot_of};
use crate::error::{Error, Result};
use crate::ids::UserIds;
use crate::metric::Metric;

/// Answers to a block of queries, with the counters of a kind of index; row i belongs to query i.
#[derive(Debug)]
pub struct Output<C> {
    /// Columns of `slots` and `scores`.
    pub k: usize,
    /// -1 where fewer than k vectors were found.
    pub slots: Vec<i64>,
    /// In the user's metric; NaN where missing.
    pub scores: Vec<f32>,
    /// Of the results, unless these are known by their vector ids.
    pub user_ids: UserIds,
    /// One entry a query.
    pub counters: Vec<C>,
}

/// Answers of one thread, in the order in which its queries ended.
#[derive(Default)]
pub(crate) struct Answers<C> {
    queries: Vec<usize>,
    /// End of each query's results in `slots` and `scores`.
    ends: Vec<usize>,
    pub slots: Vec<i64>,
    pub scores: Vec<f32>,
    pub counters: Vec<C>,
}

impl<C> Answers<C> {
    /// Adds the results of `query`, which are keys in the order of their distances.
    pub fn add(&mut self, query: usize, keys: &[u64], metric: Metric, counters: C) {
        self.slots.extend(keys.iter().map(|&key| i64::from(slot_of(key))));
        self.scores.extend(keys.iter().map(|&key| metric.score(distance_of(key))));
        self.queries.push(query);
        self.ends.push(self.slots.len());
        self.counters.push(counters);
    }

    /// Where the results of the i-th query are.
    pub fn results_of(&self, i: usize) -> Range<usize> {
        i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]
    }
}

impl<C: Copy + Default> Output<C> {
    /// Room for the answers, before any work is done for them.
    pub(crate) fn allocate(n_queries: usize, k: usize) -> Result<Self> {
        let too_many =
            || Error::Config(format!("k: {n_queries} queries x {k} neighbours do not fit in memory; search in blocks"));
        let n = n_queries.checked_mul(k).ok_or_else(too_many)?;
        let (slots, scores, counters) = (Vec::new(), Vec::new(), Vec::new());
        let mut output = Output { k, slots, scores, user_ids: UserIds::None, counters };
        output.slots.try_reserve_exact(n).map_err(|_| too_many())?;
        output.scores.try_reserve_exact(n).map_err(|_| too_many())?;
        output.counters.try_reserve_exact(n_queries).map_err(|_| too_many())?;
        output.slots.resize(n, -1);
        output.scores.resize(n, f32::NAN);
        output.counters.resize(n_queries, C::default());
        Ok(output)
    }

    /// Puts the answers of a thread in their rows.
    pub(crate) fn scatter(&mut self, part: &Answers<C>) {
        for (i, &query) in part.queries.iter().enumerate() {
            let from = part.results_of(i);
            let to = query * self.k..query * self.k + from.len();
            self.slots[to.clone()].copy_from_slice(&part.slots[from.clone()]);
            self.scores[to].copy_from_slice(&part.scores[from]);
            self.counters[query] = part.counters[i];
        }
    }
}

/// For each query the thread that answered it, and which of that thread's queries it was.
pub(crate) fn places_of<'a, C: 'a>(
    n_queries: usize,
    parts: impl Iterator<Item = &'a Answers<C>>,
) -> Vec<(usize, usize)> {
    let mut places = vec![(0, 0); n_queries];
    for (thread, part) in parts.enumerate() {
        part.queries.iter().enumerate().for_each(|(i, &query)| places[query] = (thread, i));
    }
    places
}
