//! The distance table of a query, and codes scored with it.

use std::path::Path;

use crate::distance::{Floors, score_codes};
use crate::error::Result;

/// Codes that are scored at once, so that what is kept of them stays in a core's nearest cache.
const AT_ONCE: usize = 1024;

/// The distance table of one query after the other: 1 KiB a chunk, and 260 bytes where the CPU can bound distances.
#[derive(Debug, Default)]
pub struct CodeTable {
    entries: Vec<f32>,
    floors: Floors,
    /// Codes that may be near enough.
    kept: Vec<u32>,
    scores: Vec<f32>,
}

impl CodeTable {
    /// Takes the entries that `fill` gives. `path` is where the codebook was read. If distances are to be bounded, where the
    /// CPU can do that, no entry is negative.
    pub(crate) fn fill(
        &mut self,
        path: &Path,
        is_bounded: bool,
        fill: impl FnOnce(&mut Vec<f32>) -> Result<()>,
    ) -> Result<()> {
        fill(&mut self.entries)?;
        if !is_bounded {
            self.floors.clear();
            return Ok(());
        }
        self.floors.fill(path, &self.entries)
    }

    /// Scores codes 0 .. `n` and calls `take(i, distance)` for each in order. Of those farther than `bar`, if there is a
    /// bar, some or all are left out.
    pub(crate) fn score<'a>(
        &mut self,
        n: usize,
        code: impl Fn(usize) -> &'a [u8],
        bar: Option<f32>,
        mut take: impl FnMut(usize, f32),
    ) {
        let CodeTable { entries, floors, kept, scores } = self;
        let bar = bar.filter(|_| floors.are_there());
        for first in (0..n).step_by(AT_ONCE) {
            let (n, code) = (AT_ONCE.min(n - first), |i: usize| code(first + i));
            match bar {
                None => {
                    scores.resize(n, 0.0);
                    score_codes(entries, code, scores);
                    scores.iter().enumerate().for_each(|(i, &distance)| take(first + i, distance));
                }
                Some(bar) => {
                    floors.keep(bar, n, code, kept);
                    scores.resize(kept.len(), 0.0);
                    score_codes(entries, |i| code(kept[i] as usize), scores);
                    kept.iter().zip(&*scores).for_each(|(&i, &distance)| take(first + i as usize, distance));
                }
            }
        }
    }
}
