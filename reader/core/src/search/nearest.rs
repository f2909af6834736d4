//! The nearest vertices seen so far, and the order in which vertices compare.

use std::collections::BinaryHeap;

const SIGN: u32 = 1 << 31;

/// Orders by (distance, slot): the bits of floats order like their values once the sign bit of positive ones and all
/// bits of negative ones (an inner product, negated) are flipped. NaN comes last.
pub fn key(distance: f32, slot: u32) -> u64 {
    let bits = distance.to_bits();
    let ordered = match bits & SIGN {
        _ if distance.is_nan() => u32::MAX,
        0 => bits | SIGN,
        _ => !bits,
    };
    u64::from(ordered) << 32 | u64::from(slot)
}

/// Distance of a key.
pub fn distance_of(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered & SIGN == 0 { !ordered } else { ordered ^ SIGN })
}

/// Slot of a key.
pub fn slot_of(key: u64) -> u32 {
    key as u32
}

/// The `capacity` smallest keys pushed; O(log capacity) a push.
#[derive(Debug, Default)]
pub struct Nearest {
    capacity: usize,
    worst_first: BinaryHeap<u64>,
}

impl Nearest {
    /// Forgets everything.
    pub fn reset(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.worst_first.clear();
    }

    /// Keeps `key` if it is among the smallest. No key is pushed twice.
    pub fn push(&mut self, key: u64) {
        if self.worst_first.len() < self.capacity {
            self.worst_first.push(key);
        } else if let Some(mut worst) = self.worst_first.peek_mut()
            && key < *worst
        {
            *worst = key;
        }
    }

    /// Number of keys that it has memory for.
    pub fn room(&self) -> usize {
        self.worst_first.capacity()
    }

    /// The largest kept key, once `capacity` keys are kept.
    pub fn worst(&self) -> Option<u64> {
        self.worst_first.peek().copied().filter(|_| self.worst_first.len() >= self.capacity)
    }

    /// Moves the kept keys to `out`, smallest first.
    pub fn drain_sorted(&mut self, out: &mut Vec<u64>) {
        out.clear();
        out.extend(self.worst_first.drain());
        out.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn nearest_keeps_what_sorting_keeps() {
        let mut random = Random::new(5);
        let (mut nearest, mut got) = (Nearest::default(), Vec::new());
        for n in [0usize, 1, 9, 10, 11, 300] {
            nearest.reset(10);
            let mut all: Vec<u64> = (0..n as u32).map(|s| key(random.below(20) as f32, s)).collect();
            all.iter().for_each(|&k| nearest.push(k));
            all.sort_unstable();
            nearest.drain_sorted(&mut got);
            all.truncate(10);
            assert_eq!(got, all);
        }
    }

    #[test]
    fn keys_order_by_distance_then_slot() {
        assert!(key(0.0, 7) < key(0.0, 8) && key(0.0, 8) < key(1e-30, 0) && key(3.5, 9) < key(1e30, 0));
        assert!(key(1e30, 0) < key(f32::INFINITY, 0) && key(f32::INFINITY, 0) < key(f32::NAN, 0));
        assert!(key(f32::INFINITY, 0) < key(-f32::NAN, 0) && distance_of(key(-f32::NAN, 7)).is_nan());
        assert_eq!((distance_of(key(2.5, 3)), slot_of(key(2.5, 3))), (2.5, 3));
    }
}
