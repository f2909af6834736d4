//! The nearest vectors seen so far, each only once even if it lies in several lists.

use crate::search::nearest::{Nearest, slot_of};

/// Like [`Nearest`], but keeps only the best key of each slot if vectors have copies, in O(capacity) a kept key.
#[derive(Debug, Default)]
pub(super) struct Best {
    nearest: Nearest,
    /// Ascending, with copies.
    sorted: Vec<u64>,
    capacity: usize,
    has_copies: bool,
}

impl Best {
    /// Forgets everything.
    pub(super) fn reset(&mut self, capacity: usize, has_copies: bool) {
        (self.capacity, self.has_copies) = (capacity, has_copies);
        self.nearest.reset(capacity);
        self.sorted.clear();
    }

    /// Keys kept at most.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Keeps `key` if it is among the smallest.
    pub(super) fn push(&mut self, key: u64) {
        if !self.has_copies {
            return self.nearest.push(key);
        }
        if self.worst().is_some_and(|worst| key >= worst) {
            return;
        }
        match self.sorted.iter().position(|&kept| slot_of(kept) == slot_of(key)) {
            Some(at) if self.sorted[at] <= key => return,
            Some(at) => drop(self.sorted.remove(at)),
            None if self.sorted.len() == self.capacity => drop(self.sorted.pop()),
            None => {}
        }
        let at = self.sorted.partition_point(|&kept| kept < key);
        self.sorted.insert(at, key);
    }

    /// The largest kept key, once `capacity` keys are kept.
    pub(super) fn worst(&self) -> Option<u64> {
        if !self.has_copies {
            return self.nearest.worst();
        }
        self.sorted.last().copied().filter(|_| self.sorted.len() == self.capacity)
    }

    /// Moves the kept keys to `out`, smallest first.
    pub(super) fn drain_sorted(&mut self, out: &mut Vec<u64>) {
        if self.has_copies {
            out.clear();
            out.append(&mut self.sorted);
        } else {
            self.nearest.drain_sorted(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::search::nearest::key;
    use crate::testing::Random;

    #[test]
    fn of_copies_the_nearest_is_kept_in_any_order() {
        let mut random = Random::new(7);
        let (mut best, mut got) = (Best::default(), Vec::new());
        for n in [0usize, 1, 5, 40, 300] {
            let keys: Vec<u64> = (0..n).map(|_| key(random.below(50) as f32, random.below(30) as u32)).collect();
            let mut nearest = BTreeMap::new();
            for &key in &keys {
                let kept = nearest.entry(slot_of(key)).or_insert(key);
                *kept = key.min(*kept);
            }
            let mut want: Vec<u64> = nearest.into_values().collect();
            want.sort_unstable();
            want.truncate(10);
            for backward in [false, true] {
                best.reset(10, true);
                let ordered: Vec<u64> = if backward { keys.iter().rev().copied().collect() } else { keys.clone() };
                ordered.into_iter().for_each(|key| best.push(key));
                best.drain_sorted(&mut got);
                assert_eq!(got, want);
            }
        }
    }
}
