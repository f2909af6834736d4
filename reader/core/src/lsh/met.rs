//! The set of vectors that a query has met, small enough to stay in a core's own cache.

use crate::distance::prefetch_line;

/// Open addressing with linear probing over 4 bytes an entry, at most half of which are in use.
#[derive(Debug)]
pub struct Met {
    slots: Vec<u32>,
    len: usize,
}

/// No slot: a slot is below n, which is below 2^32.
const FREE: u32 = u32::MAX;
const FIRST_CAPACITY: usize = 1024;

impl Default for Met {
    fn default() -> Self {
        Met { slots: vec![FREE; FIRST_CAPACITY], len: 0 }
    }
}

impl Met {
    /// Forgets everything, in time proportional to the number of slots: memory that was hardly used is given back.
    pub fn reset(&mut self) {
        if self.len * 16 < self.slots.len() && self.slots.len() > FIRST_CAPACITY {
            self.slots.truncate((self.len * 4).next_power_of_two().max(FIRST_CAPACITY));
        }
        self.slots.fill(FREE);
        self.len = 0;
    }

    /// Adds a slot; true if it is new. Amortised constant time.
    pub fn insert(&mut self, slot: u32) -> bool {
        let at = self.find(slot);
        if self.slots[at] == slot {
            return false;
        }
        self.slots[at] = slot;
        self.len += 1;
        if self.len * 2 > self.slots.len() {
            self.grow();
        }
        true
    }

    /// Prefetches the cache line of a slot.
    pub fn prefetch(&self, slot: u32) {
        prefetch_line(self.slots.as_ptr().wrapping_add(self.home(slot)).cast());
    }

    /// Where a slot belongs, if that place is free.
    fn home(&self, slot: u32) -> usize {
        // Fibonacci hashing: neighbouring slots must not cluster.
        (u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.slots.len() - 1)
    }

    /// Where a slot is, or the free place where it belongs.
    fn find(&self, slot: u32) -> usize {
        let (mut at, mask) = (self.home(slot), self.slots.len() - 1);
        while self.slots[at] != FREE && self.slots[at] != slot {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let larger = vec![FREE; self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, larger).into_iter().filter(|&slot| slot != FREE) {
            let at = self.find(slot);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_CAPACITY, Met};
    use crate::testing::Random;
    use std::collections::HashSet;

    #[test]
    fn a_set_equals_that_of_the_library_through_growth_and_resets() {
        let (mut random, mut met) = (Random::new(5), Met::default());
        for most in [10, 5000, 40_000, 3, 700, 1, 0] {
            let mut oracle = HashSet::new();
            for _ in 0..most {
                let slot = random.below(30_000) as u32 * 1024;
                assert_eq!(met.insert(slot), oracle.insert(slot));
            }
            assert_eq!(met.len, oracle.len());
            met.reset();
        }
        met.reset();
        assert_eq!(met.slots.len(), FIRST_CAPACITY);
    }
}
