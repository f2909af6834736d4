//! RaBitQ rows: codes of 1 to 8 bits for each component of a rotated residual (docs/formats/ivf.md).
//!
//! A row has a plane of bits for each bit of a code, the most significant first. A byte of a plane stands for eight signs,
//! so that a table of the query has the sums of all signs of eight components, and a plane is looked up as PQ codes are.

use crate::bytes::u32_at;
use crate::codes::Rotation;
use crate::distance::{TABLE_WIDTH, score_codes};
use crate::error::Result;
use crate::interrupt::Stop;
use crate::pagefile::PageFile;

/// Bytes of the floats at the start of a row.
const HEAD_BYTES: usize = 8;
/// Components of a byte of a plane.
const BYTE_BITS: usize = 8;

/// How rows are coded.
#[derive(Debug)]
pub struct RabitQ {
    rotation: Rotation,
    dim: usize,
    /// Bits a component, and planes of a row.
    bits: usize,
}

impl RabitQ {
    /// Reads fields and sections of `file` that say how vectors of `dim` components are coded, and checks every value.
    pub(super) fn read(file: &PageFile, dim: u64, interrupted: Stop<'_>) -> Result<Self> {
        let bits = file.field_in("bits", 1..=8)? as usize;
        Ok(RabitQ { rotation: Rotation::read(file, dim, interrupted)?, dim: dim as usize, bits })
    }

    /// Bytes of a row.
    pub(super) fn row_bytes(&self) -> usize {
        HEAD_BYTES + self.bits * self.plane_bytes()
    }

    fn plane_bytes(&self) -> usize {
        self.dim.div_ceil(BYTE_BITS)
    }

    /// Memory it takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.rotation.memory_bytes()
    }

    /// A vector as centroids and rows are compared with it.
    pub(super) fn turn(&self, vector: &[f32]) -> Vec<f32> {
        self.rotation.turn(vector)
    }

    /// Fills the table of a query: for each byte of a plane, the sum of eight components with the signs that it means.
    pub(super) fn fill_table(&self, query: &[f32], table: &mut Vec<f32>) {
        table.clear();
        table.resize(self.plane_bytes() * TABLE_WIDTH, 0.0);
        for (sums, components) in table.chunks_exact_mut(TABLE_WIDTH).zip(query.chunks(BYTE_BITS)) {
            sums[0] = -components.iter().sum::<f32>();
            for (bit, &x) in components.iter().enumerate() {
                let (without, with) = sums.split_at_mut(1 << bit);
                with.iter_mut().zip(&*without).for_each(|(to, from)| *to = from + 2.0 * x);
            }
        }
    }

    /// Writes the inner product of the query of `table` and the levels of each row to `out`.
    pub(super) fn products(&self, table: &[f32], rows: &[u8], plane: &mut Vec<f32>, out: &mut Vec<f32>) {
        let (row_bytes, plane_bytes) = (self.row_bytes(), self.plane_bytes());
        let n = rows.len() / row_bytes;
        plane.resize(n, 0.0);
        out.clear();
        out.resize(n, 0.0);
        for bit in 0..self.bits {
            let at = HEAD_BYTES + bit * plane_bytes;
            score_codes(table, |i| &rows[i * row_bytes + at..][..plane_bytes], plane);
            out.iter_mut().zip(&*plane).for_each(|(sum, signs)| *sum = 2.0 * *sum + signs);
        }
    }

    /// Why a row cannot be one, if so.
    pub(crate) fn fault(&self, row: &[u8]) -> Option<&'static str> {
        let (length, factor) = head(row);
        if !(length.is_finite() && length >= 0.0 && factor.is_finite() && factor >= 0.0) {
            return Some("a length and a factor that are finite and not negative");
        }
        let spare = self.dim % BYTE_BITS;
        let mut planes = row[HEAD_BYTES..].chunks_exact(self.plane_bytes());
        if spare > 0 && planes.any(|plane| plane[plane.len() - 1] >> spare != 0) {
            return Some("no bits beyond the last component");
        }
        None
    }
}

/// Squared length of a row's residual, and the factor that makes a product with its levels one with its residual.
pub(super) fn head(row: &[u8]) -> (f32, f32) {
    (f32::from_bits(u32_at(row, 0)), f32::from_bits(u32_at(row, 4)))
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
                let code = RabitQ { rotation: Rotation::identity(dim), dim, bits };
                let (n, width) = (9usize, dim.div_ceil(8));
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
                    assert_eq!(code.fault(row), None);
                }
                let (mut table, mut plane, mut got) = (Vec::new(), Vec::new(), Vec::new());
                code.fill_table(&code.turn(&query), &mut table);
                code.products(&table, &rows, &mut plane, &mut got);
                assert_eq!(got.len(), n);
                for (got, want) in got.iter().zip(&want) {
                    assert!((f64::from(*got) - want).abs() < 1e-4 * f64::from(1u32 << bits), "{dim} {bits}");
                }
            }
        }
    }

    #[test]
    fn rows_that_cannot_be_are_told() {
        let code = RabitQ { rotation: Rotation::identity(9), dim: 9, bits: 1 };
        let row = |length: f32, factor: f32, last: u8| {
            [&length.to_le_bytes()[..], &factor.to_le_bytes(), &[255, last]].concat()
        };
        assert_eq!(code.fault(&row(0.0, 0.0, 1)), None);
        for (length, factor) in [(f32::NAN, 0.0), (-1.0, 0.0), (1.0, f32::INFINITY), (1.0, -1.0)] {
            assert!(code.fault(&row(length, factor, 1)).is_some_and(|fault| fault.contains("finite")));
        }
        assert!(code.fault(&row(1.0, 1.0, 2)).is_some_and(|fault| fault.contains("bits")));
    }
}
