//! Distances of product-quantizer codes by the distance table of a query.
//!
//! Scalar look-ups, four codes abreast; eight, and gathers of AVX2 and AVX-512, were tried and left out. `floors` spares most
//! look-ups.

/// Width of a row of a distance table: one entry for each value of a code byte.
pub const TABLE_WIDTH: usize = 256;

/// Writes the distance of the code that `code(i)` gives to `out[i]`.
///
/// `table` has a row for each chunk, a code a byte; chunks are added in order, so that the sum has the same bits on every
/// machine.
#[inline]
pub fn score_codes<'a>(table: &[f32], code: impl Fn(usize) -> &'a [u8], out: &mut [f32]) {
    let (table, _) = table.as_chunks::<TABLE_WIDTH>();
    let (fours, rest) = out.as_chunks_mut::<4>();
    let whole = 4 * fours.len();
    for (i, four) in fours.iter_mut().enumerate() {
        let (a, b, c, d) = (code(4 * i), code(4 * i + 1), code(4 * i + 2), code(4 * i + 3));
        let mut sums = [0f32; 4];
        for ((((row, &a), &b), &c), &d) in table.iter().zip(a).zip(b).zip(c).zip(d) {
            sums[0] += row[a as usize];
            sums[1] += row[b as usize];
            sums[2] += row[c as usize];
            sums[3] += row[d as usize];
        }
        *four = sums;
    }
    for (i, one) in rest.iter_mut().enumerate() {
        *one = table.iter().zip(code(whole + i)).fold(0f32, |sum, (row, &c)| sum + row[c as usize]);
    }
}
