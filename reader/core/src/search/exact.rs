//! Distance of a query to a stored vector, in the type it is stored in: squared Euclidean, or under inner product the
//! negated product. The product is computed directly: derived from the squared distance it would lose digits where
//! norms differ much.

use super::queries::Prepared;
use crate::distance::kernels;
use crate::metric::Metric;
use crate::stored::Dtype;
use crate::stored::Stored;

/// Distance of `query` to the `vector_bytes` bytes of a stored vector; `scratch` is reused.
///
/// `vector` must be aligned for its component type, which stored ones are: buffers of engines, answers of stores and what
/// is kept of them begin at multiples of 64 bytes, units in them at multiples of their own bytes, and vectors in units at
/// multiples of 4.
///
/// # Panics
/// If query and vector are not what `stored` says.
pub(crate) fn distance(stored: &Stored<'_>, query: &Prepared, vector: &[u8], scratch: &mut Vec<f32>) -> f32 {
    let (dim, metric, kernels) = (stored.dim, stored.metric, kernels());
    assert!(vector.len() == stored.vector_bytes && vector.as_ptr().addr().is_multiple_of(4));
    scratch.resize(dim, 0.0);
    let (floats, codes, out) = (query.floats.as_ptr(), vector.as_ptr(), scratch.as_mut_ptr());
    let bytes = query.bytes.as_ptr();
    let is_integer = matches!(stored.dtype, Dtype::Uint8 | Dtype::Int8);
    assert!(query.floats.len() == dim && (!is_integer || query.bytes.len() == dim));
    // SAFETY: `vector_bytes` covers `dim` components of the type (`Graph`, `Vectors`), which are aligned; `floats` and
    // `scratch` hold `dim` floats; `bytes` holds `dim` bytes for integer types; `scale` holds 2 * `dim` floats for
    // scaled types (`Graph::open`).
    unsafe {
        match stored.dtype {
            Dtype::Float32 if metric == Metric::Ip => return -(kernels.ip_f32)(floats, codes.cast(), dim),
            Dtype::Float32 => return (kernels.l2_f32)(floats, codes.cast(), dim),
            Dtype::Uint8 => return (kernels.l2_u8)(bytes, codes, dim),
            Dtype::Int8 => return (kernels.l2_i8)(bytes.cast(), codes.cast(), dim),
            Dtype::Float16 if metric == Metric::Ip => return -(kernels.ip_f16)(floats, codes.cast(), dim),
            Dtype::Float16 => return (kernels.l2_f16)(floats, codes.cast(), dim),
            Dtype::Sq16 => {
                let (min, step) = stored.scale.split_at(dim);
                (kernels.unscale_u16)(codes.cast(), min.as_ptr(), step.as_ptr(), dim, out);
            }
            Dtype::Sq8 => {
                let (min, step) = stored.scale.split_at(dim);
                (kernels.unscale_u8)(codes, min.as_ptr(), step.as_ptr(), dim, out);
            }
        }
        if metric == Metric::Ip {
            return -(kernels.ip_f32)(floats, out, dim);
        }
        (kernels.l2_f32)(floats, out, dim)
    }
}
