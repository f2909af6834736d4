//! Metrics: conversion between distances and scores (docs/formats/graph.md, "Metrics").

/// What "near" means to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Metric {
    /// Squared Euclidean distance, smaller is better.
    L2,
    /// Inner product, larger is better.
    Ip,
    /// Cosine similarity, larger is better.
    Cosine,
}

impl Metric {
    pub(crate) fn from_field(value: u64) -> Option<Self> {
        [Metric::L2, Metric::Ip, Metric::Cosine].get((value as usize).checked_sub(1)?).copied()
    }

    /// The user's score for distance `d` of `search::exact` (docs/formats/graph.md, "Metrics").
    pub fn score(self, d: f32) -> f32 {
        match self {
            Metric::L2 => d,
            Metric::Cosine => 1.0 - d / 2.0,
            Metric::Ip => -d,
        }
    }

    /// The largest distance with a score at least as good as `score`; below every distance if there is none.
    pub fn largest_distance(self, score: f32) -> f32 {
        match self {
            Metric::L2 => score,
            Metric::Ip => -score,
            Metric::Cosine if score > 1.0 => f32::NEG_INFINITY,
            // Rounding gives one cosine to many distances, so inverting it could miss the vector it was computed from.
            // The bits of floats from 0 up order like their values.
            Metric::Cosine => {
                let (mut within, mut beyond) = (0, f32::INFINITY.to_bits() + 1);
                while beyond - within > 1 {
                    let middle = within + (beyond - within) / 2;
                    let is_within = self.score(f32::from_bits(middle)) >= score;
                    *(if is_within { &mut within } else { &mut beyond }) = middle;
                }
                f32::from_bits(within)
            }
        }
    }

    /// Name as in job files.
    pub fn name(self) -> &'static str {
        match self {
            Metric::L2 => "l2",
            Metric::Ip => "ip",
            Metric::Cosine => "cosine",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_reaches_its_own_distance_and_no_worse_one() {
        for metric in [Metric::L2, Metric::Ip, Metric::Cosine] {
            let signs: &[f32] = if metric == Metric::Ip { &[1.0, -1.0] } else { &[1.0] };
            for i in 0..5000 {
                let d = signs[i % signs.len()] * (i as f32 * 0.37).sin().abs().powi(1 + i as i32 % 9) * 4.0;
                let reach = metric.largest_distance(metric.score(d));
                assert!(d <= reach, "{metric:?} {d}");
                assert_eq!(metric.score(reach), metric.score(d));
                assert_ne!(metric.score(reach.next_up()), metric.score(d));
            }
        }
    }

    #[test]
    fn scores_that_nothing_or_everything_reaches_have_infinite_distances() {
        let (inf, none) = (f32::INFINITY, f32::NEG_INFINITY);
        assert_eq!((Metric::L2.largest_distance(inf), Metric::L2.largest_distance(none)), (inf, none));
        assert_eq!((Metric::Ip.largest_distance(inf), Metric::Ip.largest_distance(none)), (none, inf));
        assert_eq!((Metric::Cosine.largest_distance(inf), Metric::Cosine.largest_distance(none)), (none, inf));
        assert_eq!(Metric::Cosine.largest_distance(1.0f32.next_up()), none);
        assert!(Metric::Cosine.largest_distance(-1.0) >= 4.0);
    }
}
