//! What a query is after: the k nearest vertices, or all within a distance; of those that a filter allows.

use super::nearest::{Nearest, distance_of, slot_of};
use crate::filter::Filter;

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
}

impl Results {
    /// Forgets everything.
    pub fn reset(&mut self, goal: Goal) {
        self.within.clear();
        (self.radius, _) = match goal {
            Goal::Nearest(k) => (None, self.nearest.reset(k)),
            Goal::Within(radius) => (Some(radius), self.nearest.reset(0)),
        };
    }

    /// Takes a vertex that was measured, once.
    pub fn push(&mut self, key: u64, allowed: Option<&Filter>) {
        if allowed.is_some_and(|filter| !filter.allows(slot_of(key))) {
            return;
        }
        match self.radius {
            None => self.nearest.push(key),
            Some(radius) if distance_of(key) <= radius => self.within.push(key),
            Some(_) => {}
        }
    }

    /// Vertices found within the radius.
    pub fn n_within(&self) -> usize {
        self.within.len()
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
