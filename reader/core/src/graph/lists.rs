//! The candidates of a query: one list or, where a filter is walked through, two.
//!
//! Edges do not know the filter, so a walk to the nearest allowed vertices leads through others. How many others are worth
//! a read is decided apart from how many allowed ones are: each kind has a list of its own.

use super::filter::Filter;
use crate::search::candidates::Candidates;
use crate::search::nearest::slot_of;

/// The nearest vertices that were met and, under a filter, the nearest of those that it allows.
#[derive(Debug, Default)]
pub(super) struct Lists {
    all: Candidates,
    /// Empty without a filter.
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

    /// Inserts an unvisited vertex into each list that it is near enough for; `filter` is the one that is walked through.
    pub fn insert(&mut self, key: u64, filter: Option<&Filter>) {
        self.all.insert(key);
        if filter.is_some_and(|filter| filter.allows(slot_of(key))) {
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
