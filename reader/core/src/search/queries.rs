//! Queries as the caller gave them, and one of them prepared for an index.

use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::stored::Stored;

/// Largest squared length of a query. So the squared distance to every vector that is no longer is a float32.
const MAX_SQUARE: f64 = f32::MAX as f64 / 4.0;

/// Components of all queries, row after row.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Values<'a> {
    /// For float32, float16, sq16 and sq8 indexes.
    Float32(&'a [f32]),
    /// For uint8 indexes.
    Uint8(&'a [u8]),
    /// For int8 indexes.
    Int8(&'a [i8]),
}

/// A block of queries, shape (n, dim).
#[derive(Debug, Clone, Copy)]
pub struct Queries<'a> {
    /// Components.
    pub values: Values<'a>,
    /// Rows.
    pub n: usize,
    /// Columns.
    pub dim: usize,
}

/// A block of queries that belongs to its search.
#[derive(Debug, Clone)]
pub struct OwnedQueries {
    values: OwnedValues,
    n: usize,
    dim: usize,
}

#[derive(Debug, Clone)]
enum OwnedValues {
    Float32(Vec<f32>),
    Uint8(Vec<u8>),
    Int8(Vec<i8>),
}

impl OwnedQueries {
    /// The queries, borrowed.
    pub fn borrow(&self) -> Queries<'_> {
        let values = match &self.values {
            OwnedValues::Float32(values) => Values::Float32(values),
            OwnedValues::Uint8(values) => Values::Uint8(values),
            OwnedValues::Int8(values) => Values::Int8(values),
        };
        Queries { values, n: self.n, dim: self.dim }
    }
}

impl Queries<'_> {
    /// A copy that borrows nothing.
    pub fn copied(&self) -> OwnedQueries {
        let values = match self.values {
            Values::Float32(values) => OwnedValues::Float32(values.to_vec()),
            Values::Uint8(values) => OwnedValues::Uint8(values.to_vec()),
            Values::Int8(values) => OwnedValues::Int8(values.to_vec()),
        };
        OwnedQueries { values, n: self.n, dim: self.dim }
    }

    /// Refuses queries that do not fit the index: wrong dimensions or type, NaN, infinity, zero vectors under cosine, and
    /// under other metrics vectors whose squared length is no float32.
    pub(crate) fn check(&self, stored: &Stored<'_>) -> Result<()> {
        let (want, dim) = (stored.dtype.query_name(), stored.user_dim());
        let (got, len) = match self.values {
            Values::Float32(v) => ("float32", v.len()),
            Values::Uint8(v) => ("uint8", v.len()),
            Values::Int8(v) => ("int8", v.len()),
        };
        if got != want {
            return Err(Error::Input(format!(
                "queries: expected {want} components, got {got}; convert them to {want}"
            )));
        }
        if self.dim != dim || self.n.checked_mul(dim) != Some(len) {
            let message = format!("queries: expected {dim} dimensions, got {}", self.dim);
            return Err(Error::Input(format!("{message}; pass vectors of the kind the index was built from")));
        }
        if let Values::Float32(values) = self.values {
            for (i, row) in values.chunks_exact(dim).enumerate() {
                if !row.iter().all(|x| x.is_finite()) {
                    let message = format!("queries: row {i}: expected finite numbers, got NaN or infinity");
                    return Err(Error::Input(format!("{message}; remove or repair it")));
                }
                if stored.metric == Metric::Cosine {
                    if row.iter().all(|&x| x == 0.0) {
                        let message = "expected a direction under cosine, got the zero vector; remove it";
                        return Err(Error::Input(format!("queries: row {i}: {message}")));
                    }
                } else if row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() > MAX_SQUARE {
                    let message = format!("queries: row {i}: expected a squared length of at most {MAX_SQUARE:e}");
                    return Err(Error::Input(format!("{message}, got more: distances overflow; scale it down")));
                }
            }
        }
        Ok(())
    }
}

/// One query in the space of the stored vectors.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Components as floats, `dim` of the stored vectors.
    pub floats: Vec<f32>,
    /// The raw bytes of integer queries; else empty.
    pub bytes: Vec<u8>,
}

impl Prepared {
    /// Takes row `i`: widens integers, normalises under cosine, appends a 0 under inner product.
    pub fn load(&mut self, queries: &Queries<'_>, i: usize, metric: Metric) {
        let row = i * queries.dim..(i + 1) * queries.dim;
        self.floats.clear();
        self.bytes.clear();
        match queries.values {
            Values::Float32(v) => self.floats.extend_from_slice(&v[row]),
            Values::Uint8(v) => {
                self.bytes.extend_from_slice(&v[row]);
                self.floats.extend(self.bytes.iter().map(|&b| f32::from(b)));
            }
            Values::Int8(v) => {
                self.bytes.extend(v[row].iter().map(|&b| b as u8));
                self.floats.extend(self.bytes.iter().map(|&b| f32::from(b as i8)));
            }
        }
        match metric {
            Metric::L2 => {}
            Metric::Cosine => {
                let norm = self.floats.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
                self.floats.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
            }
            Metric::Ip => self.floats.push(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Dtype;

    fn check(metric: Metric, row: &[f32]) -> std::result::Result<(), String> {
        let dim = row.len() + usize::from(metric == Metric::Ip);
        let stored = Stored { dim, dtype: Dtype::Float32, metric, vector_bytes: 4 * dim, scale: &[] };
        let queries = Queries { values: Values::Float32(row), n: 1, dim: row.len() };
        queries.check(&stored).map_err(|error| error.to_string())
    }

    #[test]
    fn a_query_whose_distances_overflow_is_refused() {
        for metric in [Metric::L2, Metric::Ip] {
            check(metric, &[9e18, 1e18]).unwrap();
            for row in [[1e19, 0.0], [7e18, -7e18], [f32::MAX, f32::MAX]] {
                let message = check(metric, &row).unwrap_err();
                assert!(message.starts_with("queries: row 0: expected a squared length"), "{message}");
            }
        }
        check(Metric::Cosine, &[f32::MAX, f32::MAX]).unwrap();
        assert!(check(Metric::Cosine, &[0.0, 0.0]).unwrap_err().contains("the zero vector; remove it"));
    }
}
