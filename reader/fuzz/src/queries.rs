//! Queries of the targets that search, and what every answer must be.

use indexmill_core::Metric;
use indexmill_core::search::{Queries, Values};

use crate::common::Random;

/// Random queries of every type.
pub struct Made {
    n: usize,
    dim: usize,
    unsigned: Vec<u8>,
    signed: Vec<i8>,
    floats: Vec<f32>,
}

impl Made {
    /// `n` queries of `dim` components. Large ones overflow to infinity in hashes, and the largest are refused.
    pub fn new(n: usize, dim: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let unsigned: Vec<u8> = (0..n * dim).map(|_| random.next() as u8).collect();
        let signed: Vec<i8> = unsigned.iter().map(|&x| x as i8).collect();
        let scale = [0.125, 1.0, 1e15, 1e36][seed as usize % 4];
        let floats = signed.iter().map(|&x| f32::from(x) * scale).collect();
        Made { n, dim, unsigned, signed, floats }
    }

    /// Those of a type, by the name of which an index asks for them.
    pub fn queries(&self, query_dtype: &str) -> Queries<'_> {
        let values = match query_dtype {
            "uint8" => Values::Uint8(&self.unsigned),
            "int8" => Values::Int8(&self.signed),
            _ => Values::Float32(&self.floats),
        };
        Queries { values, n: self.n, dim: self.dim }
    }
}

/// Panics unless each row of `k` has slots below `n`, different ones if they must be, best first, then nothing; returns
/// the slots.
pub fn check_rows(slots: &[i64], scores: &[f32], k: usize, n: u32, metric: Metric, are_distinct: bool) -> Vec<u32> {
    let (n, sign) = (i64::from(n), if metric == Metric::L2 { 1.0 } else { -1.0 });
    assert_eq!(slots.len(), scores.len());
    for (slots, scores) in slots.chunks(k).zip(scores.chunks(k)) {
        let found = slots.iter().take_while(|&&s| s >= 0).count();
        let mut seen = slots[..found].to_vec();
        seen.sort_unstable();
        assert!(!are_distinct || seen.windows(2).all(|pair| pair[0] < pair[1]), "a slot twice: {slots:?}");
        assert!(seen.iter().all(|&s| s < n) && slots[found..].iter().all(|&s| s == -1), "{slots:?} of {n}");
        assert!(scores[found..].iter().all(|x| x.is_nan()));
        // A vector that is not a number has no place in the order.
        if scores[..found].iter().all(|x| x.is_finite()) {
            assert!(scores[..found].is_sorted_by(|a, b| a * sign <= b * sign), "{scores:?}");
        }
    }
    slots.iter().filter_map(|&s| u32::try_from(s).ok()).collect()
}
