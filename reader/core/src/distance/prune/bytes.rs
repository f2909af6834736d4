//! Chosen uint8 or int8 rows in the panels of [`block`](crate::distance::block), compared in integers; rows too long
//! for panels are compared one by one.
//!
//! int8 is shifted by 128 into uint8, which changes no difference.

use std::marker::PhantomData;

use super::chosen::{Chosen, MAX_BATCH};
use crate::distance::block::{CHUNK, CHUNK_BYTES, Level, MAX_PANELS, PANEL_POINTS, shift};
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
    level: &'static Level,
    kernels: &'static Kernels,
    dim: usize,
    /// Rows of the batch in whole chunks: as uint8, and minus 128; their squared norms and sums.
    rows: Vec<u8>,
    shifted: Vec<i8>,
    norms: [(i32, i32); MAX_BATCH],
    /// Panels of chosen rows and their offsets, as `block` describes them; a chunk is 16 words.
    panels: Vec<u32>,
    offsets: Vec<i32>,
    n_chosen: usize,
    component: PhantomData<T>,
}

impl<T: Byte> Bytes<T> {
    pub(super) fn new(level: &'static Level, kernels: &'static Kernels) -> Self {
        let level = level.for_rows(MAX_BATCH);
        assert!(level.rows <= MAX_BATCH, "a batch of {MAX_BATCH} rows is no tile of {}", level.name);
        Bytes {
            level,
            kernels,
            dim: 0,
            rows: Vec::new(),
            shifted: Vec::new(),
            norms: [(0, 0); MAX_BATCH],
            panels: Vec::new(),
            offsets: Vec::new(),
            n_chosen: 0,
            component: PhantomData,
        }
    }

    /// Row `i` of the batch as uint8.
    fn row(&self, i: usize) -> &[u8] {
        &self.rows[i * self.chunks() * CHUNK..][..self.dim]
    }

    fn chunks(&self) -> usize {
        self.dim.div_ceil(CHUNK)
    }

    fn n_panels(&self) -> usize {
        self.n_chosen.div_ceil(PANEL_POINTS)
    }
}

impl<T: Byte> Chosen for Bytes<T> {
    type Component = T;

    fn begin(&mut self, dim: usize) {
        self.dim = dim;
        self.n_chosen = 0;
        let size = MAX_BATCH * self.chunks() * CHUNK;
        self.rows.resize(size, 0);
        self.shifted.resize(size, 0);
    }

    fn batch(&self) -> usize {
        self.level.rows
    }

    unsafe fn load(&mut self, i: usize, row: *const T) {
        let at = i * self.chunks() * CHUNK;
        // SAFETY: the caller vouches for the row.
        let row = unsafe { std::slice::from_raw_parts(row, self.dim) };
        let own = &mut self.rows[at..at + row.len()];
        own.iter_mut().zip(row).for_each(|(to, &from)| *to = from.unsigned());
        shift(own, &mut self.shifted[at..]);
        // SAFETY: a slice holds as many bytes as it says.
        self.norms[i] = unsafe { (self.level.norm)(own.as_ptr(), own.len()) };
    }

    unsafe fn nearest(&mut self, least: &mut [f32]) {
        let (chunks, n_panels) = (self.chunks(), self.n_panels());
        let limits = [i32::MIN; MAX_BATCH];
        let mut scores = [0i32; MAX_BATCH * MAX_PANELS * PANEL_POINTS];
        let mut hits = [0u16; MAX_BATCH * MAX_PANELS];
        let mut lowest = [i32::MAX; MAX_BATCH];
        for panel in (0..n_panels).step_by(self.level.tiles.len()) {
            let n = self.level.tiles.len().min(n_panels - panel);
            // SAFETY: `shifted` holds the rows of a batch, panels are below `n_panels`, the arrays fit every tile.
            unsafe {
                self.level.tiles[n - 1](
                    self.shifted.as_ptr(),
                    self.panels.as_ptr().cast::<u8>().add(panel * chunks * CHUNK_BYTES),
                    self.offsets.as_ptr().add(panel * PANEL_POINTS),
                    chunks,
                    limits.as_ptr(),
                    scores.as_mut_ptr(),
                    hits.as_mut_ptr(),
                );
            }
            for (own, low) in scores.chunks_exact(n * PANEL_POINTS).zip(&mut lowest[..least.len()]) {
                *low = own.iter().fold(*low, |low, &score| low.min(score));
            }
        }
        for ((distance, &low), (norm, _)) in least.iter_mut().zip(&lowest).zip(self.norms) {
            *distance = if n_panels == 0 { f32::INFINITY } else { (low + norm) as f32 };
        }
    }

    unsafe fn between(&self, i: usize, j: usize) -> f32 {
        // SAFETY: both are rows of `dim` components.
        unsafe { (self.kernels.l2_u8)(self.row(i).as_ptr(), self.row(j).as_ptr(), self.dim) }
    }

    unsafe fn choose(&mut self, i: usize) {
        let (chunks, lane) = (self.chunks(), self.n_chosen % PANEL_POINTS);
        let panel = self.n_chosen / PANEL_POINTS;
        if lane == 0 {
            self.panels.resize(panel * chunks * PANEL_POINTS, 0);
            self.panels.resize((panel + 1) * chunks * PANEL_POINTS, 0);
            self.offsets.resize(panel * PANEL_POINTS, 0);
            self.offsets.resize((panel + 1) * PANEL_POINTS, i32::MAX);
        }
        let (norm, sum) = self.norms[i];
        self.offsets[self.n_chosen] = norm - 256 * sum;
        let row = &self.rows[i * chunks * CHUNK..][..self.dim];
        let (whole, rest) = row.as_chunks::<CHUNK>();
        let mut last = [0; CHUNK];
        last[..rest.len()].copy_from_slice(rest);
        let words = self.panels[panel * chunks * PANEL_POINTS..].chunks_exact_mut(PANEL_POINTS);
        for (word, &four) in words.zip(whole.iter().chain([&last])) {
            word[lane] = u32::from_ne_bytes(four);
        }
        self.n_chosen += 1;
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
