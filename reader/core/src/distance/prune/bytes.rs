//! Chosen uint8 or int8 rows, compared in integers; rows too long for panels are compared one by one.
//!
//! int8 is shifted by 128 into uint8, which changes no difference.

use std::marker::PhantomData;

use super::chosen::{Asked, Chosen};
use super::packed::Packed;
use crate::distance::block::Level;
use crate::distance::level::{Kernels, Pair};

/// A component of 8 bits.
pub(super) trait Byte: Copy {
    /// Returns it as uint8.
    fn unsigned(self) -> u8;
}

impl Byte for u8 {
    fn unsigned(self) -> u8 {
        self
    }
}

impl Byte for i8 {
    fn unsigned(self) -> u8 {
        self as u8 ^ 0x80
    }
}

/// Chosen rows and a batch, for one instruction-set level.
pub(super) struct Bytes<T> {
    kernels: &'static Kernels,
    dim: usize,
    packed: Packed,
    component: PhantomData<T>,
}

impl<T: Byte> Bytes<T> {
    pub(super) fn new(level: &'static Level, kernels: &'static Kernels) -> Self {
        Bytes { kernels, dim: 0, packed: Packed::new(level), component: PhantomData }
    }
}

impl<T: Byte> Chosen for Bytes<T> {
    type Component = T;

    unsafe fn start(&mut self, dim: usize, _: usize, _: impl Fn(usize) -> *const T) {
        self.dim = dim;
        self.packed.start(dim);
    }

    fn begin(&mut self) {
        self.packed.begin();
    }

    fn batch(&self) -> usize {
        self.packed.batch()
    }

    unsafe fn load(&mut self, i: usize, row: *const T) {
        // SAFETY: the caller vouches for the row.
        let row = unsafe { std::slice::from_raw_parts(row, self.dim) };
        self.packed.load(i, |own| own.iter_mut().zip(row).for_each(|(to, &from)| *to = from.unsigned()));
    }

    unsafe fn nearest(&mut self, _: Asked, least: &mut [f32]) {
        self.packed.compare(least.len());
        for (i, distance) in least.iter_mut().enumerate() {
            let lowest = self.packed.distances(i).iter().fold(i32::MAX, |low, &d| low.min(d));
            *distance = if self.packed.n_chosen() == 0 { f32::INFINITY } else { lowest as f32 };
        }
    }

    unsafe fn between(&self, i: usize, j: usize, _: Asked) -> f32 {
        // SAFETY: both are rows of `dim` components.
        unsafe { (self.kernels.l2_u8)(self.packed.row(i).as_ptr(), self.packed.row(j).as_ptr(), self.dim) }
    }

    unsafe fn choose(&mut self, i: usize) {
        self.packed.choose(i);
    }
}

/// Chosen rows that are too long for the 32 bits of panels, and a candidate: compared one by one.
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

    unsafe fn start(&mut self, dim: usize, _: usize, _: impl Fn(usize) -> *const T) {
        self.dim = dim;
    }

    fn begin(&mut self) {
        self.chosen.clear();
    }

    fn batch(&self) -> usize {
        1
    }

    unsafe fn load(&mut self, _: usize, row: *const T) {
        self.row = row;
    }

    unsafe fn nearest(&mut self, _: Asked, least: &mut [f32]) {
        // SAFETY: all are rows of `dim` components.
        let far = |&other: &*const T| unsafe { (self.l2)(self.row, other, self.dim) };
        least[0] = self.chosen.iter().map(far).fold(f32::INFINITY, f32::min);
    }

    unsafe fn between(&self, _: usize, _: usize, _: Asked) -> f32 {
        unreachable!("a batch has one row")
    }

    unsafe fn choose(&mut self, _: usize) {
        self.chosen.push(self.row);
    }
}
