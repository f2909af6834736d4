//! A set of slots in memory, one bit each.

use std::ops::Range;
use std::path::Path;

use crate::error::Result;
use crate::memory::resize;

/// A set of slots below n: n / 8 bytes.
#[derive(Debug)]
pub struct Slots {
    words: Vec<u64>,
    len: u32,
}

impl Slots {
    /// None of `n` slots. `path` names the index in the error where memory does not allow it.
    pub(crate) fn none(path: &Path, n: u32) -> Result<Self> {
        let mut words = Vec::new();
        resize(path, &mut words, (n as usize).div_ceil(64), 0)?;
        Ok(Slots { words, len: 0 })
    }

    /// All of `n` slots.
    pub(crate) fn all(path: &Path, n: u32) -> Result<Self> {
        let mut slots = Slots { len: n, ..Self::none(path, n)? };
        slots.words.fill(u64::MAX);
        if let Some(last) = slots.words.last_mut().filter(|_| !n.is_multiple_of(64)) {
            *last = (1 << (n % 64)) - 1;
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
        self.words[slot as usize / 64] |= 1 << (slot % 64);
        self.len += 1;
    }

    /// Takes out a slot, which must be there.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.words[slot as usize / 64] &= !(1 << (slot % 64));
        self.len -= 1;
    }

    /// Whether a slot is there.
    pub fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
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
        self.words.len()
    }

    /// Those in some words.
    pub(crate) fn in_words(&self, words: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        words.clone().zip(&self.words[words]).flat_map(|(i, &word)| {
            std::iter::successors((word != 0).then_some(word), |&rest| {
                let next = rest & (rest - 1);
                (next != 0).then_some(next)
            })
            .map(move |rest| i as u32 * 64 + rest.trailing_zeros())
        })
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
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
            let all = Slots::all(Path::new("index"), n).unwrap();
            assert_eq!((all.len(), all.iter().collect::<Vec<_>>()), (n, (0..n).collect()));
            assert_eq!(slots.memory_bytes(), u64::from(n.div_ceil(64)) * 8);
        }
    }
}
