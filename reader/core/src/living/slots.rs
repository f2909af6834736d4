//! A set of slots in memory, one bit each.

use std::ops::Range;
use std::path::Path;

use crate::error::Result;
use crate::memory::Region;

/// Bytes of a word.
const WORD_BYTES: usize = 8;
/// Slots of a word.
const WORD_BITS: u32 = 64;

/// A set of slots below n: n / 8 bytes, which take memory where the set differs from that of no slot, or of all.
#[derive(Debug)]
pub struct Slots {
    /// A bit for each slot, in whole words: whether the slot's differs from that of `blank`.
    changes: Region,
    /// A word of the set to which nothing was added, and from which nothing was taken.
    blank: u64,
    len: u32,
}

impl Slots {
    /// None of `n` slots. `path` names the index in the error where memory does not allow it.
    pub(crate) fn none(path: &Path, n: u32) -> Result<Self> {
        let changes = Region::sparse(path, n.div_ceil(WORD_BITS) as usize * WORD_BYTES)?;
        Ok(Slots { changes, blank: 0, len: 0 })
    }

    /// All of `n` slots.
    pub(crate) fn all(path: &Path, n: u32) -> Result<Self> {
        let mut slots = Slots { blank: u64::MAX, len: n, ..Self::none(path, n)? };
        // What would come behind the last slot is not there.
        if let Some(last) = slots.changes.last_chunk_mut::<WORD_BYTES>().filter(|_| !n.is_multiple_of(WORD_BITS)) {
            *last = (u64::MAX << (n % WORD_BITS)).to_le_bytes();
        }
        Ok(slots)
    }

    /// Those of `n` slots that `has` names.
    pub(crate) fn of(path: &Path, n: u32, has: impl Fn(u32) -> bool) -> Result<Self> {
        let mut slots = Self::none(path, n)?;
        (0..n).filter(|&slot| has(slot)).for_each(|slot| slots.insert(slot));
        Ok(slots)
    }

    /// Adds a slot, which must be below n and not be there yet.
    pub(crate) fn insert(&mut self, slot: u32) {
        self.change(slot);
        self.len += 1;
    }

    /// Takes out a slot, which must be there.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.change(slot);
        self.len -= 1;
    }

    fn change(&mut self, slot: u32) {
        self.changes[slot as usize / 8] ^= 1 << (slot % 8);
    }

    /// Whether a slot is there.
    pub fn contains(&self, slot: u32) -> bool {
        let blank = self.blank as u8;
        self.changes.get(slot as usize / 8).is_some_and(|changes| (changes ^ blank) >> (slot % 8) & 1 == 1)
    }

    /// Number of slots that are there.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether none is there.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slots that are there, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.in_words(0..self.n_words())
    }

    /// Words of 64 slots each.
    pub(crate) fn n_words(&self) -> usize {
        self.changes.len() / WORD_BYTES
    }

    /// Those in some words.
    pub(crate) fn in_words(&self, words: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let changes = &self.changes.as_chunks::<WORD_BYTES>().0[words.clone()];
        let blank = self.blank;
        words.zip(changes).flat_map(move |(i, &changes)| {
            let word = u64::from_le_bytes(changes) ^ blank;
            std::iter::successors((word != 0).then_some(word), |&rest| {
                let next = rest & (rest - 1);
                (next != 0).then_some(next)
            })
            .map(move |rest| i as u32 * WORD_BITS + rest.trailing_zeros())
        })
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.changes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_not_taken_out() {
        for n in [1u32, 7, 63, 64, 65, 300] {
            let mut slots = Slots::of(Path::new("index"), n, |slot| slot % 3 == 0).unwrap();
            slots.remove(0);
            if n > 1 {
                slots.insert(1);
            }
            let want: Vec<u32> = (0..n).filter(|&slot| slot == 1 || (slot % 3 == 0 && slot > 0)).collect();
            assert_eq!(slots.iter().collect::<Vec<_>>(), want);
            assert_eq!((slots.len() as usize, slots.is_empty()), (want.len(), want.is_empty()));
            assert!((0..n + 70).all(|slot| slots.contains(slot) == want.contains(&slot)));
            let mut all = Slots::all(Path::new("index"), n).unwrap();
            assert_eq!((all.len(), all.iter().collect::<Vec<_>>()), (n, (0..n).collect()));
            assert!((0..n + 70).all(|slot| all.contains(slot) == (slot < n)));
            all.remove(n - 1);
            assert_eq!((all.len(), all.iter().collect::<Vec<_>>()), (n - 1, (0..n - 1).collect()));
            all.insert(n - 1);
            assert!(all.contains(n - 1) && !all.contains(n));
            assert_eq!(slots.memory_bytes(), u64::from(n.div_ceil(64)) * 8);
        }
    }
}
