//! What distances by scaled codes are worth, and the exact vectors that decide where they leave an answer open.
//!
//! A scaled code tells a component within half a step, and over the components of a vector these errors add up like
//! independent ones. So the error of a distance by codes has a mean and a standard deviation ([`Interval`]). Which
//! components a vector and a query differ in is not known: it may be those with the largest steps.

use std::ops::Range;

use crate::graph::results::Goal;
use crate::metric::Metric;
use crate::search::nearest::distance_of;
use crate::search::queries::Prepared;
use crate::stored::Stored;
use crate::vectors::Vectors;

/// Standard deviations that a distance by codes may be off its mean: 1 candidate in 16,000 is farther off.
const DEVIATIONS: f64 = 4.0;
/// Candidates that a search for the k nearest keeps beyond 2 k, at least.
const SPARE: usize = 32;

/// The exact vectors beside the nodes, and what distances by codes are worth.
pub(crate) struct Apart<'a> {
    pub(super) vectors: &'a Vectors,
    /// Slot in the file of each slot of a view.
    homes: Option<&'a [u32]>,
    errors: CodeErrors,
}

impl<'a> Apart<'a> {
    /// `homes`: slot in the file of each slot, in a view of another order. `nodes`: what nodes hold.
    pub fn new(vectors: &'a Vectors, homes: Option<&'a [u32]>, nodes: &Stored<'_>) -> Self {
        Apart { vectors, homes, errors: CodeErrors::of(nodes) }
    }

    /// What a search among nodes looks for, as there are vectors that may belong to the answer: at least `list_size`
    /// candidates for the k nearest.
    pub fn among_nodes(&self, query: &Prepared, goal: Goal, list_size: usize) -> Goal {
        match goal {
            Goal::Nearest(k) => Goal::Nearest((2 * k + SPARE).max(list_size)),
            Goal::Within(radius) => Goal::Within(self.errors.interval(query).reach(radius)),
        }
    }

    /// Which of `keys`, sorted distances by codes, may or may not belong to the answer: see [`Interval::open`].
    pub(super) fn open(&self, query: &Prepared, goal: Goal, keys: &[u64]) -> Range<usize> {
        self.errors.interval(query).open(goal, keys)
    }

    /// Bytes of a read.
    pub fn unit_bytes(&self) -> usize {
        self.vectors.unit_bytes()
    }

    /// The vector of a slot, where vectors are in memory.
    pub(super) fn held(&self, slot: u32) -> Option<&[u8]> {
        self.vectors.held(self.homes.map_or(slot, |homes| homes[slot as usize]))
    }
}

/// The errors of codes: a component is off by up to half a step, evenly, with a variance of the step squared / 12.
struct CodeErrors {
    /// Variance of the error of each component of a query.
    variances: Vec<f64>,
    /// Of squared distances, the same for all queries; none under inner product.
    squared: Option<Interval>,
}

impl CodeErrors {
    /// The error of a squared distance is twice the vector's along its difference from the query, and the square of the
    /// vector's error.
    fn of(nodes: &Stored<'_>) -> Self {
        let steps = nodes.scale.iter().skip(nodes.dim).take(nodes.user_dim());
        let variances: Vec<f64> = steps.map(|&step| f64::from(step).powi(2) / 12.0).collect();
        let (mean, squares) = variances.iter().fold((0.0, 0.0), |(mean, squares), v| (mean + v, squares + v * v));
        let width = width_along_any(&variances);
        // The square of a component's error has a variance of step^4 / 180, which is 0.8 of its mean squared.
        let spread = DEVIATIONS * (0.8 * squares).sqrt();
        let squared = Interval { squared: true, width, offset: mean, spread };
        CodeErrors { variances, squared: (nodes.metric != Metric::Ip).then_some(squared) }
    }

    /// The interval for one query. The error of an inner product is that of the vector along the query.
    fn interval(&self, query: &Prepared) -> Interval {
        self.squared.unwrap_or_else(|| {
            let terms = self.variances.iter().zip(&query.floats).map(|(v, &x)| v * f64::from(x).powi(2));
            let width = DEVIATIONS * terms.sum::<f64>().sqrt();
            Interval { squared: false, width, offset: 0.0, spread: 0.0 }
        })
    }
}

/// The error along a unit vector that is exceeded as rarely as `DEVIATIONS` standard deviations, whichever vector it is.
///
/// An error is within half a step, or sqrt(3) deviations. So along few components that of a vector is at most the root of
/// three times the sum of their variances, and along many it adds up to `DEVIATIONS` of their mean. Both are largest along
/// the components with the largest steps, and equal along DEVIATIONS^2 / 3 of them.
fn width_along_any(variances: &[f64]) -> f64 {
    let (wanted, mut largest) = (DEVIATIONS * DEVIATIONS / 3.0, variances.to_vec());
    let whole = wanted as usize;
    if largest.len() > whole {
        largest.select_nth_unstable_by(whole, |a, b| b.total_cmp(a));
        largest.truncate(whole + 1);
        largest[whole] *= wanted.fract();
    }
    (3.0 * largest.iter().sum::<f64>()).sqrt()
}

/// Where the true distance is: by codes it is `distance + offset` give or take `2 * width * root + spread`, `root` the
/// root of the true one; or, of a product, itself give or take `width`.
#[derive(Debug, Clone, Copy)]
struct Interval {
    squared: bool,
    width: f64,
    offset: f64,
    spread: f64,
}

impl Interval {
    /// The least and the largest true distance of a vector at `distance` by codes.
    fn around(self, distance: f32) -> (f32, f32) {
        let Interval { squared, width, offset, spread } = self;
        let d = f64::from(distance) - offset;
        let (least, largest) = if squared {
            let root = |square: f64| (square + width * width).max(0.0).sqrt();
            ((root(d - spread) - width).max(0.0).powi(2), (root(d + spread) + width).powi(2))
        } else {
            (d - width, d + width)
        };
        (least as f32, largest as f32)
    }

    /// The largest distance by codes of a vector at `distance` or nearer.
    fn reach(self, distance: f32) -> f32 {
        let Interval { squared, width, offset, spread } = self;
        let d = f64::from(distance);
        if !squared {
            return (d + width) as f32;
        }
        let along = (2.0 * width * d.max(0.0).sqrt()).max(0.0); // NaN, where no width meets no limit, becomes 0
        (d + offset + along + spread) as f32
    }

    /// Which of `keys`, sorted, may or may not belong to the answer. Those before them do, those behind do not. Those before
    /// keep their distances by codes, so these must be on the inside, too.
    fn open(self, goal: Goal, keys: &[u64]) -> Range<usize> {
        let around = |key: u64| self.around(distance_of(key));
        let (nearest_outside, farthest_inside) = match goal {
            Goal::Nearest(k) if k == 0 || keys.len() <= k => return keys.len()..keys.len(),
            Goal::Nearest(k) => (around(keys[k]).0, around(keys[k - 1]).1),
            Goal::Within(radius) => (radius.next_up(), radius),
        };
        let is_inside = |key| distance_of(key) < nearest_outside && around(key).1 < nearest_outside;
        let start = keys.partition_point(|&key| is_inside(key));
        let end = keys.partition_point(|&key| around(key).0 <= farthest_inside);
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::nearest::key;
    use crate::stored::Dtype;
    use crate::testing::Random;

    fn interval(metric: Metric, scale: &[f32], query: &[f32]) -> Interval {
        let dim = scale.len() / 2;
        let nodes = Stored { dim, dtype: Dtype::Sq8, metric, vector_bytes: dim.next_multiple_of(4), scale };
        CodeErrors::of(&nodes).interval(&Prepared { floats: query.to_vec(), ..Prepared::default() })
    }

    /// As `outside_and_inside` of vectors with steps that differ a little.
    fn of_even_steps(metric: Metric, spread: f32) -> (u32, u32) {
        let step: Vec<f32> = (0..64).map(|j| 0.01 + 0.001 * j as f32).collect();
        outside_and_inside(metric, &step, spread, 0)
    }

    /// How many of 2,000 vectors with random codes are outside of their interval, and how many in its inner eighth.
    ///
    /// Queries differ from the vectors by up to half of `spread` ranges in each component. The first `beyond` components
    /// of queries are as far beyond the range as the range is wide.
    fn outside_and_inside(metric: Metric, step: &[f32], spread: f32, beyond: usize) -> (u32, u32) {
        let (dim, mut random) = (step.len(), Random::new(8));
        let own = dim - usize::from(metric == Metric::Ip);
        let scale: Vec<f32> = std::iter::repeat_n(0.0, dim).chain(step.iter().copied()).collect();
        let (mut outside, mut inside) = (0, 0);
        for _ in 0..2000 {
            let x: Vec<f32> = step.iter().map(|s| random.float() * 255.0 * s).collect();
            let away: Vec<f32> = step.iter().map(|s| (random.float() - 0.5) * spread * 255.0 * s).collect();
            let near = |j: usize| if j < beyond { 510.0 * step[j] } else { x[j] + away[j] };
            let query: Vec<f32> = (0..dim).map(|j| if j < own { near(j) } else { 0.0 }).collect();
            let code: Vec<f32> = x.iter().zip(step).map(|(x, s)| (x / s).round() * s).collect();
            let distance = |x: &[f32]| -> f32 {
                let terms = query.iter().zip(x);
                if metric == Metric::Ip {
                    return -terms.map(|(a, b)| a * b).sum::<f32>();
                }
                terms.map(|(a, b)| (a - b) * (a - b)).sum()
            };
            let interval = interval(metric, &scale, &query);
            let (least, largest) = interval.around(distance(&code));
            let (slack, middle) = (largest.abs() * 1e-5, (least + largest) / 2.0);
            outside += u32::from(!(least - slack..=largest + slack).contains(&distance(&x)));
            outside += u32::from(distance(&code) > interval.reach(distance(&x)) + slack);
            inside += u32::from((distance(&x) - middle).abs() < (largest - least) / 16.0);
        }
        (outside, inside)
    }

    #[test]
    fn intervals_hold_the_distances_of_vectors_that_were_rounded() {
        for (metric, spread) in [(Metric::L2, 1.0), (Metric::L2, 0.1), (Metric::Ip, 1.0)] {
            let (outside, inside) = of_even_steps(metric, spread);
            assert!(outside <= 3, "{metric:?} {spread}: {outside} of 2000 outside");
            assert!((400..1600).contains(&inside), "{metric:?} {spread}: {inside} within half a deviation");
        }
    }

    #[test]
    fn a_vector_itself_is_within_any_radius() {
        let (outside, _) = of_even_steps(Metric::L2, 0.0);
        assert!(outside <= 3, "{outside} of 2000 outside");
    }

    #[test]
    fn intervals_hold_where_a_query_is_beyond_the_range_of_wide_components() {
        for wide in 1..=8 {
            for times in [1.0, 10.0, 30.0] {
                let step: Vec<f32> = (0..768).map(|j| if j < wide { 0.01 * times } else { 0.01 }).collect();
                let (outside, _) = outside_and_inside(Metric::L2, &step, 0.1, wide);
                assert!(outside <= 3, "{wide} components {times} times as wide: {outside} of 2000 outside");
            }
        }
    }

    #[test]
    fn a_width_is_that_of_the_components_with_the_largest_steps() {
        assert_eq!(width_along_any(&[]), 0.0);
        assert_eq!(width_along_any(&[12.0]), 6.0, "half a step");
        assert!((width_along_any(&[0.25; 6]) - DEVIATIONS / 2.0).abs() < 1e-12, "of equal ones so many deviations");
        assert_eq!(width_along_any(&[0.0, 3.0, 0.0, 0.0]), width_along_any(&[3.0]));
    }

    #[test]
    fn only_candidates_at_the_border_are_open() {
        // An interval is 2 wide on each side, so roots up to 4 apart cannot be told from one another.
        let interval = Interval { squared: true, width: 2.0, offset: 0.0, spread: 0.0 };
        let keys: Vec<u64> = [1.0f32, 10.0, 12.0, 13.0, 14.5, 30.0].iter().map(|d| key(d * d, 7)).collect();
        let open = |goal| interval.open(goal, &keys);
        assert_eq!(open(Goal::Nearest(1)), 1..1, "the first is far before the second");
        assert_eq!(open(Goal::Nearest(3)), 1..5, "10 may be beyond 13, and 14.5 before 12");
        assert_eq!(open(Goal::Nearest(5)), 5..5);
        assert_eq!(open(Goal::Nearest(6)), 6..6, "there are no others");
        assert_eq!(open(Goal::Nearest(9)), 6..6);
        assert_eq!(open(Goal::Within(145.0)), 1..4, "10 may be beyond it, 14.5 is");
        assert_eq!(open(Goal::Within(-1.0)), 0..0);
    }

    #[test]
    fn candidates_that_are_inside_but_for_the_mean_error_of_their_codes_are_open() {
        // True distances are about 60, 70, 70.5 and 160.
        let interval = Interval { squared: true, width: 0.1, offset: 40.0, spread: 1.0 };
        let keys: Vec<u64> = [100.0f32, 110.0, 110.5, 200.0].iter().zip(0..).map(|(&d, slot)| key(d, slot)).collect();
        let open = |goal| interval.open(goal, &keys);
        assert_eq!(open(Goal::Within(102.0)), 1..3, "the first is within by its code, too");
        assert_eq!(open(Goal::Within(65.0)), 0..1, "it is within, and not by its code");
        assert_eq!(open(Goal::Nearest(2)), 0..3, "by its code, it would come after the others once they are measured");
        assert_eq!(open(Goal::Nearest(3)), 3..3, "the fourth is farther by any measure");
    }

    #[test]
    fn codes_without_error_leave_only_equal_distances_open() {
        let interval = interval(Metric::L2, &[1.0, 2.0, 0.0, 0.0], &[0.0; 2]);
        let keys: Vec<u64> = [1.0f32, 2.0, 2.0, 3.0].iter().zip(0..).map(|(&d, slot)| key(d, slot)).collect();
        assert_eq!(interval.open(Goal::Nearest(2), &keys), 1..3);
        assert_eq!(interval.open(Goal::Nearest(3), &keys), 3..3);
    }
}
