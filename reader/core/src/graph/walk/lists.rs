//! The candidates of a query: one list or, where edges lead through vertices that are not allowed, two.
//!
//! Edges know neither filters nor deletions, so a walk to the nearest allowed vertices leads through others. How many others
//! are worth a read is decided apart from how many allowed ones are: each kind has a list of its own.

use crate::living::Slots;
use crate::search::candidates::Candidates;
use crate::search::nearest::slot_of;

/// The nearest vertices that were met and, where not all are allowed, the nearest of those that are.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    all: Candidates,
    /// Empty where all are allowed.
    allowed: Candidates,
}

impl Lists {
    /// Forgets everything. Lists that may [`Lists::double`] keep what they drop. No `allowed`: there is one list.
    pub fn reset(&mut self, all: usize, allowed: usize, may_grow: bool) {
        self.all.reset(all, may_grow);
        self.allowed.reset(allowed, may_grow && allowed > 0);
    }

    /// Forgets the candidates, not how many there may be.
    pub fn clear(&mut self) {
        self.all.clear();
        self.allowed.clear();
    }

    /// Vertices among which nothing was left out that lies nearer than the last of them.
    pub fn capacity(&self) -> usize {
        self.all.capacity()
    }

    /// See [`Candidates::insertions_at_once`].
    pub fn insertions_at_once(&self) -> usize {
        self.all.insertions_at_once().min(self.allowed.insertions_at_once())
    }

    /// Inserts an unvisited vertex into each list that it is near enough for. There is one list without `allowed` vertices.
    pub fn insert(&mut self, key: u64, allowed: Option<&Slots>) {
        self.all.insert(key);
        if allowed.is_some_and(|allowed| allowed.contains(slot_of(key))) {
            self.allowed.insert(key);
        }
    }

    /// Takes the nearest vertex that was not visited, from both lists if both have it.
    pub fn pop(&mut self) -> Option<u32> {
        let (all, allowed) = (self.all.next(), self.allowed.next());
        let is_first = |key: Option<u64>, other: Option<u64>| key.is_some_and(|key| other.is_none_or(|o| key <= o));
        let from_allowed = if is_first(allowed, all) { self.allowed.pop() } else { None };
        let from_all = if is_first(all, allowed) { self.all.pop() } else { None };
        from_all.or(from_allowed)
    }

    /// Distance beyond which an insertion changes nothing, if there is one. The last of the allowed vertices is never
    /// nearer than that of as many vertices of any kind, but there may be more of these.
    pub fn bar(&self) -> Option<f32> {
        if self.allowed.capacity() == 0 {
            return self.all.bar();
        }
        Some(self.allowed.bar()?.max(self.all.bar()?))
    }

    /// How many of the nearest candidates are visited without a gap, in both lists.
    pub fn settled(&mut self) -> usize {
        self.all.settled() + self.allowed.settled()
    }

    /// Makes room for twice as many candidates, of `n` vertices, and takes back what was dropped.
    pub fn double(&mut self, n: usize) {
        for list in [&mut self.all, &mut self.allowed] {
            let capacity = list.capacity();
            if capacity > 0 {
                list.grow(n.min(2 * capacity));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::search::nearest::key;
    use crate::testing::Random;

    /// Keys in the order in which they are taken.
    fn taken(lists: &mut Lists) -> Vec<u32> {
        std::iter::from_fn(|| lists.pop()).collect()
    }

    #[test]
    fn the_nearest_of_any_kind_and_the_nearest_allowed_are_taken_once_each() {
        let n = 300;
        let mut random = Random::new(3);
        for (all, allowed) in [(1, 1), (4, 9), (9, 4), (30, 30), (n, 5)] {
            let is_allowed: Vec<bool> = (0..n).map(|_| random.below(2) == 1).collect();
            let slots = Slots::of(Path::new("index"), n as u32, |slot| is_allowed[slot as usize]).unwrap();
            let mut keys: Vec<u64> = (0..n as u32).map(|slot| key((slot * 7919 % 300 / 2) as f32, slot)).collect();
            let mut lists = Lists::default();
            lists.reset(all, allowed, true);
            for _ in 0..2 {
                keys.iter().for_each(|&key| lists.insert(key, Some(&slots)));
            }
            keys.sort_unstable();
            let want = |all: usize, allowed: usize| -> Vec<u32> {
                let near = keys.iter().take(all).map(|&key| slot_of(key));
                let others =
                    keys.iter().map(|&key| slot_of(key)).filter(|&slot| is_allowed[slot as usize]).take(allowed);
                let either: Vec<u32> = near.chain(others).collect();
                keys.iter().map(|&key| slot_of(key)).filter(|slot| either.contains(slot)).collect()
            };
            assert_eq!(taken(&mut lists), want(all, allowed));
            assert_eq!(lists.settled(), all + allowed.min(slots.len() as usize));
            lists.double(n);
            let more: Vec<u32> = want(n.min(2 * all), 2 * allowed);
            let fewer = want(all, allowed);
            let fresh: Vec<u32> = taken(&mut lists).into_iter().filter(|slot| !fewer.contains(slot)).collect();
            assert_eq!(fresh, more.into_iter().filter(|slot| !fewer.contains(slot)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_beyond_the_bar_changes_nothing() {
        let odd = Slots::of(Path::new("index"), 300, |slot| slot % 2 == 1).unwrap();
        let mut lists = Lists::default();
        lists.reset(1, 2, false);
        for (distance, slot) in [(1.0, 2), (5.0, 3)] {
            lists.insert(key(distance, slot), Some(&odd));
            assert_eq!(lists.bar(), None, "an allowed vertex at any distance has a place");
        }
        lists.insert(key(7.0, 5), Some(&odd));
        assert_eq!(lists.bar(), Some(7.0));
        lists.insert(key(6.0, 4), Some(&odd));
        lists.insert(key(8.0, 7), Some(&odd));
        assert_eq!(taken(&mut lists), [2, 3, 5]);
    }
}
