//! Robust prune (DiskANN Algorithm 2): which of a vertex's candidates become its neighbours. `builders/vamana/prune.py` says
//! what is chosen.
//!
//! Whether a candidate is dropped depends only on the nearest of those chosen before it. So candidates are taken in
//! order, some at a time, and compared with all chosen ones at once, in panels of 16: bytes and long rows of floats as `packed` bytes, short rows
//! of floats as they are.

mod bytes;
mod chosen;
mod coded;
mod floats;
mod packed;

use std::cell::RefCell;

use super::gather::{prefetch_row, rows_ahead};
use super::{block, kernels, products};
use bytes::{Bytes, LongBytes};
use chosen::{Asked, Chosen, MAX_BATCH, is_hidden};
use coded::Coded;
use floats::{Floats, Halves};

/// In place of the distance to the nearest chosen candidate, marks one that was chosen itself.
const CHOSEN: f32 = -1.0;
/// Growth of the slack between rounds, DiskANN's value: with alpha = 1.2 there are two rounds, 1.0 and 1.2.
const SLACK_STEP: f32 = 1.2;
/// Components of the longest float rows that are compared as they are: their panels stay in a core's nearest cache.
const SHORT: usize = 512;

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

/// Work space of a prune, whatever the type of the rows.
#[derive(Default)]
struct Work {
    /// Distance of each candidate to the nearest of those chosen before it, or `CHOSEN`.
    nearest: Vec<f32>,
    /// Slack of each round.
    slacks: Vec<f32>,
}

/// Work space of a thread.
struct Space {
    work: Work,
    keys: Vec<u64>,
    unsigned: Bytes<u8>,
    signed: Bytes<i8>,
    long_unsigned: LongBytes<u8>,
    long_signed: LongBytes<i8>,
    floats: Floats,
    halves: Halves,
    long_floats: Coded<f32>,
    long_halves: Coded<u16>,
}

thread_local! {
    static SPACE: RefCell<Space> = RefCell::new(Space {
        work: Work::default(),
        keys: Vec::new(),
        unsigned: Bytes::new(products(), kernels()),
        signed: Bytes::new(products(), kernels()),
        long_unsigned: LongBytes::new(kernels().l2_u8),
        long_signed: LongBytes::new(kernels().l2_i8),
        floats: Floats::new(kernels()),
        halves: Halves::new(kernels()),
        long_floats: Coded::new(products(), kernels()),
        long_halves: Coded::new(products(), kernels()),
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

/// Defines the prune of rows of one type: of at most some components, and of more.
macro_rules! prune_of {
    ($name:ident, $t:ty, $short:ident, $most:expr, $long:ident) => {
        /// Chooses at most `out.len()` of the candidates, which are sorted by (distance, id); returns how many: none of
        /// rows without components.
        ///
        /// # Safety
        /// Every id is a row of `rows`.
        pub unsafe fn $name(rows: Rows<$t>, ids: &[u32], distances: &[f32], rule: Rule, out: &mut [u32]) -> usize {
            if rows.dim == 0 {
                return 0;
            }
            SPACE.with_borrow_mut(|space| {
                let work = &mut space.work;
                // SAFETY: the caller's contract.
                unsafe {
                    if rows.dim <= $most {
                        prune(&mut space.$short, work, rows, ids, distances, rule, out)
                    } else {
                        prune(&mut space.$long, work, rows, ids, distances, rule, out)
                    }
                }
            })
        }
    };
}

prune_of!(prune_u8, u8, unsigned, block::MAX_DIM, long_unsigned);
prune_of!(prune_i8, i8, signed, block::MAX_DIM, long_signed);
prune_of!(prune_f32, f32, floats, SHORT, long_floats);
prune_of!(prune_f16, u16, halves, SHORT, long_halves);

/// # Safety
/// Every id is a row of `rows`.
unsafe fn prune<C: Chosen>(
    chosen: &mut C,
    Work { nearest, slacks }: &mut Work,
    rows: Rows<C::Component>,
    ids: &[u32],
    distances: &[f32],
    rule: Rule,
    out: &mut [u32],
) -> usize {
    let n = ids.len().min(distances.len());
    nearest.clear();
    nearest.resize(n, f32::INFINITY);
    slacks.clear();
    slacks.push(1f32);
    while slacks[slacks.len() - 1] < rule.alpha {
        slacks.push((slacks[slacks.len() - 1] * SLACK_STEP).min(rule.alpha));
    }
    // SAFETY: every id is a row.
    unsafe { chosen.start(rows.dim, n, |i| rows.vectors.add(ids[i] as usize * rows.dim)) };
    let mut degree = 0;
    for &slack in &*slacks {
        if degree == out.len() {
            break;
        }
        // A candidate was compared with those chosen in earlier rounds: they came before it, or may not hide it.
        chosen.begin();
        // SAFETY: the caller's contract.
        degree += unsafe { round(chosen, nearest, rows, ids, distances, (slack, slacks), &mut out[degree..]) };
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

/// Chooses candidates that are not hidden at `slack`, and skips those that are hidden at the last of all slacks.
///
/// # Safety
/// Every id is a row of `rows`, for which `chosen` was started.
unsafe fn round<C: Chosen>(
    chosen: &mut C,
    nearest: &mut [f32],
    rows: Rows<C::Component>,
    ids: &[u32],
    distances: &[f32],
    (slack, slacks): (f32, &[f32]),
    out: &mut [u32],
) -> usize {
    let (mut batch, mut far, mut least) = ([0usize; MAX_BATCH], [0f32; MAX_BATCH], [0f32; MAX_BATCH]);
    let (mut degree, mut next, limit) = (0, 0, slacks[slacks.len() - 1]);
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
                (batch[m], far[m]) = (next, distances[next]);
                m += 1;
            }
            next += 1;
        }
        if m == 0 {
            return degree;
        }
        let asked = Asked { distances: &far[..m], slacks };
        // SAFETY: m candidates were loaded.
        unsafe { chosen.nearest(asked, &mut least[..m]) };
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
                        nearest[j] = nearest[j].min(chosen.between(k, l, asked));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
