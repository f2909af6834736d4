//! Chosen uint8 or int8 rows that are too long for the panels' 32 bits, compared one by one.

use super::Chosen;
use crate::distance::Pair;

/// Chosen rows and a candidate.
pub(super) struct LongBytes<T> {
    l2: Pair<T>,
    dim: usize,
    row: *const T,
    chosen: Vec<*const T>,
}

impl<T> LongBytes<T> {
    pub(super) fn new(l2: Pair<T>) -> Self {
        LongBytes { l2, dim: 0, row: std::ptr::null(), chosen: Vec::new() }
    }
}

impl<T: Copy> Chosen for LongBytes<T> {
    type Component = T;

    fn begin(&mut self, dim: usize) {
        self.dim = dim;
        self.chosen.clear();
    }

    fn batch(&self) -> usize {
        1
    }

    unsafe fn load(&mut self, _: usize, row: *const T) {
        self.row = row;
    }

    unsafe fn nearest(&mut self, least: &mut [f32]) {
        // SAFETY: all are rows of `dim` components.
        let far = |&other: &*const T| unsafe { (self.l2)(self.row, other, self.dim) };
        least[0] = self.chosen.iter().map(far).fold(f32::INFINITY, f32::min);
    }

    unsafe fn between(&self, _: usize, _: usize) -> f32 {
        unreachable!("a batch has one row")
    }

    unsafe fn choose(&mut self, _: usize) {
        self.chosen.push(self.row);
    }
}
