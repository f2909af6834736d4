//! Many uint8 queries against many uint8 points: the integer counterpart of a matrix product.
//!
//! A score is `|p|^2 - 2 p.q`, the squared distance minus `|q|^2`. It is exact in 32 bits, so it has the same bits at
//! every level, and it orders points like their distances. With `s = q - 128` it is `(|p|^2 - 256 sum(p)) - 2 p.s`: the
//! bracket is the point's offset, and `p.s` multiplies unsigned by signed bytes, as VNNI and AMX do.
//!
//! Points come in panels of 16. A panel holds `ceil(dim / 4)` chunks of 64 bytes: four components of each point in
//! turn, and anything beyond `dim`, where queries are zero. A tile of queries and panels keeps its sums in registers; only scores that reach a
//! query's list leave it. 16 chunks of a panel are a matrix as AMX multiplies it.

use std::mem::MaybeUninit;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod dotprod;
mod least;
mod level;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

pub(super) use level::{CHUNK, CHUNK_BYTES, MAX_PANELS};
pub use level::{Level, MAX_DIM, PANEL_POINTS};
use level::{MAX_ROWS, READY_ROWS};

/// Points in panels, as the head of this module describes.
#[derive(Clone, Copy)]
pub struct Panels {
    /// `n_panels * ceil(dim / 4) * 64` bytes.
    pub bytes: *const u8,
    /// `n_panels * 16` offsets, `i32::MAX` where there is no point.
    pub offsets: *const i32,
    /// Number of panels.
    pub n_panels: usize,
}

/// Rows of a matrix of uint8 vectors.
#[derive(Clone, Copy)]
pub struct Rows {
    /// The matrix, row after row.
    pub vectors: *const u8,
    /// Components of a row, 1 to `MAX_DIM`.
    pub dim: usize,
    /// Indexes of the rows.
    pub rows: *const i64,
    /// How many.
    pub n_rows: usize,
}

/// The best points known of every row of a matrix, `fanout` a row, ascending by (score, id).
///
/// Empty places hold `(i32::MAX, u32::MAX)`.
#[derive(Clone, Copy)]
pub struct Lists {
    /// Scores, row after row.
    pub scores: *mut i32,
    /// Ids of the points, likewise.
    pub ids: *mut u32,
    /// Places of a row, at least 1.
    pub fanout: usize,
}

/// The level of AMX, if this CPU has it.
///
/// # Errors
/// Why the system does not let this process use it.
pub fn amx() -> std::result::Result<Option<&'static Level>, String> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return Ok(amx::is_granted()?.then_some(&amx::LEVEL));
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    Ok(None)
}

/// Every level besides [`amx`] that this CPU can run, slowest first. A name begins with that of the distances it goes
/// with; any other is a unit of its own.
pub fn available() -> Vec<&'static Level> {
    #[allow(unused_mut)]
    let mut levels = vec![&scalar::LEVEL];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            levels.push(&avx2::LEVEL);
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
            levels.push(&avx512::LEVEL);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        levels.push(&neon::LEVEL);
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            levels.push(&dotprod::LEVEL);
        }
    }
    levels
}

impl Level {
    /// Merges the points, named by `ids` (16 a panel, `u32::MAX` where there is none), into the lists of the rows.
    ///
    /// # Safety
    /// All pointers hold what their types say; lists exist for every row named, and no row is named twice.
    pub unsafe fn nearest(&self, rows: Rows, panels: Panels, ids: *const u32, lists: Lists) {
        let limit = |row: i64| {
            // SAFETY: the row has a list of `fanout` places.
            unsafe { *lists.scores.add((row as usize + 1) * lists.fanout - 1) }
        };
        // SAFETY: the caller's contract, and 16 scores and ids a panel.
        unsafe {
            self.for_rows(rows.n_rows).each_tile(rows, panels, limit, |i, first_panel, scores, hits| {
                let row = *rows.rows.add(i) as usize;
                for (p, &found) in hits.iter().enumerate() {
                    let mut left = found;
                    while left != 0 {
                        let lane = left.trailing_zeros() as usize;
                        left &= left - 1;
                        let id = *ids.add((first_panel + p) * PANEL_POINTS + lane);
                        lists.insert(row, scores[p * PANEL_POINTS + lane], id);
                    }
                }
            })
        }
    }

    /// Writes all scores: `out[i * 16 * n_panels + j]` is the score of row i and point j.
    ///
    /// # Safety
    /// All pointers hold what their types say, and `out` has room.
    pub unsafe fn scores(&self, rows: Rows, panels: Panels, out: *mut i32) {
        let width = panels.n_panels * PANEL_POINTS;
        // SAFETY: the caller's contract; a tile's scores lie within the width of a row.
        unsafe {
            self.for_rows(rows.n_rows).each_tile(
                rows,
                panels,
                |_| i32::MAX,
                |i, first_panel, scores, _| {
                    let at = out.add(i * width + first_panel * PANEL_POINTS);
                    std::ptr::copy_nonoverlapping(scores.as_ptr(), at, scores.len());
                },
            )
        }
    }

    /// Writes the places of the `k` least of every `width` scores, whole panels, to as many `places`; the rest of a row is
    /// `u32::MAX`, as for scores of `i32::MAX`. Ties go to the smaller place.
    ///
    /// # Panics
    /// If `width` is no multiple of `PANEL_POINTS`, or one of `width` and `k` is 0.
    pub fn least(&self, scores: &[i32], width: usize, k: usize, places: &mut [u32]) {
        assert!(width.is_multiple_of(PANEL_POINTS), "{width} scores are no whole panels");
        let mut kept = Vec::with_capacity(width);
        for (row, found) in scores.chunks_exact(width).zip(places.chunks_exact_mut(k)) {
            // SAFETY: a level is in use only where its instructions are.
            unsafe { (self.least)(row, found, &mut kept) };
        }
    }

    /// Calls `take(i, first_panel, scores, hits)` for every row and step of panels in which the row has a hit.
    ///
    /// # Safety
    /// All pointers hold what their types say.
    unsafe fn each_tile(
        &self,
        rows: Rows,
        panels: Panels,
        limit: impl Fn(i64) -> i32,
        mut take: impl FnMut(usize, usize, &[i32], &[u16]),
    ) {
        let chunks = rows.dim.div_ceil(CHUNK);
        let depth = self.depth.min(chunks);
        let ready_bytes = chunks.next_multiple_of(depth) * CHUNK;
        let mut ready = vec![0i8; READY_ROWS.min(rows.n_rows.next_multiple_of(self.rows)) * ready_bytes];
        let mut scores = [const { MaybeUninit::<i32>::uninit() }; MAX_ROWS * MAX_PANELS * PANEL_POINTS];
        let mut hits = [0u16; MAX_ROWS * MAX_PANELS];
        // SAFETY: vectors have at least one chunk.
        unsafe { (self.begin)(chunks) };
        for first in (0..rows.n_rows).step_by(READY_ROWS) {
            let last = (first + READY_ROWS).min(rows.n_rows);
            // SAFETY: first..last are rows of the caller's, and `ready` holds READY_ROWS or all of them.
            unsafe { make_ready(&mut ready, rows, first..last, depth) };
            for panel in (0..panels.n_panels).step_by(self.tiles.len()) {
                let n = self.tiles.len().min(panels.n_panels - panel);
                for at in (first..last).step_by(self.rows) {
                    let present = self.rows.min(last - at);
                    let mut limits = [i32::MIN; MAX_ROWS]; // below every score
                    // SAFETY: rows below n_rows, panels below n_panels, and arrays as large as the largest tile.
                    let any = unsafe {
                        for (i, value) in limits[..present].iter_mut().enumerate() {
                            *value = limit(*rows.rows.add(at + i));
                        }
                        self.tiles[n - 1](
                            ready.as_ptr().add((at - first) * ready_bytes),
                            panels.bytes.add(panel * chunks * CHUNK_BYTES),
                            panels.offsets.add(panel * PANEL_POINTS),
                            chunks,
                            limits.as_ptr(),
                            scores.as_mut_ptr().cast(),
                            hits.as_mut_ptr(),
                        )
                    };
                    for i in 0..if any { present } else { 0 } {
                        let mine = &hits[i * n..(i + 1) * n];
                        if mine.iter().any(|&found| found != 0) {
                            let written = scores.as_ptr().cast::<i32>().wrapping_add(i * n * PANEL_POINTS);
                            // SAFETY: the tile has written the scores of all its rows and panels.
                            take(at + i, panel, unsafe { std::slice::from_raw_parts(written, n * PANEL_POINTS) }, mine);
                        }
                    }
                }
            }
        }
        // SAFETY: no tile follows.
        unsafe { (self.end)() };
    }
}

impl Lists {
    /// Puts a point in its place, if it is among the best.
    ///
    /// # Safety
    /// `row` has a list in `scores` and `ids`, which nothing else uses.
    unsafe fn insert(&self, row: usize, score: i32, id: u32) {
        // SAFETY: the row has a list of `fanout` places.
        let (scores, ids) = unsafe {
            (
                std::slice::from_raw_parts_mut(self.scores.add(row * self.fanout), self.fanout),
                std::slice::from_raw_parts_mut(self.ids.add(row * self.fanout), self.fanout),
            )
        };
        let mut at = self.fanout;
        while at > 0 && (score, id) < (scores[at - 1], ids[at - 1]) {
            if at < self.fanout {
                (scores[at], ids[at]) = (scores[at - 1], ids[at - 1]);
            }
            at -= 1;
        }
        if at < self.fanout {
            (scores[at], ids[at]) = (score, id);
        }
    }
}

/// Copies rows minus 128 into `ready`, each padded to whole chunks (by zeros, so that what panels hold there counts nothing) and, by zeros that are there
/// already, to whole steps of `depth` chunks, as `Level::depth` says.
///
/// # Safety
/// `range` are rows of `rows`.
unsafe fn make_ready(ready: &mut [i8], rows: Rows, range: std::ops::Range<usize>, depth: usize) {
    let step = depth * CHUNK;
    let (padded, whole) = (rows.dim.next_multiple_of(step), rows.dim.next_multiple_of(CHUNK) / step * step);
    let gap = (padded - rows.dim.next_multiple_of(CHUNK)) % step;
    for (i, into) in range.zip(ready.chunks_exact_mut(padded)) {
        // SAFETY: the caller vouches for the row.
        let row = unsafe {
            let index = *rows.rows.add(i) as usize;
            std::slice::from_raw_parts(rows.vectors.add(index * rows.dim), rows.dim)
        };
        let (steps, last) = row.split_at(whole.min(row.len()));
        shift(steps, into);
        shift(last, &mut into[steps.len() + gap..]);
    }
}

/// Writes bytes minus 128.
pub(super) fn shift(row: &[u8], into: &mut [i8]) {
    for (to, &from) in into.iter_mut().zip(row) {
        *to = (from ^ 0x80) as i8;
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod emulator;
#[cfg(test)]
mod tests;
