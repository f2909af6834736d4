//! What the bytes of a stored vector mean, whatever file they are in.

use crate::graph::{Dtype, Metric};

/// Type and shape of stored vectors.
#[derive(Debug, Clone, Copy)]
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

impl Stored<'_> {
    /// Dimensions of a query: one less than stored under inner product.
    pub fn user_dim(&self) -> usize {
        self.dim - usize::from(self.metric == Metric::Ip)
    }
}
