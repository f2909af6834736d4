//! What a query is after: the k nearest vertices, or all within a distance; of those that a filter allows.

use super::filter::Filter;
use crate::search::nearest::{Nearest, distance_of, slot_of};

/// Which vertices a search returns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// The k nearest.
    Nearest(usize),
    /// All up to this distance (of `exact::distance`).
    Within(f32),
}

/// The result list R, by exact distance.
#[derive(Debug, Default)]
pub(super) struct Results {
    radius: Option<f32>,
    nearest: Nearest,
    within: Vec<u64>,
    /// Vertices within the radius that a filter keeps from `within`.
    n_filtered: usize,
}

impl Results {
    /// Forgets everything.
    pub fn reset(&mut self, goal: Goal) {
        self.within.clear();
        self.n_filtered = 0;
        (self.radius, _) = match goal {
            Goal::Nearest(k) => (None, self.nearest.reset(k)),
            Goal::Within(radius) => (Some(radius), self.nearest.reset(0)),
        };
    }

    /// Takes a vertex that was measured, once.
    pub fn push(&mut self, key: u64, allowed: Option<&Filter>) {
        let is_allowed = allowed.is_none_or(|filter| filter.allows(slot_of(key)));
        match self.radius {
            None if is_allowed => self.nearest.push(key),
            Some(radius) if distance_of(key) <= radius && is_allowed => self.within.push(key),
            Some(radius) if distance_of(key) <= radius => self.n_filtered += 1,
            _ => {}
        }
    }

    /// Results within the radius.
    pub fn n_within(&self) -> usize {
        self.within.len()
    }

    /// Vertices within the radius, whether allowed or not.
    pub fn n_met(&self) -> usize {
        self.within.len() + self.n_filtered
    }

    /// Moves the results to `out`, nearest first.
    pub fn drain_sorted(&mut self, out: &mut Vec<u64>) {
        match self.radius {
            None => self.nearest.drain_sorted(out),
            Some(_) => {
                out.clear();
                out.append(&mut self.within);
                out.sort_unstable();
            }
        }
    }
}
