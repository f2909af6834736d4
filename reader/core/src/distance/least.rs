//! The least squared distance of a float32 vector to points in panels: for each component, that of 16 points.
//!
//! A point has a lane of a register to itself, so its sums are registers of 16 points: those of components i, i + 32 and
//! so on, added by halves, as [`crate::distance`] prescribes.

use super::level::FLOAT_PANEL;

/// Partial sums of a distance.
const LANES: usize = 32;

/// See [`super::level::Kernels::least_l2_f32`]; inlined into levels without one of their own.
///
/// # Safety
/// `query` has `dim` components, and `panels` `dim` rows a panel.
#[inline(always)]
pub unsafe fn least_l2_f32_portable(
    query: *const f32,
    panels: *const [f32; FLOAT_PANEL],
    n_panels: usize,
    dim: usize,
) -> f32 {
    let mut least = [f32::INFINITY; FLOAT_PANEL];
    for panel in 0..n_panels {
        let mut sums = [[0f32; FLOAT_PANEL]; LANES / 2];
        for (lane, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a panel has `dim` components.
            let (low, high) = unsafe {
                let points = panels.add(panel * dim);
                (partial(query, points, lane, dim), partial(query, points, lane + LANES / 2, dim))
            };
            for p in 0..FLOAT_PANEL {
                sum[p] = low[p] + high[p];
            }
        }
        let mut width = LANES / 4;
        while width > 0 {
            let (low, high) = sums.split_at_mut(width);
            for (low, high) in low.iter_mut().zip(high) {
                for p in 0..FLOAT_PANEL {
                    low[p] += high[p];
                }
            }
            width /= 2;
        }
        for p in 0..FLOAT_PANEL {
            least[p] = if sums[0][p] < least[p] { sums[0][p] } else { least[p] };
        }
    }
    least.into_iter().fold(f32::INFINITY, f32::min)
}

/// Sums of the squares of components `lane`, `lane + 32` and so on.
///
/// # Safety
/// As above, of one panel.
#[inline(always)]
unsafe fn partial(query: *const f32, points: *const [f32; FLOAT_PANEL], lane: usize, dim: usize) -> [f32; FLOAT_PANEL] {
    let mut sums = [0f32; FLOAT_PANEL];
    let mut i = lane;
    while i < dim {
        // SAFETY: i < dim.
        let (x, sixteen) = unsafe { (*query.add(i), &*points.add(i)) };
        for (sum, point) in sums.iter_mut().zip(sixteen) {
            let d = x - point;
            *sum = d.mul_add(d, *sum);
        }
        i += LANES;
    }
    sums
}
