//! A hash map from u32 to u32 that is emptied in constant time, so that a query state is reused without touching its
//! memory.

/// Open addressing with linear probing. Entries of an older epoch count as free.
#[derive(Debug)]
pub struct Stamped {
    entries: Vec<Entry>,
    epoch: u32,
    len: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// 0 is no epoch.
    epoch: u32,
    key: u32,
    value: u32,
}

/// Twice what a search usually puts in, and 3 KiB: a thread has the maps of many queries in its caches.
const FIRST_CAPACITY: usize = 256;

impl Default for Stamped {
    fn default() -> Self {
        Stamped { entries: vec![Entry::default(); FIRST_CAPACITY], epoch: 1, len: 0 }
    }
}

impl Stamped {
    /// Forgets everything.
    pub fn reset(&mut self) {
        self.len = 0;
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.entries.fill(Entry::default());
            self.epoch = 1;
        }
    }

    /// Value of `key`.
    pub fn get(&self, key: u32) -> Option<u32> {
        let entry = &self.entries[self.find(key)];
        (entry.epoch == self.epoch).then_some(entry.value)
    }

    /// Value of `key`, which is inserted with value 0 if it is new. Amortised constant time.
    pub fn entry(&mut self, key: u32) -> &mut u32 {
        if self.len * 2 >= self.entries.len() {
            self.grow();
        }
        let at = self.find(key);
        let entry = &mut self.entries[at];
        if entry.epoch != self.epoch {
            *entry = Entry { epoch: self.epoch, key, value: 0 };
            self.len += 1;
        }
        &mut entry.value
    }

    /// Where `key` is, or the free entry where it belongs. At most half of the entries are in use.
    fn find(&self, key: u32) -> usize {
        let mask = self.entries.len() - 1;
        // Fibonacci hashing: neighbouring slots must not cluster.
        let mut at = (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.entries[at].epoch == self.epoch && self.entries[at].key != key {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let larger = vec![Entry::default(); self.entries.len() * 2];
        let old = std::mem::replace(&mut self.entries, larger);
        for entry in old.into_iter().filter(|e| e.epoch == self.epoch) {
            let at = self.find(entry.key);
            self.entries[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::HashMap;

    #[test]
    fn stamped_map_equals_a_hash_map_through_growth_and_resets() {
        let mut random = Random::new(7);
        let mut map = Stamped { epoch: u32::MAX - 2, ..Stamped::default() };
        for round in 0..6 {
            let mut oracle = HashMap::new();
            for _ in 0..(500 * (round + 1)) {
                let key = random.below(3000) as u32 * 1024;
                *map.entry(key) += 1;
                *oracle.entry(key).or_insert(0u32) += 1;
            }
            assert_eq!(map.len, oracle.len());
            assert!((0..3000).all(|i| map.get(i * 1024) == oracle.get(&(i * 1024)).copied()));
            map.reset();
            assert!((0..3000).all(|i| map.get(i * 1024).is_none()));
        }
    }
}
