//! The nearest vectors seen so far, each only once even if it lies in several lists.

use crate::search::nearest::{Nearest, slot_of};

/// Like [`Nearest`], but keeps only the best key of each slot if vectors have copies; O(log capacity) a push, also
/// amortised over copies. Memory: 8 bytes a key, with copies up to four times as much.
#[derive(Debug, Default)]
pub(super) struct Best {
    nearest: Nearest,
    /// With copies: what was pushed since they were sifted, and before that the smallest key of each slot.
    keys: Vec<u64>,
    /// With copies: the largest key that was left when they were sifted, if there were enough.
    bar: Option<u64>,
    capacity: usize,
    has_copies: bool,
}

impl Best {
    /// Forgets everything.
    pub(super) fn reset(&mut self, capacity: usize, has_copies: bool) {
        (self.capacity, self.has_copies) = (capacity, has_copies);
        self.nearest.reset(capacity);
        self.keys.clear();
        self.bar = None;
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
        if self.capacity == 0 || self.bar.is_some_and(|bar| key >= bar) {
            return;
        }
        self.keys.push(key);
        if self.keys.len() >= 2 * self.capacity {
            self.sift();
        }
    }

    /// A key that no further one among the smallest exceeds, once `capacity` keys are kept, or with copies a little later.
    pub(super) fn worst(&self) -> Option<u64> {
        if self.has_copies { self.bar } else { self.nearest.worst() }
    }

    /// Moves the kept keys to `out`, smallest first.
    pub(super) fn drain_sorted(&mut self, out: &mut Vec<u64>) {
        if self.has_copies {
            self.sift();
            self.keys.sort_unstable();
            out.clear();
            out.append(&mut self.keys);
        } else {
            self.nearest.drain_sorted(out);
        }
    }

    /// Leaves the smallest key of each slot, and of these the smallest. At most half of the room is taken then, so that
    /// the next sifting is as many pushes away.
    fn sift(&mut self) {
        self.keys.sort_unstable_by_key(|key| key.rotate_left(32)); // by slot, then by distance
        self.keys.dedup_by_key(|key| slot_of(*key));
        if let Some(last) = self.capacity.checked_sub(1)
            && last < self.keys.len()
        {
            let (_, &mut bar, _) = self.keys.select_nth_unstable(last);
            self.bar = Some(bar);
            self.keys.truncate(self.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::search::nearest::key;
    use crate::testing::Random;

    /// The simple way: the smallest key of each slot, all sorted.
    fn sorted(keys: &[u64], capacity: usize) -> Vec<u64> {
        let mut nearest = BTreeMap::new();
        for &key in keys {
            let kept = nearest.entry(slot_of(key)).or_insert(key);
            *kept = key.min(*kept);
        }
        let mut want: Vec<u64> = nearest.into_values().collect();
        want.sort_unstable();
        want.truncate(capacity);
        want
    }

    #[test]
    fn of_copies_the_nearest_is_kept_in_any_order() {
        let mut random = Random::new(7);
        let (mut best, mut got) = (Best::default(), Vec::new());
        for (n, slots) in [(0usize, 30), (1, 30), (5, 30), (40, 30), (300, 30), (300, 3), (3000, 1000), (2000, 1)] {
            let keys: Vec<u64> =
                (0..n).map(|_| key(random.below(50) as f32 - 9.0, random.below(slots) as u32)).collect();
            for capacity in [0, 1, 2, 10, 64, 1000, 5000] {
                let want = sorted(&keys, capacity);
                for backward in [false, true] {
                    best.reset(capacity, true);
                    let ordered: Vec<u64> = if backward { keys.iter().rev().copied().collect() } else { keys.clone() };
                    for key in ordered {
                        best.push(key);
                        assert!(best.keys.len() < (2 * capacity).max(1));
                        let last = capacity.checked_sub(1).and_then(|last| want.get(last));
                        assert!(best.worst().is_none_or(|worst| Some(&worst) >= last && last.is_some()));
                    }
                    best.drain_sorted(&mut got);
                    assert_eq!(got, want, "{n} keys of {slots} slots, {capacity} kept");
                }
            }
        }
    }

    #[test]
    fn hundreds_of_thousands_of_candidates_are_kept_in_a_moment() {
        // Farthest first, each slot three times: every key is better than those before. A search of what is kept for each of
        // them takes minutes.
        let (n, began) = (200_000u32, Instant::now());
        let keys: Vec<u64> = (0..3 * n).rev().map(|i| key(i as f32, i % n)).collect();
        let (mut best, mut got) = (Best::default(), Vec::new());
        best.reset(n as usize, true);
        keys.iter().for_each(|&key| best.push(key));
        best.drain_sorted(&mut got);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(got.into_iter().eq((0..n).map(|i| key(i as f32, i))));
    }
}
