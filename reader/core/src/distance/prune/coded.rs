//! Chosen float32 or binary16 rows, compared by byte codes; where codes cannot decide, by exact distances.
//!
//! A row x has the code point x' = low + step c, and its error e(x) = |x - x'| is known. So the distance of
//! two rows differs from that of their code points, which integers give exactly, by at most the sum of both errors, and
//! what a slack says is certain unless it falls within. Codes are fitted to the candidates of a prune, which lie near
//! each other. What is chosen never depends on them.
//!
//! Codes cost more than they save on short rows, which `floats` compares.

use super::chosen::{Asked, Chosen, MAX_BATCH, is_hidden};
use super::packed::Packed;
use crate::distance::block::{Level, MAX_DIM};
use crate::distance::level::Kernels;

/// Steps whose squares float32 can hold with all digits.
const STEPS: std::ops::Range<f32> = 1e-14..1e10;
/// Twice the relative error of what is computed in float32, at most: 2^-24 for each of `MAX_DIM / 16` terms that a lane
/// of an error adds, halved by the root, and for each of `MAX_DIM / 32` that one of a distance adds.
const ROUNDING: f32 = 2e-4;
/// Error of one component, computed in float32, over the step: its range has 255 steps.
const COMPONENT: f32 = 1e-4;

/// A component of a row that is compared as float32.
pub(super) trait Real: Copy {
    /// A row of `dim` components as float32: itself, or what is written to `space`.
    ///
    /// # Safety
    /// `dim` components of the row, and room for as many floats.
    unsafe fn widen(kernels: &Kernels, row: *const Self, dim: usize, space: *mut f32) -> *const f32;

    /// Squared distance of a float32 row and another row.
    ///
    /// # Safety
    /// Both have `dim` components.
    unsafe fn l2(kernels: &Kernels, a: *const f32, b: *const Self, dim: usize) -> f32;
}

impl Real for f32 {
    unsafe fn widen(_: &Kernels, row: *const f32, _: usize, _: *mut f32) -> *const f32 {
        row
    }

    unsafe fn l2(kernels: &Kernels, a: *const f32, b: *const f32, dim: usize) -> f32 {
        // SAFETY: the caller vouches for both rows.
        unsafe { (kernels.l2_f32)(a, b, dim) }
    }
}

/// Binary16.
impl Real for u16 {
    unsafe fn widen(kernels: &Kernels, row: *const u16, dim: usize, space: *mut f32) -> *const f32 {
        // SAFETY: the caller vouches for the row and the room.
        unsafe { (kernels.widen_f16)(row, dim, space) };
        space
    }

    unsafe fn l2(kernels: &Kernels, a: *const f32, b: *const u16, dim: usize) -> f32 {
        // SAFETY: the caller vouches for both rows.
        unsafe { (kernels.l2_f16)(a, b, dim) }
    }
}

/// Chosen rows and a batch, for one instruction-set level.
pub(super) struct Coded<T> {
    kernels: &'static Kernels,
    dim: usize,
    /// Codes; of no components if there are none, since rows are too long or their range too wide or too narrow.
    packed: Packed,
    is_coded: bool,
    low: Vec<f32>,
    step: f32,
    /// Rows of the batch as they are, as float32, and their errors.
    rows: [*const T; MAX_BATCH],
    wide: [*const f32; MAX_BATCH],
    space: Vec<f32>,
    errors: [f32; MAX_BATCH],
    /// Chosen rows, and the largest of their errors.
    chosen: Vec<*const T>,
    largest: f32,
}

impl<T: Real> Coded<T> {
    pub(super) fn new(level: &'static Level, kernels: &'static Kernels) -> Self {
        Coded {
            kernels,
            dim: 0,
            packed: Packed::new(level),
            is_coded: false,
            low: Vec::new(),
            step: 0.0,
            rows: [std::ptr::null(); MAX_BATCH],
            wide: [std::ptr::null(); MAX_BATCH],
            space: Vec::new(),
            errors: [0.0; MAX_BATCH],
            chosen: Vec::new(),
            largest: 0.0,
        }
    }

    /// Row `i` of the batch becomes the float32 row that is there.
    ///
    /// # Safety
    /// A row of `dim` components, and `i` below the rows of a batch.
    unsafe fn widen(&mut self, i: usize, row: *const T) {
        // SAFETY: the caller vouches for the row, and there is room for it.
        self.wide[i] = unsafe { T::widen(self.kernels, row, self.dim, self.space.as_mut_ptr().add(i * self.dim)) };
    }

    /// Bounds of the distance, not squared, of rows whose code points are `apart`, with a sum of `errors`.
    fn bounds(apart: f32, errors: f32) -> (f32, f32) {
        let unsure = errors * (1.0 + ROUNDING) + apart * ROUNDING;
        ((apart - unsure).max(0.0), apart + unsure)
    }
}

/// Says whether every slack judges all distances within the bounds, which are not squared, alike.
fn is_certain(distance: f32, (low, high): (f32, f32), slacks: &[f32]) -> bool {
    let (low, high) = (low * low, high * high);
    // A low bound is never NaN, and 0 where an error is not finite, so that this is uncertain.
    slacks.iter().all(|&slack| is_hidden(distance, high, slack) || !is_hidden(distance, low, slack))
}

/// Returns the least of the distances to chosen rows, or the first one that hides the candidate at every slack.
fn least_or_hiding(distance: f32, mut to_chosen: impl Iterator<Item = f32>, slacks: &[f32]) -> f32 {
    let limit = slacks[slacks.len() - 1];
    let hiding = to_chosen.try_fold(f32::INFINITY, |least, one| {
        let least = least.min(one);
        if is_hidden(distance, least, limit) { Err(least) } else { Ok(least) }
    });
    hiding.unwrap_or_else(|least| least)
}

impl<T: Real> Chosen for Coded<T> {
    type Component = T;

    unsafe fn start(&mut self, dim: usize, n: usize, row: impl Fn(usize) -> *const T) {
        self.dim = dim;
        self.space.resize(MAX_BATCH * dim, 0.0);
        let seen = n.min(MAX_BATCH);
        for i in 0..seen {
            // SAFETY: rows of `dim` components.
            unsafe { self.widen(i, row(i * n / seen)) };
        }
        self.low.resize(dim, 0.0);
        // SAFETY: `seen` rows of `dim` components, and as many lows.
        self.step = unsafe { (self.kernels.fit_codes)(self.wide.as_ptr(), seen, dim, self.low.as_mut_ptr()) };
        self.is_coded = dim <= MAX_DIM && STEPS.contains(&self.step);
        self.packed.start(if self.is_coded { dim } else { 0 });
    }

    fn begin(&mut self) {
        self.packed.begin();
        self.chosen.clear();
        self.largest = 0.0;
    }

    fn batch(&self) -> usize {
        self.packed.batch()
    }

    unsafe fn load(&mut self, i: usize, row: *const T) {
        self.rows[i] = row;
        // SAFETY: the caller vouches for the row.
        unsafe { self.widen(i, row) };
        self.errors[i] = f32::INFINITY;
        if self.is_coded {
            let (encode, low, step, wide) = (self.kernels.encode_u8, &self.low, self.step, self.wide[i]);
            self.packed.load(i, |codes| {
                // SAFETY: a row, lows and codes of `dim` components.
                let left = unsafe { encode(wide, low.as_ptr(), step, codes.len(), codes.as_mut_ptr()) };
                if left.is_finite() {
                    self.errors[i] = left.sqrt() + step * COMPONENT * (codes.len() as f32).sqrt();
                }
            });
        }
    }

    unsafe fn nearest(&mut self, asked: Asked, least: &mut [f32]) {
        if self.is_coded {
            self.packed.compare(least.len());
        }
        for (i, (nearest, &distance)) in least.iter_mut().zip(asked.distances).enumerate() {
            let l2 = |&other: &*const T| {
                // SAFETY: rows of `dim` components.
                unsafe { T::l2(self.kernels, self.wide[i], other, self.dim) }
            };
            if self.chosen.is_empty() {
                *nearest = f32::INFINITY;
                continue;
            }
            if !self.is_coded {
                *nearest = least_or_hiding(distance, self.chosen.iter().map(l2), asked.slacks);
                continue;
            }
            let codes = self.packed.distances(i);
            let lowest = codes.iter().fold(i32::MAX, |low, &d| low.min(d)) as f32;
            let bounds = Self::bounds(self.step * lowest.sqrt(), self.errors[i] + self.largest);
            *nearest = bounds.1 * bounds.1;
            if !is_certain(distance, bounds, asked.slacks) {
                // Rows whose codes are farther than this are farther than the nearest one.
                let within = (bounds.1 + self.errors[i] + self.largest) * (1.0 + 3.0 * ROUNDING) / self.step;
                let near = self.chosen.iter().zip(codes).filter(|&(_, &d)| d as f32 <= within * within);
                *nearest = least_or_hiding(distance, near.map(|(row, _)| l2(row)), asked.slacks);
            }
        }
    }

    unsafe fn between(&self, i: usize, j: usize, asked: Asked) -> f32 {
        if self.is_coded {
            let (a, b) = (self.packed.row(i), self.packed.row(j));
            // SAFETY: rows of `dim` components.
            let apart = self.step * unsafe { (self.kernels.l2_u8)(a.as_ptr(), b.as_ptr(), self.dim) }.sqrt();
            let bounds = Self::bounds(apart, self.errors[i] + self.errors[j]);
            if is_certain(asked.distances[j], bounds, asked.slacks) {
                return bounds.1 * bounds.1;
            }
        }
        // SAFETY: rows of `dim` components.
        unsafe { T::l2(self.kernels, self.wide[j], self.rows[i], self.dim) }
    }

    unsafe fn choose(&mut self, i: usize) {
        self.chosen.push(self.rows[i]);
        self.largest = self.largest.max(self.errors[i]);
        if self.is_coded {
            self.packed.choose(i);
        }
    }
}
