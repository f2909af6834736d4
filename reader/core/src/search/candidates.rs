//! The candidate list C of both algorithms: the L vertices nearest by PQ distance, each visited or not.

use super::nearest::slot_of;

/// Sorted by key, at most `capacity` long. An insertion moves up to L entries, a few cache lines.
#[derive(Debug, Default)]
pub struct Candidates {
    capacity: usize,
    entries: Vec<Candidate>,
    /// Everything before it is visited.
    first_unvisited: usize,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    key: u64,
    visited: bool,
}

impl Candidates {
    /// Forgets everything.
    pub fn reset(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.entries.clear();
        self.first_unvisited = 0;
    }

    /// Inserts an unvisited vertex if it is among the `capacity` nearest. No key is inserted twice.
    pub fn insert(&mut self, key: u64) {
        if self.entries.len() == self.capacity {
            if self.entries.last().is_none_or(|last| key > last.key) {
                return;
            }
            self.entries.pop();
        }
        let at = self.entries.partition_point(|entry| entry.key < key);
        self.entries.insert(at, Candidate { key, visited: false });
        self.first_unvisited = self.first_unvisited.min(at);
    }

    /// Marks the nearest unvisited vertices as visited, in order, until `accept` took `width` of them.
    pub fn visit(&mut self, width: usize, mut accept: impl FnMut(u32) -> bool) {
        let mut taken = 0;
        while taken < width {
            let Some(entry) = self.entries.get_mut(self.first_unvisited) else { return };
            self.first_unvisited += 1;
            if !entry.visited {
                entry.visited = true;
                taken += usize::from(accept(slot_of(entry.key)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::nearest::key;
    use super::*;
    use crate::testing::Random;

    /// Everything ever inserted, sorted and cut each time.
    fn naive_insert(list: &mut Vec<(u64, bool)>, key: u64, capacity: usize) {
        list.push((key, false));
        list.sort_unstable();
        list.truncate(capacity);
    }

    #[test]
    fn candidates_equal_a_list_that_is_sorted_and_cut_after_every_insertion() {
        let mut random = Random::new(6);
        for capacity in [1usize, 2, 17, 64] {
            let (mut fast, mut slow) = (Candidates::default(), Vec::new());
            fast.reset(capacity);
            for slot in 0..1000u32 {
                let key = key(random.below(50) as f32, slot);
                fast.insert(key);
                naive_insert(&mut slow, key, capacity);
                if random.below(5) == 0 {
                    let width = 1 + random.below(4);
                    let (mut got, mut want) = (Vec::new(), Vec::new());
                    fast.visit(width, |s| {
                        got.push(s);
                        !s.is_multiple_of(3)
                    });
                    let mut taken = 0;
                    for (key, visited) in slow.iter_mut().filter(|e| !e.1) {
                        if taken == width {
                            break;
                        }
                        *visited = true;
                        want.push(slot_of(*key));
                        taken += usize::from(!slot_of(*key).is_multiple_of(3));
                    }
                    assert_eq!(got, want);
                }
            }
        }
    }
}
