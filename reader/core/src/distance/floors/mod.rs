//! Lower bounds of the scores of product-quantizer codes, by which many codes need not be scored (the idea of Quicker
//! ADC, André et al. 2019, here for codes of 8 bits).
//!
//! What is bounded is the score that `lookup` computes: the float32 sum of a code's entries in the distance table. Of the
//! distance to the vector itself nothing is known, nor of a table with negative entries.
//!
//! A distance table of floats takes 1 KiB a chunk. Here its entries, less the least of their row, are rounded down to
//! multiples of a step that fit a byte. A row then fits four registers of AVX-512, and two permutations (VBMI) look up 64
//! codes in it. In exact arithmetic, the sum of the least entries and of a code's bytes times the step is at most the sum
//! of its entries ([`Floors::fill`]), and that exceeds its score by roundings at most, for which [`Floors::limit`] allows.
//! So a search that knows how near a code must be scores only those that may be, and finds what it would find without
//! bounds.

mod level;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vbmi;

use std::path::Path;

use self::level::LANES;
pub use self::level::Level;
use super::lookup::TABLE_WIDTH;
use super::unit::floors;
use crate::error::Result;
use crate::memory::resize;

/// Fewer codes than these are scored sooner than bounded.
const FEWEST: usize = 16;
/// What bytes cover, in means of what entries exceed the least of their row by; larger entries count as that. It decides
/// how many codes are scored, never which are found: a narrow range makes steps small and loses more of large entries,
/// which counts where the last candidate is nearly as far as the others.
const COVERED: f32 = 3.0;

/// The level that goes with distances of the level `name`, if this CPU has one.
pub fn level_of(name: &str) -> Option<&'static Level> {
    #[cfg(target_arch = "x86_64")]
    if name == "avx512" && vbmi::is_there() {
        return Some(&vbmi::LEVEL);
    }
    let _ = name;
    None
}

/// Bounds of one query, by the unit in use: 260 bytes a chunk.
pub struct Floors {
    level: Option<&'static Level>,
    rows: Vec<[u8; TABLE_WIDTH]>,
    /// Least entry of each row.
    least: Vec<f32>,
    /// Their sum.
    base: f64,
    /// What a byte counts; 0 while there are no bounds.
    step: f64,
}

impl Default for Floors {
    fn default() -> Self {
        Floors { level: floors(), rows: Vec::new(), least: Vec::new(), base: 0.0, step: 0.0 }
    }
}

impl Floors {
    /// Rounds down a distance table whose entries are not negative. There are no bounds without instructions for them, nor
    /// where no row has finite entries that differ.
    ///
    /// In exact arithmetic, a byte times the step is at most the entry less the least of its row. The quotient
    /// `(entry - least) / step` is computed by a difference, a reciprocal and a product; each is rounded to nearest, which
    /// raises it by at most 2^-24 of itself, so all three raise it by less than 2^-22. `per_step` was lowered by 2^-20, and
    /// the whole part of what is left, or 255 if that is less, cannot exceed the true quotient.
    pub fn fill(&mut self, path: &Path, table: &[f32]) -> Result<()> {
        self.clear();
        let (table, _) = table.as_chunks::<TABLE_WIDTH>();
        let Some(level) = self.level else { return Ok(()) };
        resize(path, &mut self.rows, table.len(), [0; TABLE_WIDTH])?;
        resize(path, &mut self.least, table.len(), 0.0)?;
        let (mut widest, mut excess) = (0f32, 0f32);
        for (row, least) in table.iter().zip(&mut self.least) {
            // SAFETY: a level is there only where the CPU has its instructions.
            let (first, last, sum) = unsafe { (level.extent)(row) };
            *least = first;
            if (last - first).is_finite() {
                widest = widest.max(last - first);
                excess += sum / TABLE_WIDTH as f32 - first;
            }
        }
        let step = widest.min(COVERED * excess / table.len() as f32) / 255.0;
        if !(f32::MIN_POSITIVE..f32::INFINITY).contains(&step) {
            return Ok(());
        }
        let per_step = (1.0 - 1.0 / (1 << 20) as f32) / step;
        for ((row, &least), bytes) in table.iter().zip(&self.least).zip(&mut self.rows) {
            // SAFETY: as above.
            unsafe { (level.round)(row, least, per_step, bytes) };
        }
        self.base = self.least.iter().map(|&least| f64::from(least)).sum();
        self.step = f64::from(step);
        Ok(())
    }

    /// Leaves no bounds.
    pub fn clear(&mut self) {
        self.step = 0.0;
    }

    /// Whether there are bounds.
    pub fn are_there(&self) -> bool {
        self.step > 0.0
    }

    /// Writes to `kept`, ascending, which of `n` codes may have a score of at most `bar` by the table.
    ///
    /// # Panics
    /// If there are no bounds, or a code has another number of bytes than there are chunks.
    pub fn keep<'a>(&self, bar: f32, n: usize, code: impl Fn(usize) -> &'a [u8], kept: &mut Vec<u32>) {
        assert!(self.are_there(), "bounds of no table");
        kept.clear();
        let (Some(level), Some(limit)) = (self.level, self.limit(bar)) else { return };
        let (n_rows, mut first) = (self.rows.len(), 0);
        while n - first >= FEWEST {
            let count = LANES.min(n - first);
            let place = |i: usize| {
                let code = code(first + i);
                assert_eq!(code.len(), n_rows);
                code.as_ptr()
            };
            let mut codes = [place(count - 1); LANES]; // lanes without a code repeat the last one
            codes[..count].iter_mut().enumerate().for_each(|(i, code)| *code = place(i));
            // SAFETY: as in `fill`; each code has a byte for each row.
            let mut near = unsafe { (level.near)(&self.rows, &codes, limit) } & u64::MAX >> (LANES - count);
            while near != 0 {
                kept.push(first as u32 + near.trailing_zeros());
                near &= near - 1;
            }
            first += count;
        }
        kept.extend(first as u32..n as u32);
    }

    /// Largest sum of bytes of a code whose score may be at most `bar`, `u16::MAX` for any; `None` if no code's may be.
    ///
    /// A score adds floats that are not negative, one a chunk. Each addition rounds to nearest, so that in whatever order M
    /// of them are added, the score is at least `1 - M * 2^-24` of the exact sum (M is at most the dimension, far below
    /// 2^23). That sum is then at most `bar / (1 - M * 2^-24)`. Allowed for is twice as much, `M * 2^-23`: the roundings of
    /// this function and of `base`, in float64, are at most about `M * 2^-53`.
    fn limit(&self, bar: f32) -> Option<u16> {
        let slack = self.rows.len() as f64 * f64::from(f32::EPSILON);
        let most = (f64::from(bar) / (1.0 - slack) - self.base) / self.step;
        match most {
            most if most < 0.0 => None,
            most if most < f64::from(u16::MAX) => Some(most as u16),
            _ => Some(u16::MAX), // NaN, too
        }
    }
}

impl std::fmt::Debug for Floors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Floors").field("base", &self.base).field("step", &self.step).finish_non_exhaustive()
    }
}
