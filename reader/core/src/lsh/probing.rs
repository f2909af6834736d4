//! Which buckets of a table come after the query's own: the query-directed probing sequence of Lv et al., "Multi-probe
//! LSH" (VLDB 2007), section 4.
//!
//! A step moves one of the m integers of a compound hash to the next lower or higher one. Its score is the square of
//! the query's distance to that border, in bucket widths; a bucket's score is the sum over its steps (section 4.2).
//! Buckets come in the order of their scores, each made of one before by the paper's `shift` and `expand` (section
//! 4.4), so T of them take O(m + T log T).
//!
//! Deviation: every table has its own sorted steps; the paper's precomputed sequence of expected scores (section 4.5)
//! would save the sort, which costs less than one read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::functions::{Functions, floor};

/// Prefix of a set of one step.
const NONE: u32 = u32::MAX;

/// Memory of the last sequence, reused for the next.
#[derive(Debug, Default)]
pub struct Prober {
    /// Ascending by score.
    steps: Vec<Step>,
    sets: Vec<Set>,
    /// Scores as bits, which order like the scores, and numbers of sets.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    score: f64,
    /// What it adds to the sum of the hash.
    delta: u64,
    function: u16,
}

/// Steps `prefix` and `last`, in ascending order.
#[derive(Debug, Clone, Copy)]
struct Set {
    prefix: u32,
    last: u16,
    /// Score and sum with the last step.
    score: f64,
    sum: u64,
}

impl Prober {
    /// Hands up to `most` sums of buckets to `out`, the most promising first. `projected` is that of the table, `sum`
    /// the query's own.
    pub fn probe(
        &mut self,
        functions: &Functions,
        (radius, table): (usize, usize),
        projected: &[f32],
        sum: u64,
        most: usize,
        mut out: impl FnMut(u64),
    ) {
        self.sort_steps(functions, (radius, table), projected, most);
        self.sets.clear();
        self.heap.clear();
        self.push(NONE, 0, 0.0, sum);
        let mut left = most;
        while left > 0
            && let Some(Reverse((_, number))) = self.heap.pop()
        {
            let set = self.sets[number as usize];
            let (before, sum_before) = match set.prefix {
                NONE => (0.0, sum),
                prefix => (self.sets[prefix as usize].score, self.sets[prefix as usize].sum),
            };
            self.push(set.prefix, set.last + 1, before, sum_before);
            // A set that moves one integer twice is invalid, and so are its expansions.
            if self.is_valid(set) {
                self.push(number, set.last + 1, set.score, set.sum);
                out(set.sum);
                left -= 1;
            }
        }
    }

    /// Keeps the best `most` steps: the buckets that are one such step away are at least as good as any with a worse
    /// step.
    fn sort_steps(&mut self, functions: &Functions, (radius, table): (usize, usize), projected: &[f32], most: usize) {
        self.steps.clear();
        let terms = functions.positions(radius, table, projected).zip(functions.multipliers(table));
        for (function, (t, &multiplier)) in (0u16..).zip(terms) {
            // Too large a number has no fraction.
            let fraction = t - floor(t) as f64;
            let lower = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
            let upper = 1.0 - lower;
            self.steps.push(Step { score: lower * lower, delta: multiplier.wrapping_neg(), function });
            self.steps.push(Step { score: upper * upper, delta: multiplier, function });
        }
        let order = |a: &Step, b: &Step| a.score.total_cmp(&b.score).then(a.function.cmp(&b.function));
        if most < self.steps.len() {
            self.steps.select_nth_unstable_by(most, order);
            self.steps.truncate(most);
        }
        self.steps.sort_by(order);
    }

    fn push(&mut self, prefix: u32, last: u16, score: f64, sum: u64) {
        let Some(step) = self.steps.get(usize::from(last)) else { return };
        let set = Set { prefix, last, score: score + step.score, sum: sum.wrapping_add(step.delta) };
        self.heap.push(Reverse((set.score.to_bits(), self.sets.len() as u32)));
        self.sets.push(set);
    }

    /// Whether the last step moves another integer than those before.
    fn is_valid(&self, set: Set) -> bool {
        let function = |last: u16| self.steps[usize::from(last)].function;
        let mut prefix = set.prefix;
        while prefix != NONE {
            let before = self.sets[prefix as usize];
            if function(before.last) == function(set.last) {
                return false;
            }
            prefix = before.prefix;
        }
        true
    }
}
