//! The candidates of a query: one list or, where edges lead through vertices that are not allowed, two; and a short one of
//! each graph that is searched together with others.
//!
//! Edges know neither filters nor deletions, so a walk to the nearest allowed vertices leads through others. How many others
//! are worth a read is decided apart from how many allowed ones are: each kind has a list of its own.
//!
//! Graphs that are searched together have these lists in common. No edge leads from one to another, so that a search of one
//! may begin farther from the query than all that is known of another: a short list of its own leads to its nearest
//! vertices, and only these compete with those of other graphs.

use crate::living::Slots;
use crate::search::candidates::Candidates;
use crate::search::nearest::{distance_of, slot_of};

/// Candidates of a graph's own list: this part of those of the list of all, and no fewer than [`LEAST_OWN`].
const PART_OF_ALL: usize = 3;
const LEAST_OWN: usize = 4;
/// Nearest vertices of each graph that are read almost wherever they are.
const FIRST: usize = 2;
/// How far they may be, and the others of a graph's own list: times the distance of the last vertex in the list of all. A way
/// to vertices that are near enough leads over others that are not.
const FIRST_REACH: f32 = 1.5;
const REACH: f32 = 1.15;

/// The nearest vertices that were met and, where not all are allowed, the nearest of those that are.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    all: Candidates,
    /// Empty where all are allowed.
    allowed: Candidates,
    /// The nearest of each graph, where there are several.
    own: Vec<Candidates>,
}

impl Lists {
    /// Forgets everything. Lists that may [`Lists::double`] keep what they drop. No `allowed`: there is one list.
    pub fn reset(&mut self, all: usize, allowed: usize, may_grow: bool) {
        self.all.reset(all, may_grow);
        self.allowed.reset(allowed, may_grow && allowed > 0);
        self.own.clear();
    }

    /// Gives each of several graphs a list of its own, which does not grow; `list_size` is that of the list of all.
    pub fn reset_own(&mut self, n_graphs: usize, list_size: usize) {
        let capacity = (list_size / PART_OF_ALL).max(LEAST_OWN);
        self.own.resize_with(n_graphs, Candidates::default);
        self.own.iter_mut().for_each(|list| list.reset(capacity, false));
    }

    /// Forgets the candidates, not how many there may be.
    pub fn clear(&mut self) {
        self.all.clear();
        self.allowed.clear();
        self.own.iter_mut().for_each(Candidates::clear);
    }

    /// Vertices among which nothing was left out that lies nearer than the last of them.
    pub fn capacity(&self) -> usize {
        self.all.capacity()
    }

    /// See [`Candidates::insertions_at_once`].
    pub fn insertions_at_once(&self) -> usize {
        self.all.insertions_at_once().min(self.allowed.insertions_at_once())
    }

    /// Inserts an unvisited vertex of graph number `graph` into each list that it is near enough for. There is one list
    /// without `allowed` vertices, and one graph.
    pub fn insert(&mut self, key: u64, graph: usize, allowed: Option<&Slots>) {
        self.all.insert(key);
        if let Some(own) = self.own.get_mut(graph) {
            own.insert(key);
        }
        if allowed.is_some_and(|allowed| allowed.contains(slot_of(key))) {
            self.allowed.insert(key);
        }
    }

    /// Takes the nearest vertex that was not visited, from both lists if both have it.
    pub fn pop(&mut self) -> Option<u32> {
        if !self.own.is_empty() {
            return self.pop_of_graphs();
        }
        let (all, allowed) = (self.all.next(), self.allowed.next());
        let is_first = |key: Option<u64>, other: Option<u64>| key.is_some_and(|key| other.is_none_or(|o| key <= o));
        let from_allowed = if is_first(allowed, all) { self.allowed.pop() } else { None };
        let from_all = if is_first(all, allowed) { self.all.pop() } else { None };
        from_all.or(from_allowed)
    }

    /// As [`Lists::pop`] for several graphs: also the nearest of each graph that may lead to vertices near enough for the list
    /// of all.
    fn pop_of_graphs(&mut self) -> Option<u32> {
        let Lists { all, allowed, own } = self;
        let bar = all.bar().unwrap_or(f32::INFINITY);
        let of_graph = |list: &mut Candidates| {
            let reach = if list.settled() < FIRST { bar * FIRST_REACH } else { bar * REACH };
            list.next().filter(|&key| distance_of(key) <= reach)
        };
        let in_common = all.next().into_iter().chain(allowed.next());
        let key = own.iter_mut().filter_map(of_graph).chain(in_common).min()?;
        [all, allowed].into_iter().chain(own).for_each(|list| list.visit(key));
        Some(slot_of(key))
    }

    /// Distance beyond which the insertion of a vertex of a graph changes nothing, if there is one. The last of the allowed
    /// vertices is never nearer than that of as many vertices of any kind, but there may be more of these.
    pub fn bar(&self, graph: usize) -> Option<f32> {
        let bar =
            if self.allowed.capacity() == 0 { self.all.bar() } else { Some(self.allowed.bar()?.max(self.all.bar()?)) };
        self.own.get(graph).map_or(bar, |own| Some(bar?.max(own.bar()?)))
    }

    /// How many of the nearest candidates are visited without a gap, in all lists.
    pub fn settled(&mut self) -> usize {
        self.all.settled() + self.allowed.settled() + self.own.iter_mut().map(Candidates::settled).sum::<usize>()
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
                keys.iter().for_each(|&key| lists.insert(key, 0, Some(&slots)));
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
    fn of_each_graph_more_are_taken_than_of_all_as_far_as_they_may_lead_to_near_ones() {
        let (n, graph_of) = (300u32, |slot: u32| slot as usize / 100);
        let mut random = Random::new(4);
        for all in [1, 5, 40, 90] {
            let mut lists = Lists::default();
            lists.reset(all, 0, false);
            lists.reset_own(3, all);
            // Graphs begin farther and farther away.
            let mut keys: Vec<u64> =
                (0..n).map(|slot| key((50 + slot / 5 + random.below(40) as u32) as f32, slot)).collect();
            for _ in 0..2 {
                keys.iter().for_each(|&key| lists.insert(key, graph_of(slot_of(key)), None));
            }
            keys.sort_unstable();
            let bar = distance_of(keys[all - 1]);
            let (mut want, mut counts, mut left_out) = (Vec::new(), [0; 3], 0);
            for (rank, &key) in keys.iter().enumerate() {
                let count = &mut counts[graph_of(slot_of(key))];
                let reach = bar * if *count < FIRST { FIRST_REACH } else { REACH };
                let is_own = *count < (all / PART_OF_ALL).max(LEAST_OWN) && distance_of(key) <= reach;
                *count += 1;
                if rank < all || is_own {
                    want.push(slot_of(key));
                } else {
                    left_out += 1;
                }
            }
            assert_eq!(taken(&mut lists), want, "{all}");
            assert!(want.len() > all && left_out > 0);
        }
    }

    #[test]
    fn what_a_graph_has_near_is_kept_beyond_the_bar_of_all() {
        let mut lists = Lists::default();
        lists.reset(1, 0, false);
        lists.reset_own(2, 1);
        (0..4).for_each(|slot| lists.insert(key(10.0 + slot as f32, slot), 0, None));
        assert_eq!((lists.bar(0), lists.bar(1)), (Some(13.0), None), "the other graph has no vertex yet");
        (4..8).for_each(|slot| lists.insert(key(8.0 + slot as f32, slot), 1, None));
        assert_eq!(lists.bar(1), Some(15.0));
        assert_eq!(taken(&mut lists), [0, 1, 4, 5], "others than the first two of each reach as far as 11.5");
    }

    #[test]
    fn what_is_beyond_the_bar_changes_nothing() {
        let odd = Slots::of(Path::new("index"), 300, |slot| slot % 2 == 1).unwrap();
        let mut lists = Lists::default();
        lists.reset(1, 2, false);
        for (distance, slot) in [(1.0, 2), (5.0, 3)] {
            lists.insert(key(distance, slot), 0, Some(&odd));
            assert_eq!(lists.bar(0), None, "an allowed vertex at any distance has a place");
        }
        lists.insert(key(7.0, 5), 0, Some(&odd));
        assert_eq!(lists.bar(0), Some(7.0));
        lists.insert(key(6.0, 4), 0, Some(&odd));
        lists.insert(key(8.0, 7), 0, Some(&odd));
        assert_eq!(taken(&mut lists), [2, 3, 5]);
    }
}
