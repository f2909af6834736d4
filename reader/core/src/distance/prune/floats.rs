//! Chosen float32 or binary16 rows in panels, compared in the lane order of [`crate::distance`], so to the same bits.

use super::chosen::{Asked, Chosen};
use crate::distance::level::{FLOAT_PANEL, Kernels};

/// Chosen rows and a candidate, for one instruction-set level.
pub(super) struct Floats {
    kernels: &'static Kernels,
    dim: usize,
    row: *const f32,
    /// Panels of chosen rows: for each component, that of 16 rows.
    panels: Vec<[f32; FLOAT_PANEL]>,
    n_chosen: usize,
}

impl Floats {
    pub(super) fn new(kernels: &'static Kernels) -> Self {
        Floats { kernels, dim: 0, row: std::ptr::null(), panels: Vec::new(), n_chosen: 0 }
    }
}

impl Chosen for Floats {
    type Component = f32;

    unsafe fn start(&mut self, dim: usize, _: usize, _: impl Fn(usize) -> *const f32) {
        self.dim = dim;
    }

    fn begin(&mut self) {
        self.n_chosen = 0;
    }

    fn batch(&self) -> usize {
        1
    }

    unsafe fn load(&mut self, _: usize, row: *const f32) {
        self.row = row;
    }

    unsafe fn nearest(&mut self, _: Asked, least: &mut [f32]) {
        let n_panels = self.n_chosen.div_ceil(FLOAT_PANEL);
        // SAFETY: the row and the rows of the panels have `dim` components.
        least[0] = unsafe { (self.kernels.least_l2_f32)(self.row, self.panels.as_ptr(), n_panels, self.dim) };
    }

    unsafe fn between(&self, _: usize, _: usize, _: Asked) -> f32 {
        unreachable!("a batch has one row")
    }

    unsafe fn choose(&mut self, _: usize) {
        let (first, lane) = (self.n_chosen / FLOAT_PANEL * self.dim, self.n_chosen % FLOAT_PANEL);
        if self.panels.len() < first + self.dim {
            self.panels.resize(first + self.dim, [0.0; FLOAT_PANEL]);
        }
        if lane == 0 {
            self.panels[first] = [f32::INFINITY; FLOAT_PANEL]; // rows that are not there are infinitely far
        }
        // SAFETY: the caller vouches for the row.
        let row = unsafe { std::slice::from_raw_parts(self.row, self.dim) };
        for (sixteen, &x) in self.panels[first..].iter_mut().zip(row) {
            sixteen[lane] = x;
        }
        self.n_chosen += 1;
    }
}

/// Binary16 rows, widened.
pub(super) struct Halves {
    wide: Vec<f32>,
    floats: Floats,
}

impl Halves {
    pub(super) fn new(kernels: &'static Kernels) -> Self {
        Halves { wide: Vec::new(), floats: Floats::new(kernels) }
    }
}

impl Chosen for Halves {
    type Component = u16;

    unsafe fn start(&mut self, dim: usize, _: usize, _: impl Fn(usize) -> *const u16) {
        self.wide.resize(dim, 0.0);
        self.floats.dim = dim;
    }

    fn begin(&mut self) {
        self.floats.begin();
    }

    fn batch(&self) -> usize {
        self.floats.batch()
    }

    unsafe fn load(&mut self, i: usize, row: *const u16) {
        let (kernels, wide) = (self.floats.kernels, &mut self.wide);
        // SAFETY: the caller vouches for the row, and `wide` has room for it.
        unsafe {
            (kernels.widen_f16)(row, wide.len(), wide.as_mut_ptr());
            self.floats.load(i, wide.as_ptr());
        }
    }

    unsafe fn nearest(&mut self, asked: Asked, least: &mut [f32]) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.floats.nearest(asked, least) }
    }

    unsafe fn between(&self, i: usize, j: usize, asked: Asked) -> f32 {
        // SAFETY: the caller's contract is the same.
        unsafe { self.floats.between(i, j, asked) }
    }

    unsafe fn choose(&mut self, i: usize) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.floats.choose(i) }
    }
}
