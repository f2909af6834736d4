//! RaBitQ rows: codes of 1 to 8 bits for each component of a rotated residual (docs/formats/ivf.md).
//!
//! A row has a plane of bits for each bit of a code, the most significant first. A byte of a plane stands for eight signs,
//! so that a table of the query has the sums of all signs of eight components, and a plane is looked up as PQ codes are.

use std::path::Path;

use crate::bytes::u32_at;
use crate::distance::{TABLE_WIDTH, score_codes};
use crate::error::Result;
use crate::memory::resize;
use crate::pagefile::PageFile;

/// Bytes of the floats at the start of a row.
const HEAD_BYTES: usize = 8;
/// Components of a byte of a plane.
const BYTE_BITS: usize = 8;
/// Most bits a component.
const MAX_BITS: usize = 8;
/// Rows that are looked up at a time.
const BLOCK: usize = 64;

/// How rows are coded.
#[derive(Debug)]
pub struct RabitQ {
    dim: usize,
    /// Bits a component, and planes of a row.
    bits: usize,
}

impl RabitQ {
    /// Reads the field of `file` that says how rotated vectors of `dim` components are coded.
    pub(super) fn read(file: &PageFile, dim: u64) -> Result<Self> {
        let bits = file.field_in("bits", 1..=MAX_BITS as u64)? as usize;
        Ok(RabitQ { dim: dim as usize, bits })
    }

    /// Bytes of a row.
    pub(super) fn row_bytes(&self) -> usize {
        HEAD_BYTES + self.bits * self.plane_bytes()
    }

    fn plane_bytes(&self) -> usize {
        self.dim.div_ceil(BYTE_BITS)
    }

    /// Fills the table of a query: for each byte of a plane, the sum of eight components with the signs that it means.
    pub(super) fn fill_table(&self, path: &Path, query: &[f32], table: &mut Vec<f32>) -> Result<()> {
        table.clear();
        resize(path, table, self.plane_bytes() * TABLE_WIDTH, 0.0)?;
        for (sums, components) in table.chunks_exact_mut(TABLE_WIDTH).zip(query.chunks(BYTE_BITS)) {
            sums[0] = -components.iter().sum::<f32>();
            for (bit, &x) in components.iter().enumerate() {
                let (without, with) = sums.split_at_mut(1 << bit);
                with.iter_mut().zip(&*without).for_each(|(to, from)| *to = from + 2.0 * x);
            }
        }
        Ok(())
    }

    /// Writes the inner product of the query of `table` and the levels of each row to `out`.
    pub(super) fn products(&self, table: &[f32], rows: &[u8], out: &mut Vec<f32>) {
        let (row_bytes, plane_bytes) = (self.row_bytes(), self.plane_bytes());
        out.clear();
        out.resize(rows.len() / row_bytes, 0.0);
        let mut planes = [0f32; BLOCK * MAX_BITS];
        for (rows, sums) in rows.chunks(BLOCK * row_bytes).zip(out.chunks_mut(BLOCK)) {
            let planes = &mut planes[..sums.len() * self.bits];
            let plane = |i: usize| {
                let at = i / self.bits * row_bytes + HEAD_BYTES + i % self.bits * plane_bytes;
                &rows[at..at + plane_bytes]
            };
            score_codes(table, plane, planes);
            for (sum, planes) in sums.iter_mut().zip(planes.chunks_exact(self.bits)) {
                *sum = planes.iter().fold(0.0, |sum, signs| 2.0 * sum + signs);
            }
        }
    }

    /// What was expected of a row and what was found, where no vector has such a row.
    pub(super) fn why_not_a_row(&self, row: &[u8]) -> Option<(&'static str, String)> {
        let (length, factor) = length_and_factor(row);
        if !(is_sound(length) && is_sound(factor)) {
            let expected = "a length and a factor that are finite and not negative";
            return Some((expected, format!("{length} and {factor}")));
        }
        let spare = self.dim % BYTE_BITS;
        let last = row[HEAD_BYTES..].chunks_exact(self.plane_bytes()).map(|plane| plane[plane.len() - 1]);
        let byte = last.into_iter().find(|byte| spare > 0 && byte >> spare != 0)?;
        Some(("no bits beyond the last component", format!("{byte:#010b}")))
    }
}

/// Squared length of a row's residual, and the factor that makes a product with its levels one with its residual.
pub(super) fn length_and_factor(row: &[u8]) -> (f32, f32) {
    (f32::from_bits(u32_at(row, 0)), f32::from_bits(u32_at(row, 4)))
}

/// Whether a length or a factor can be so.
pub(super) fn is_sound(x: f32) -> bool {
    (0.0..=f32::MAX).contains(&x) // NaN is not
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn products_are_those_of_the_levels() {
        let mut random = Random::new(5);
        for dim in [1usize, 7, 8, 21] {
            for bits in [1usize, 3, 8] {
                let code = RabitQ { dim, bits };
                let (n, width) = (2 * BLOCK + 9, dim.div_ceil(8));
                let query: Vec<f32> = (0..dim).map(|_| random.float() - 0.5).collect();
                let mut rows = vec![0u8; n * code.row_bytes()];
                let mut want = Vec::new();
                for row in rows.chunks_exact_mut(code.row_bytes()) {
                    let mut product = 0f64;
                    for (j, &x) in query.iter().enumerate() {
                        let level = random.below(1 << bits);
                        product += f64::from(x) * (2.0 * level as f64 + 1.0 - f64::from(1u32 << bits));
                        for bit in 0..bits {
                            let set = (level >> (bits - 1 - bit)) & 1;
                            row[HEAD_BYTES + bit * width + j / 8] |= (set as u8) << (j % 8);
                        }
                    }
                    want.push(product);
                    assert_eq!(code.why_not_a_row(row), None);
                }
                let (mut table, mut got) = (Vec::new(), Vec::new());
                code.fill_table(Path::new("centroids.imx"), &query, &mut table).unwrap();
                code.products(&table, &rows, &mut got);
                assert_eq!(got.len(), n);
                for (got, want) in got.iter().zip(&want) {
                    assert!((f64::from(*got) - want).abs() < 1e-4 * f64::from(1u32 << bits), "{dim} {bits}");
                }
            }
        }
    }

    #[test]
    fn rows_that_cannot_be_are_told() {
        let code = RabitQ { dim: 9, bits: 1 };
        let row = |length: f32, factor: f32, last: u8| {
            [&length.to_le_bytes()[..], &factor.to_le_bytes(), &[255, last]].concat()
        };
        let why_not = |length, factor, last| {
            code.why_not_a_row(&row(length, factor, last)).map(|(expected, got)| format!("{expected}: {got}"))
        };
        assert_eq!(why_not(0.0, 0.0, 1), None);
        for (length, factor) in [(f32::NAN, 0.0), (-1.0, 0.0), (1.0, f32::INFINITY), (1.0, -1.0)] {
            let text = why_not(length, factor, 1).unwrap();
            assert!(text.contains("finite") && text.ends_with(&format!(": {length} and {factor}")), "{text}");
        }
        let text = why_not(1.0, 1.0, 2).unwrap();
        assert!(text.contains("bits") && text.ends_with(": 0b00000010"), "{text}");
    }
}
