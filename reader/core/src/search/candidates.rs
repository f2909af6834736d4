//! The candidate list C of greedy searches: the L nearest vertices, each visited or not.

use super::nearest::{distance_of, slot_of};

/// Entries that insertions move before a query gives way, about.
const MOVED_AT_ONCE: usize = 1 << 26;

/// Sorted by key, at most `capacity` long. An insertion moves up to L entries, a few cache lines.
///
/// A vertex always has the same key, so one that is offered again is found where it would be inserted; one that was
/// dropped is refused again, because the list only gets nearer. No record of the vertices seen is needed. (In an index
/// with codes in its nodes the first vertex may have two keys, and in a damaged one any vertex: whoever visits it must know
/// that it was expanded.)
#[derive(Debug, Default)]
pub struct Candidates {
    capacity: usize,
    entries: Vec<Candidate>,
    /// Everything before it is visited.
    first_unvisited: usize,
    /// Keys that found no place, if they are wanted back.
    dropped: Option<Vec<u64>>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    key: u64,
    visited: bool,
}

impl Candidates {
    /// Forgets everything. A list that may [`Candidates::grow`] keeps what it drops.
    pub fn reset(&mut self, capacity: usize, may_grow: bool) {
        self.capacity = capacity;
        self.entries.clear();
        self.first_unvisited = 0;
        self.dropped = may_grow.then(|| {
            let mut dropped = self.dropped.take().unwrap_or_default();
            dropped.clear();
            dropped
        });
    }

    /// Forgets the candidates, not L.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.first_unvisited = 0;
    }

    /// L.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Insertions into a full list that a query makes before it gives way: fewer, the more entries each may move.
    pub fn insertions_at_once(&self) -> usize {
        MOVED_AT_ONCE >> (self.capacity | 1).ilog2()
    }

    /// Inserts an unvisited vertex if it is among the `capacity` nearest and not there yet.
    pub fn insert(&mut self, key: u64) {
        let is_full = self.entries.len() == self.capacity;
        if is_full && self.entries.last().is_none_or(|last| key > last.key) {
            self.drop_key(key);
            return;
        }
        let at = self.entries.partition_point(|entry| entry.key < key);
        if self.entries.get(at).is_some_and(|entry| entry.key == key) {
            return;
        }
        if is_full && let Some(last) = self.entries.pop() {
            self.drop_key(last.key);
        }
        self.entries.insert(at, Candidate { key, visited: false });
        self.first_unvisited = self.first_unvisited.min(at);
    }

    /// Takes the nearest unvisited vertex and marks it as visited.
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(entry) = self.entries.get_mut(self.first_unvisited) {
            self.first_unvisited += 1;
            if !entry.visited {
                entry.visited = true;
                return Some(slot_of(entry.key));
            }
        }
        None
    }

    /// Key of the nearest unvisited vertex.
    pub fn next(&mut self) -> Option<u64> {
        let at = self.settled();
        self.entries.get(at).map(|entry| entry.key)
    }

    /// Distance beyond which an insertion changes nothing, if there is one.
    pub fn bar(&self) -> Option<f32> {
        let is_full = self.entries.len() == self.capacity && self.dropped.is_none();
        self.entries.last().filter(|_| is_full).map(|last| distance_of(last.key))
    }

    /// The keys, nearest first.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|entry| entry.key)
    }

    /// How many of the nearest candidates are visited without a gap.
    pub fn settled(&mut self) -> usize {
        while self.entries.get(self.first_unvisited).is_some_and(|entry| entry.visited) {
            self.first_unvisited += 1;
        }
        self.first_unvisited
    }

    /// Makes room for `capacity` candidates and takes back the nearest of those that were dropped. A vertex dropped
    /// after its visit comes back as unvisited: whoever visits it must know that it was expanded.
    pub fn grow(&mut self, capacity: usize) {
        self.capacity = capacity;
        let mut dropped = self.dropped.replace(Vec::new()).unwrap_or_default();
        dropped.sort_unstable();
        dropped.dedup();
        dropped.into_iter().for_each(|key| self.insert(key));
    }

    fn drop_key(&mut self, key: u64) {
        let Some(dropped) = &mut self.dropped else { return };
        if dropped.len() == dropped.capacity() {
            // A vertex is offered once for each edge that leads to it.
            dropped.sort_unstable();
            dropped.dedup();
        }
        dropped.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::nearest::key;
    use super::*;
    use crate::testing::Random;

    #[test]
    fn candidates_equal_sorting_and_cutting() {
        let mut random = Random::new(6);
        for capacity in [1usize, 2, 7, 40] {
            let mut list = Candidates::default();
            list.reset(capacity, false);
            let mut slow: Vec<(u64, bool)> = Vec::new();
            for _ in 0..200 {
                for _ in 0..random.below(6) {
                    let slot = random.below(300) as u32;
                    let key = key((slot % 50) as f32, slot);
                    list.insert(key);
                    let is_near = slow.len() < capacity || slow.last().is_some_and(|last| key < last.0);
                    if is_near && slow.iter().all(|entry| entry.0 != key) {
                        slow.push((key, false));
                        slow.sort_unstable();
                        slow.truncate(capacity);
                    }
                }
                if random.below(3) == 0 {
                    let want = slow.iter_mut().find(|entry| !entry.1).map(|entry| {
                        entry.1 = true;
                        slot_of(entry.0)
                    });
                    assert_eq!(list.pop(), want);
                }
                assert_eq!(list.settled(), slow.iter().position(|entry| !entry.1).unwrap_or(slow.len()));
            }
        }
    }

    #[test]
    fn keys_beyond_the_bar_change_nothing_and_those_at_it_may() {
        let mut list = Candidates::default();
        list.reset(3, false);
        for (distance, slot) in [(3.0, 1), (1.0, 2)] {
            list.insert(key(distance, slot));
            assert_eq!(list.bar(), None);
        }
        list.insert(key(2.0, 3));
        assert_eq!(list.bar(), Some(3.0));
        let before: Vec<u64> = list.keys().collect();
        list.insert(key(3.5, 0));
        assert!(list.keys().eq(before.iter().copied()));
        list.insert(key(3.0, 0));
        assert!(list.keys().eq([before[0], before[1], key(3.0, 0)]) && list.bar() == Some(3.0));
        list.reset(1, true);
        list.insert(key(1.0, 1));
        assert_eq!(list.bar(), None, "what is dropped may come back");
    }

    #[test]
    fn a_list_that_grew_holds_what_a_larger_one_would_have_held() {
        let mut random = Random::new(16);
        let (mut small, mut large) = (Candidates::default(), Candidates::default());
        small.reset(5, true);
        large.reset(40, true);
        for _ in 0..300 {
            let slot = random.below(1000) as u32;
            small.insert(key((slot % 77) as f32, slot));
            large.insert(key((slot % 77) as f32, slot));
        }
        small.grow(40);
        let order = |list: &mut Candidates| std::iter::from_fn(|| list.pop()).collect::<Vec<_>>();
        assert_eq!(order(&mut small), order(&mut large));
    }
}
