//! What searches for the k nearest find, in the order in which queries end, and in theirs.

use std::iter::once;
use std::ops::Range;
use std::path::Path;

use super::nearest::{distance_of, slot_of};
use crate::error::{Error, Result};
use crate::ids::UserIds;
use crate::memory::append;
use crate::metric::Metric;

/// Answers to a block of queries, with the counters of a kind of index; row i belongs to query i.
#[derive(Debug)]
#[non_exhaustive]
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

/// Answers in the order in which queries ended.
#[derive(Default)]
pub(crate) struct Answers<C> {
    queries: Vec<usize>,
    /// End of each query's results in `slots` and `scores`.
    ends: Vec<usize>,
    pub slots: Vec<i64>,
    pub scores: Vec<f32>,
    pub counters: Vec<C>,
}

impl<C: Copy> Answers<C> {
    /// Adds the results of `query` in the index of the file at `path`, which are keys in the order of their distances.
    pub fn add(&mut self, path: &Path, query: usize, keys: &[u64], metric: Metric, counters: C) -> Result<()> {
        append(path, &mut self.slots, keys.iter().map(|&key| i64::from(slot_of(key))))?;
        append(path, &mut self.scores, keys.iter().map(|&key| metric.score(distance_of(key))))?;
        append(path, &mut self.queries, once(query))?;
        append(path, &mut self.ends, once(self.slots.len()))?;
        append(path, &mut self.counters, once(counters))
    }

    /// Which answer each query has.
    pub fn places(&self) -> Vec<usize> {
        let mut places = vec![0; self.queries.len()];
        self.queries.iter().enumerate().for_each(|(i, &query)| places[query] = i);
        places
    }

    /// Where the results of the i-th answer are.
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

    /// The answers in the order of the queries.
    pub(crate) fn gather(n_queries: usize, k: usize, answers: &Answers<C>) -> Result<Self> {
        let mut output = Output::allocate(n_queries, k)?;
        output.scatter(answers);
        Ok(output)
    }

    /// Puts the answers in their rows.
    pub(crate) fn scatter(&mut self, answers: &Answers<C>) {
        for (i, &query) in answers.queries.iter().enumerate() {
            let from = answers.results_of(i);
            let to = query * self.k..query * self.k + from.len();
            self.slots[to.clone()].copy_from_slice(&answers.slots[from.clone()]);
            self.scores[to].copy_from_slice(&answers.scores[from]);
            self.counters[query] = answers.counters[i];
        }
    }
}
