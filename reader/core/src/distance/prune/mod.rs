//! Robust prune (DiskANN Algorithm 2): which of a vertex's candidates become its neighbours. `builders/vamana/prune.py` says
//! what is chosen.
//!
//! Whether a candidate is dropped depends only on the nearest of those chosen before it. So candidates are taken in
//! order, some at a time, and compared with all chosen ones at once: chosen rows lie in panels of 16, one in each lane
//! of a register, and no lanes of a register are ever added.

mod bytes;
mod chosen;
mod floats;

use std::cell::RefCell;

use super::gather::{prefetch_row, rows_ahead};
use super::{block, kernels, products};
use bytes::{Bytes, LongBytes};
use chosen::{Chosen, MAX_BATCH};
use floats::{Floats, Halves};

/// In place of the distance to the nearest chosen candidate, marks one that was chosen itself.
const CHOSEN: f32 = -1.0;
/// Growth of the slack between rounds, DiskANN's value: with alpha = 1.2 there are two rounds, 1.0 and 1.2.
const SLACK_STEP: f32 = 1.2;
/// Rows of a matrix that candidates name.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    /// The matrix, row after row.
    pub vectors: *const T,
    /// Components of a row.
    pub dim: usize,
}

/// How a prune chooses.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Slack, at least 1.
    pub alpha: f32,
    /// Whether places still free go to the nearest of the dropped.
    pub saturate: bool,
}

/// Work space of a thread.
struct Space {
    nearest: Vec<f32>,
    keys: Vec<u64>,
    unsigned: Bytes<u8>,
    signed: Bytes<i8>,
    long_unsigned: LongBytes<u8>,
    long_signed: LongBytes<i8>,
    floats: Floats,
    halves: Halves,
}

thread_local! {
    static SPACE: RefCell<Space> = RefCell::new(Space {
        nearest: Vec::new(),
        keys: Vec::new(),
        unsigned: Bytes::new(products(), kernels()),
        signed: Bytes::new(products(), kernels()),
        long_unsigned: LongBytes::new(kernels().l2_u8),
        long_signed: LongBytes::new(kernels().l2_i8),
        floats: Floats::new(kernels()),
        halves: Halves::new(kernels()),
    });
}

/// Sorts candidates by (distance, id) and drops repeated ones; returns how many remain.
///
/// Distances are not negative, so that they order like their bits.
pub fn sort_candidates(ids: &mut [u32], distances: &mut [f32]) -> usize {
    SPACE.with_borrow_mut(|space| {
        let keys = &mut space.keys;
        keys.clear();
        keys.extend(distances.iter().zip(&*ids).map(|(d, &id)| u64::from(d.to_bits()) << 32 | u64::from(id)));
        keys.sort_unstable();
        keys.dedup();
        for ((&key, id), distance) in keys.iter().zip(ids).zip(distances) {
            *id = key as u32;
            *distance = f32::from_bits((key >> 32) as u32);
        }
        keys.len()
    })
}

/// Defines the prune of rows of one type: of at most `MAX_DIM` components, and of more.
macro_rules! prune_of {
    ($name:ident, $t:ty, $short:ident, $long:ident) => {
        /// Chooses at most `out.len()` of the candidates, which are sorted by (distance, id); returns how many.
        ///
        /// # Safety
        /// Every id is a row of `rows`.
        pub unsafe fn $name(rows: Rows<$t>, ids: &[u32], distances: &[f32], rule: Rule, out: &mut [u32]) -> usize {
            SPACE.with_borrow_mut(|space| {
                let nearest = &mut space.nearest;
                // SAFETY: the caller's contract.
                unsafe {
                    if rows.dim <= block::MAX_DIM {
                        prune(&mut space.$short, nearest, rows, ids, distances, rule, out)
                    } else {
                        prune(&mut space.$long, nearest, rows, ids, distances, rule, out)
                    }
                }
            })
        }
    };
}

prune_of!(prune_u8, u8, unsigned, long_unsigned);
prune_of!(prune_i8, i8, signed, long_signed);
prune_of!(prune_f32, f32, floats, floats);
prune_of!(prune_f16, u16, halves, halves);

/// Says whether a chosen vertex at distance `nearest` hides a candidate.
fn is_hidden(distance: f32, nearest: f32, slack: f32) -> bool {
    nearest == 0.0 || distance / nearest > slack
}

unsafe fn prune<C: Chosen>(
    chosen: &mut C,
    nearest: &mut Vec<f32>,
    rows: Rows<C::Component>,
    ids: &[u32],
    distances: &[f32],
    rule: Rule,
    out: &mut [u32],
) -> usize {
    let n = ids.len().min(distances.len());
    nearest.clear();
    nearest.resize(n, f32::INFINITY);
    let (mut degree, mut slack) = (0, 1f32);
    while degree < out.len() {
        // A candidate was compared with those chosen in earlier rounds: they came before it, or may not hide it.
        chosen.begin(rows.dim);
        // SAFETY: the caller's contract.
        degree += unsafe { round(chosen, nearest, rows, ids, distances, (slack, rule.alpha), &mut out[degree..]) };
        if slack >= rule.alpha {
            break;
        }
        slack = (slack * SLACK_STEP).min(rule.alpha);
    }
    if !rule.saturate {
        return degree;
    }
    let left = ids.iter().zip(&*nearest).filter(|&(_, &state)| state != CHOSEN);
    for (place, (&id, _)) in out[degree..].iter_mut().zip(left) {
        *place = id;
        degree += 1;
    }
    degree
}

/// Chooses candidates that are not hidden at the first `slack`, and skips those that are hidden at the second one.
unsafe fn round<C: Chosen>(
    chosen: &mut C,
    nearest: &mut [f32],
    rows: Rows<C::Component>,
    ids: &[u32],
    distances: &[f32],
    (slack, limit): (f32, f32),
    out: &mut [u32],
) -> usize {
    let (mut batch, mut least) = ([0usize; MAX_BATCH], [0f32; MAX_BATCH]);
    let (mut degree, mut next) = (0, 0);
    let row_bytes = rows.dim * size_of::<C::Component>();
    let ahead = rows_ahead(row_bytes).max(chosen.batch());
    let prefetch = |ids: &[u32]| {
        ids.iter().for_each(|&id| prefetch_row(rows.vectors.wrapping_add(id as usize * rows.dim).cast(), row_bytes));
    };
    prefetch(&ids[..ahead.min(ids.len())]);
    loop {
        let mut m = 0;
        while m < chosen.batch() && next < nearest.len() {
            prefetch(&ids[(next + ahead).min(ids.len())..(next + ahead + 1).min(ids.len())]);
            if nearest[next] != CHOSEN && !is_hidden(distances[next], nearest[next], limit) {
                // SAFETY: the id is a row.
                unsafe { chosen.load(m, rows.vectors.add(ids[next] as usize * rows.dim)) };
                batch[m] = next;
                m += 1;
            }
            next += 1;
        }
        if m == 0 {
            return degree;
        }
        // SAFETY: m candidates were loaded.
        unsafe { chosen.nearest(&mut least[..m]) };
        for (&i, &distance) in batch[..m].iter().zip(&least) {
            nearest[i] = nearest[i].min(distance);
        }
        for k in 0..m {
            let i = batch[k];
            if is_hidden(distances[i], nearest[i], slack) {
                continue;
            }
            nearest[i] = CHOSEN;
            out[degree] = ids[i];
            degree += 1;
            if degree == out.len() {
                return degree;
            }
            // SAFETY: k and l are candidates of the batch.
            unsafe {
                chosen.choose(k);
                for (l, &j) in batch[..m].iter().enumerate().skip(k + 1) {
                    if !is_hidden(distances[j], nearest[j], limit) {
                        nearest[j] = nearest[j].min(chosen.between(k, l));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
