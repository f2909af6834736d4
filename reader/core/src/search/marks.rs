//! What a query knows about each vertex it met: a hash map from slot to flags, emptied in constant time.

use crate::distance::prefetch_line;

/// Open addressing with linear probing. An entry is the slot (high 32 bits), the epoch in which it was written (24
/// bits) and the flags (8 bits); entries of another epoch count as free.
#[derive(Debug)]
pub struct Marks {
    entries: Vec<u64>,
    epoch: u32,
    len: usize,
}

const FIRST_CAPACITY: usize = 1024;
const EPOCH_BITS: u32 = 24;

impl Default for Marks {
    fn default() -> Self {
        Marks { entries: vec![0; FIRST_CAPACITY], epoch: 1, len: 0 }
    }
}

impl Marks {
    /// Forgets everything.
    pub fn reset(&mut self) {
        self.len = 0;
        self.epoch += 1;
        if self.epoch >> EPOCH_BITS != 0 {
            self.entries.fill(0);
            self.epoch = 1;
        }
    }

    /// Flags of `slot`, 0 if it was never marked.
    pub fn get(&self, slot: u32) -> u8 {
        let entry = self.entries[self.find(slot)];
        if self.is_current(entry) { entry as u8 } else { 0 }
    }

    /// Adds flags to `slot` and returns those it had. Amortised constant time.
    pub fn mark(&mut self, slot: u32, flags: u8) -> u8 {
        if self.len * 2 >= self.entries.len() {
            self.grow();
        }
        let at = self.find(slot);
        let current = self.is_current(self.entries[at]);
        let before = if current { self.entries[at] as u8 } else { 0 };
        self.entries[at] = u64::from(slot) << 32 | u64::from(self.epoch) << 8 | u64::from(before | flags);
        self.len += usize::from(!current);
        before
    }

    /// Asks for the memory that a look-up of `slot` will touch.
    pub fn prefetch(&self, slot: u32) {
        prefetch_line(self.entries.as_ptr().wrapping_add(self.home(slot)).cast());
    }

    fn is_current(&self, entry: u64) -> bool {
        (entry as u32) >> 8 == self.epoch
    }

    /// Fibonacci hashing: neighbouring slots must not cluster.
    fn home(&self, slot: u32) -> usize {
        (u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.entries.len() - 1)
    }

    /// Where `slot` is, or the free entry where it belongs. At most half of the entries are in use.
    fn find(&self, slot: u32) -> usize {
        let mut at = self.home(slot);
        while self.is_current(self.entries[at]) && (self.entries[at] >> 32) as u32 != slot {
            at = (at + 1) & (self.entries.len() - 1);
        }
        at
    }

    fn grow(&mut self) {
        let larger = vec![0; self.entries.len() * 2];
        for entry in std::mem::replace(&mut self.entries, larger) {
            if self.is_current(entry) {
                let at = self.find((entry >> 32) as u32);
                self.entries[at] = entry;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::HashMap;

    #[test]
    fn marks_equal_a_hash_map_through_growth_resets_and_the_last_epoch() {
        let mut random = Random::new(8);
        let mut marks = Marks { epoch: (1 << EPOCH_BITS) - 3, ..Marks::default() };
        for round in 0..6 {
            let mut oracle: HashMap<u32, u8> = HashMap::new();
            for _ in 0..(500 * (round + 1)) {
                let (slot, flags) = (random.below(3000) as u32 * 4096, 1 << random.below(8));
                let known = oracle.entry(slot).or_default();
                assert_eq!(marks.mark(slot, flags), *known);
                *known |= flags;
            }
            assert_eq!(marks.len, oracle.len());
            assert!((0..3000).all(|i| marks.get(i * 4096) == oracle.get(&(i * 4096)).copied().unwrap_or(0)));
            marks.reset();
            assert!((0..3000).all(|i| marks.get(i * 4096) == 0));
        }
    }
}
