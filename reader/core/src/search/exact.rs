//! Distance of a query to a stored vector, in the type it is stored in: squared Euclidean, or under inner product the
//! negated product. The product is computed as such, not through the squared distance that stands for it, which would
//! cancel where norms differ much.

use super::vectors::Prepared;
use crate::distance::kernels;
use crate::graph::{Dtype, Graph, Metric};

/// Distance of `query` to the `vector_bytes` bytes of a node; `scratch` is reused.
///
/// `vector` must be aligned for its component type, which nodes are: blocks are aligned to 64 bytes and nodes to 4.
pub fn distance(graph: &Graph, query: &Prepared, vector: &[u8], scratch: &mut Vec<f32>) -> f32 {
    let (dim, kernels) = (graph.layout.dim, kernels());
    assert!(vector.len() == graph.layout.vector_bytes && vector.as_ptr().addr().is_multiple_of(4));
    scratch.resize(dim, 0.0);
    let (floats, stored, out) = (query.floats.as_ptr(), vector.as_ptr(), scratch.as_mut_ptr());
    let bytes = query.bytes.as_ptr();
    assert!(query.floats.len() == dim);
    // SAFETY: `vector_bytes` covers `dim` components of the type and is aligned for them; `floats` and `scratch` hold
    // `dim` floats; `bytes` holds `dim` bytes for integer types (`Queries::check`); `scale` holds 2 * `dim` floats
    // for scaled types (`Graph::open`).
    unsafe {
        match graph.layout.dtype {
            Dtype::Float32 if graph.metric == Metric::Ip => return -(kernels.ip_f32)(floats, stored.cast(), dim),
            Dtype::Float32 => return (kernels.l2_f32)(floats, stored.cast(), dim),
            Dtype::Uint8 => return (kernels.l2_u8)(bytes, stored, dim),
            Dtype::Int8 => return (kernels.l2_i8)(bytes.cast(), stored.cast(), dim),
            Dtype::Float16 => (kernels.widen_f16)(stored.cast(), dim, out),
            Dtype::Sq16 => {
                let (min, step) = graph.scale.split_at(dim);
                (kernels.unscale_u16)(stored.cast(), min.as_ptr(), step.as_ptr(), dim, out);
            }
            Dtype::Sq8 => {
                let (min, step) = graph.scale.split_at(dim);
                (kernels.unscale_u8)(stored, min.as_ptr(), step.as_ptr(), dim, out);
            }
        }
        if graph.metric == Metric::Ip {
            return -(kernels.ip_f32)(floats, out, dim);
        }
        (kernels.l2_f32)(floats, out, dim)
    }
}
