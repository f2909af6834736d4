//! The distance table of a query, and codes scored with it.

use std::path::Path;

use crate::distance::{Floors, score_codes};
use crate::error::Result;

/// Codes that are scored at once, so that what is kept of them stays in a core's nearest cache.
const AT_ONCE: usize = 1024;

/// The distance table of one query after the other: 1 KiB a chunk, and 260 bytes where the CPU can bound distances; where
/// codes are of rotated vectors, also 4 bytes a dimension.
#[derive(Debug, Default)]
pub struct CodeTable {
    entries: Vec<f32>,
    floors: Floors,
    /// Codes that may be near enough.
    kept: Vec<u32>,
    scores: Vec<f32>,
    /// The query rotated, if the codes are of rotated vectors: memory that the next one uses.
    pub(crate) rotated: Vec<f32>,
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
        self.floors.clear(); // bounds of other entries, should this fail
        fill(&mut self.entries)?;
        if !is_bounded {
            return Ok(());
        }
        self.floors.fill(path, &self.entries)
    }

    /// Scores codes 0 .. `n` by the entries filled last and calls `take(i, distance)` for each in order. If there is a bar,
    /// some or all of those farther than `bar` are left out, and some or all for which `is_known(i)`.
    ///
    /// # Panics
    /// If there are codes, and the table was never filled.
    pub(crate) fn score<'a>(
        &mut self,
        n: usize,
        code: impl Fn(usize) -> &'a [u8],
        bar: Option<f32>,
        mut is_known: impl FnMut(usize) -> bool,
        mut take: impl FnMut(usize, f32),
    ) {
        let CodeTable { entries, floors, kept, scores, .. } = self;
        assert!(n == 0 || !entries.is_empty(), "a distance table that was never filled");
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
                    kept.retain(|&i| !is_known(first + i as usize));
                    scores.resize(kept.len(), 0.0);
                    score_codes(entries, |i| code(kept[i] as usize), scores);
                    kept.iter().zip(&*scores).for_each(|(&i, &distance)| take(first + i as usize, distance));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    #[should_panic(expected = "never filled")]
    fn codes_are_not_scored_without_a_table() {
        CodeTable::default().score(1, |_| &[0], None, |_| false, |_, _| ());
    }

    /// The bounds of the entries before would refuse what the new ones have near.
    #[test]
    fn a_table_that_could_not_be_filled_has_no_bounds() {
        let (path, mut table) = (Path::new("codes.imx"), CodeTable::default());
        let far = |entries: &mut Vec<f32>| {
            entries.extend((0..256u16).map(f32::from));
            Ok(())
        };
        table.fill(path, true, far).unwrap();
        let refused = table.fill(path, true, |_| Err(Error::Config("too little memory".to_owned())));
        assert!(refused.is_err() && !table.floors.are_there());
    }
}
