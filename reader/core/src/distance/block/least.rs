//! The places of the least scores of a row.
//!
//! The k-th least of a few minima, each of other scores, bounds the k-th least score from above: few scores are up to
//! it, and only these are sorted.

use super::PANEL_POINTS;

/// Scores of a panel.
pub(super) type Sixteen = [i32; PANEL_POINTS];
/// Minima of a row, in panels; their k-th least is a near bound for a `k` up to `MOST_BOUNDED`.
pub(super) const PARTS: usize = 2;
const MOST_BOUNDED: usize = PARTS * PANEL_POINTS / 2;
/// Fills the places after the last score.
const NOWHERE: u32 = u32::MAX;

/// Writes the places of the least `scores` to `places`, ties by the smaller place, except those of `i32::MAX`.
///
/// `kth(panels, k)` is the k-th least of 32 minima of panels, each of other lanes or panels; `hits(panel, bound)` has a
/// bit for every score up to `bound`. `kept` is space for a call. Inlined into each level so that the compiler
/// vectorizes it for that level.
#[inline(always)]
pub(super) fn least_by(
    kth: impl Fn(&[Sixteen], usize) -> i32,
    hits: impl Fn(&Sixteen, i32) -> u16,
    scores: &[i32],
    places: &mut [u32],
    kept: &mut Vec<u64>,
) {
    let (panels, k) = (scores.as_chunks().0, places.len());
    let bound = if k > MOST_BOUNDED { i32::MAX } else { kth(panels, k) }.min(i32::MAX - 1);
    kept.clear();
    for (panel, sixteen) in panels.iter().enumerate() {
        let mut left = hits(sixteen, bound);
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            kept.push(ordered(sixteen[lane], panel * PANEL_POINTS + lane));
        }
    }
    kept.sort_unstable();
    let found = kept.iter().map(|&key| key as u32).chain(std::iter::repeat(NOWHERE));
    places.iter_mut().zip(found).for_each(|(place, at)| *place = at);
}

/// `least_by` without instructions of its own.
#[inline(always)]
pub(super) fn least_portable(scores: &[i32], places: &mut [u32], kept: &mut Vec<u64>) {
    least_by(kth, hits, scores, places, kept);
}

fn kth(panels: &[Sixteen], k: usize) -> i32 {
    let mut minima = [[i32::MAX; PANEL_POINTS]; PARTS];
    for (i, panel) in panels.iter().enumerate() {
        minima[i % PARTS].iter_mut().zip(panel).for_each(|(least, &score)| *least = score.min(*least));
    }
    *minima.as_flattened_mut().select_nth_unstable(k - 1).1
}

#[inline(always)]
fn hits(scores: &Sixteen, bound: i32) -> u16 {
    scores.iter().enumerate().fold(0, |bits, (lane, &score)| bits | u16::from(score <= bound) << lane)
}

/// A key in the order of (score, place).
#[inline(always)]
fn ordered(score: i32, place: usize) -> u64 {
    u64::from(score as u32 ^ 1 << 31) << 32 | place as u64
}
