//! What indexes that are searched together have each, found by slot: their slots are counted one index after the other.
//!
//! Of a single index it is found without a look at the slot.

/// One value an index: that of the first, and those of the others.
pub(crate) struct Parts<T> {
    first: T,
    /// Where the slots of each of the others begin, ascending.
    starts: Vec<u32>,
    others: Vec<T>,
}

impl<T> Parts<T> {
    /// Of one index.
    pub fn one(first: T) -> Self {
        Parts { first, starts: Vec::new(), others: Vec::new() }
    }

    /// Of indexes and where the slots of each begin, ascending; `None` if there are none. The first begins at 0.
    pub fn of(values: impl IntoIterator<Item = (u32, T)>) -> Option<Self> {
        let mut values = values.into_iter();
        let mut parts = Parts::one(values.next()?.1);
        for (start, value) in values {
            parts.starts.push(start);
            parts.others.push(value);
        }
        Some(parts)
    }

    /// Number of indexes.
    pub fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// Whether there is one index.
    pub fn is_one(&self) -> bool {
        self.others.is_empty()
    }

    /// That of the first index, where all have the same.
    pub fn any(&self) -> &T {
        &self.first
    }

    /// Number of the index that has a slot.
    pub fn number_of(&self, slot: u32) -> usize {
        if self.is_one() { 0 } else { self.starts.partition_point(|&start| start <= slot) }
    }

    /// Where the slots of an index begin, and what it has.
    pub fn get(&self, number: usize) -> (u32, &T) {
        match number.checked_sub(1) {
            None => (0, &self.first),
            Some(i) => (self.starts[i], &self.others[i]),
        }
    }

    /// As [`Parts::get`], of the index that has a slot.
    pub fn at(&self, slot: u32) -> (u32, &T) {
        self.get(self.number_of(slot))
    }

    /// The slot after the last that an index may have.
    pub fn end_of(&self, number: usize) -> u32 {
        self.starts.get(number).copied().unwrap_or(u32::MAX)
    }

    /// As [`Parts::get`], of each index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..self.len()).map(|number| self.get(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_belongs_to_the_index_that_begins_last_before_it() {
        let parts = Parts::of([(0, 'a'), (5, 'b'), (6, 'c')]).unwrap();
        let found: Vec<(u32, char)> = (0..9).map(|slot| parts.at(slot)).map(|(start, &value)| (start, value)).collect();
        assert_eq!(found[..5], [(0, 'a'); 5]);
        assert_eq!(found[5..], [(5, 'b'), (6, 'c'), (6, 'c'), (6, 'c')]);
        assert_eq!((0..3).map(|number| parts.end_of(number)).collect::<Vec<_>>(), [5, 6, u32::MAX]);
        assert!(parts.iter().eq([(0, &'a'), (5, &'b'), (6, &'c')]));
        assert_eq!((parts.len(), parts.is_one(), *parts.any()), (3, false, 'a'));
    }

    #[test]
    fn all_slots_belong_to_a_single_index() {
        let parts = Parts::one('a');
        assert!([0, 7, u32::MAX].iter().all(|&slot| parts.at(slot) == (0, &'a')));
        assert_eq!((parts.len(), parts.is_one(), parts.end_of(0)), (1, true, u32::MAX));
        assert!(Parts::<char>::of([]).is_none());
    }
}
