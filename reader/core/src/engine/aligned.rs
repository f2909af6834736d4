//! Answers of a store in memory, aligned as buffers of files are.

use std::ops::Deref;

/// Vectors and codes are read in place: nothing that is stored needs more.
const LINE_BYTES: usize = 64;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

/// Bytes that begin at a multiple of 64.
#[derive(Debug, Default)]
pub struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

impl From<&[u8]> for Aligned {
    fn from(bytes: &[u8]) -> Self {
        let (whole, rest) = bytes.as_chunks::<LINE_BYTES>();
        let mut lines = Vec::with_capacity(bytes.len().div_ceil(LINE_BYTES));
        lines.extend(whole.iter().map(|&line| Line(line)));
        if !rest.is_empty() {
            let mut last = [0; LINE_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            lines.push(Line(last));
        }
        Aligned { lines, len: bytes.len() }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: lines are bytes alone, without gaps, and `len` of them or more.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_given_and_begin_at_a_line() {
        let bytes: Vec<u8> = (0..=255).collect();
        for start in 0..5 {
            for len in [0, 1, 63, 64, 65, 128, 200] {
                let aligned = Aligned::from(&bytes[start..][..len]);
                assert_eq!(&*aligned, &bytes[start..][..len]);
                assert!(aligned.as_ptr().addr().is_multiple_of(LINE_BYTES));
            }
        }
    }
}
