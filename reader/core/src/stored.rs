//! What the bytes of a stored vector mean, in any file.

use crate::bytes::f32s;
use crate::distance::half_to_f32;
use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::pagefile::PageFile;

/// Most components of an input vector.
pub const MAX_DIM: u64 = 1 << 16;

/// How a component of a stored vector is represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dtype {
    /// IEEE binary32.
    Float32,
    /// IEEE binary16.
    Float16,
    /// Unsigned bytes.
    Uint8,
    /// Signed bytes.
    Int8,
    /// 16-bit codes of scaled floats.
    Sq16,
    /// 8-bit codes of scaled floats.
    Sq8,
}

impl Dtype {
    /// Number of component types.
    pub(crate) const COUNT: usize = 6;

    const NAMES: [(Dtype, &'static str); Self::COUNT] = [
        (Dtype::Float32, "float32"),
        (Dtype::Float16, "float16"),
        (Dtype::Uint8, "uint8"),
        (Dtype::Int8, "int8"),
        (Dtype::Sq16, "sq16"),
        (Dtype::Sq8, "sq8"),
    ];

    pub(crate) fn from_field(value: u64) -> Option<Self> {
        Self::NAMES.get((value as usize).checked_sub(1)?).map(|&(dtype, _)| dtype)
    }

    /// Name as in job files.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(d, _)| *d == self).map_or("", |&(_, name)| name)
    }

    /// Name of the type that queries must have.
    pub fn query_name(self) -> &'static str {
        match self {
            Dtype::Uint8 => "uint8",
            Dtype::Int8 => "int8",
            _ => "float32",
        }
    }

    /// Bytes of a component.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::Float32 => 4,
            Dtype::Float16 | Dtype::Sq16 => 2,
            Dtype::Uint8 | Dtype::Int8 | Dtype::Sq8 => 1,
        }
    }

    pub(crate) fn is_scaled(self) -> bool {
        matches!(self, Dtype::Sq16 | Dtype::Sq8)
    }
}

/// Type and shape of stored vectors.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Stored<'a> {
    /// Dimensions as stored.
    pub dim: usize,
    /// Component type.
    pub dtype: Dtype,
    /// What "near" means.
    pub metric: Metric,
    /// Bytes of a vector, padded to a multiple of 4.
    pub vector_bytes: usize,
    /// `min[dim]` then `step[dim]` of scaled types; else empty.
    pub scale: &'a [f32],
}

/// Dimensions of the vectors of a file, as stored: one more than of queries under inner product.
pub(crate) fn read_dim(file: &PageFile, metric: Metric) -> Result<u64> {
    let more = u64::from(metric == Metric::Ip);
    file.field_in("dim", 1 + more..=MAX_DIM + more)
}

/// Metric, component type (one of the first `n_dtypes`) and largest norm, which each file of vectors says in its header.
pub(crate) fn read_space(file: &PageFile, n_dtypes: usize) -> Result<(Metric, Dtype, f64)> {
    let path = &file.path;
    let code = file.field("metric")?;
    let metric = Metric::from_field(code)
        .ok_or_else(|| Error::corrupt(path, "field \"metric\"", "1 l2, 2 ip or 3 cosine", code))?;
    let code = file.field_in("dtype", 1..=n_dtypes as u64)?;
    let is_integer = |dtype| matches!(dtype, Dtype::Uint8 | Dtype::Int8);
    let dtype = Dtype::from_field(code)
        .filter(|&dtype| metric == Metric::L2 || !is_integer(dtype))
        .ok_or_else(|| Error::corrupt(path, "field \"dtype\"", format!("floats under {}", metric.name()), code))?;
    let max_norm = f64::from_bits(file.field("max_norm")?);
    if !max_norm.is_finite() || max_norm < 0.0 {
        return Err(Error::corrupt(path, "field \"max_norm\"", "a finite norm", max_norm));
    }
    Ok((metric, dtype, max_norm))
}

impl Stored<'_> {
    /// Dimensions of a query: one less than stored under inner product.
    pub fn user_dim(&self) -> usize {
        self.dim - usize::from(self.metric == Metric::Ip)
    }

    /// Components of a stored vector as floats; scaled types are not hashed.
    pub(crate) fn widen(&self, vector: &[u8], out: &mut Vec<f32>) {
        out.clear();
        match self.dtype {
            Dtype::Float32 => out.extend(f32s(vector)),
            Dtype::Float16 => out.extend(vector.as_chunks::<2>().0.iter().map(|&b| half_to_f32(u16::from_le_bytes(b)))),
            Dtype::Int8 => out.extend(vector.iter().map(|&b| f32::from(b as i8))),
            _ => out.extend(vector.iter().map(|&b| f32::from(b))),
        }
        out.truncate(self.dim);
    }
}
