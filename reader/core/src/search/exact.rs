//! Distance of a query to a stored vector, in the type it is stored in: squared Euclidean, or under inner product the
//! negated product. The product is computed directly: derived from the squared distance it would lose digits where
//! norms differ much.

use super::queries::Prepared;
use crate::distance::kernels;
use crate::metric::Metric;
use crate::stored::Dtype;
use crate::stored::Stored;

/// Distance of `query` to the `vector_bytes` bytes of a stored vector; see [`distances`].
pub(crate) fn distance(stored: &Stored<'_>, query: &Prepared, vector: &[u8], scratch: &mut Vec<f32>) -> f32 {
    let mut found = f32::NAN;
    distances(stored, query, std::iter::once(vector), scratch, |distance| found = distance);
    found
}

/// Calls `take` with the distance of `query` to each of `vectors`, the `vector_bytes` bytes of a stored one; `scratch` is
/// reused.
///
/// Vectors must be aligned for their component type, which stored ones are: buffers of engines, answers of stores and what
/// is kept of them begin at multiples of 64 bytes, units in them at multiples of their own bytes, and vectors in units at
/// multiples of 4.
///
/// # Panics
/// If query and vectors are not what `stored` says.
pub(crate) fn distances<'a>(
    stored: &Stored<'_>,
    query: &Prepared,
    vectors: impl Iterator<Item = &'a [u8]>,
    scratch: &mut Vec<f32>,
    mut take: impl FnMut(f32),
) {
    let (Stored { dim, dtype, vector_bytes, scale, .. }, kernels) = (*stored, kernels());
    let (is_ip, is_integer) = (stored.metric == Metric::Ip, matches!(dtype, Dtype::Uint8 | Dtype::Int8));
    assert!(query.floats.len() == dim && (!is_integer || query.bytes.len() == dim));
    let (floats, bytes) = (query.floats.as_ptr(), query.bytes.as_ptr());
    let vectors = vectors.map(|vector| {
        assert!(vector.len() == vector_bytes && vector.as_ptr().addr().is_multiple_of(4));
        vector.as_ptr()
    });
    // SAFETY: `vector_bytes` covers `dim` components of the type (`Graph`, `Vectors`), which are aligned; `floats` and
    // `scratch` hold `dim` floats; `bytes` holds `dim` bytes for integer types; `scale` holds 2 * `dim` floats for
    // scaled types (`Graph::open`).
    unsafe {
        match dtype {
            Dtype::Float32 if is_ip => vectors.for_each(|v| take(-(kernels.ip_f32)(floats, v.cast(), dim))),
            Dtype::Float32 => vectors.for_each(|v| take((kernels.l2_f32)(floats, v.cast(), dim))),
            Dtype::Uint8 => vectors.for_each(|v| take((kernels.l2_u8)(bytes, v, dim))),
            Dtype::Int8 => vectors.for_each(|v| take((kernels.l2_i8)(bytes.cast(), v.cast(), dim))),
            Dtype::Float16 if is_ip => vectors.for_each(|v| take(-(kernels.ip_f16)(floats, v.cast(), dim))),
            Dtype::Float16 => vectors.for_each(|v| take((kernels.l2_f16)(floats, v.cast(), dim))),
            Dtype::Sq16 | Dtype::Sq8 => {
                scratch.resize(dim, 0.0);
                let (out, (min, step)) = (scratch.as_mut_ptr(), scale.split_at(dim));
                vectors.for_each(|v| {
                    if dtype == Dtype::Sq16 {
                        (kernels.unscale_u16)(v.cast(), min.as_ptr(), step.as_ptr(), dim, out);
                    } else {
                        (kernels.unscale_u8)(v, min.as_ptr(), step.as_ptr(), dim, out);
                    }
                    take(if is_ip { -(kernels.ip_f32)(floats, out, dim) } else { (kernels.l2_f32)(floats, out, dim) });
                });
            }
        }
    }
}
