//! Elementwise kernels that the compiler vectorizes for each level: stored components to float32 (binary16, the
//! scaled integers of sq8 and sq16 nodes), and a row of a PQ distance table.

/// Exact binary16 to binary32 (sign, subnormals, infinities and NaN included).
pub fn half_to_f32(bits: u16) -> f32 {
    let sign = (bits as u32 & 0x8000) << 16;
    let exponent = (bits >> 10) as u32 & 0x1f;
    let mantissa = bits as u32 & 0x3ff;
    let magnitude = match (exponent, mantissa) {
        // Subnormal or zero: mantissa * 2^-24, exact in f32.
        (0, m) => (m as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        (31, 0) => 0x7f80_0000,
        // The quiet bit is set, as the conversion instructions do.
        (31, m) => 0x7fc0_0000 | (m << 13),
        (e, m) => ((e + 112) << 23) | (m << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// See [`super::level::Kernels::widen_f16`].
///
/// # Safety
/// `dim` codes, and room for `dim` floats.
pub unsafe fn widen_f16_portable(codes: *const u16, dim: usize, out: *mut f32) {
    for j in 0..dim {
        // SAFETY: j < dim.
        unsafe { *out.add(j) = half_to_f32(*codes.add(j)) };
    }
}

/// See [`super::level::Kernels::unscale_u8`]; inlined into each level so the compiler vectorizes it for that level.
///
/// # Safety
/// `dim` codes and values of `min` and `step`, and room for `dim` floats.
#[inline(always)]
pub unsafe fn unscale_portable<T: Copy + Into<f32>>(
    codes: *const T,
    min: *const f32,
    step: *const f32,
    dim: usize,
    out: *mut f32,
) {
    for j in 0..dim {
        // SAFETY: j < dim.
        unsafe { *out.add(j) = *min.add(j) + *step.add(j) * (*codes.add(j)).into() };
    }
}

/// Centres whose sums stay in registers.
const CENTRES: usize = 32;

/// See [`super::level::Kernels::squares`]; inlined into each level.
///
/// # Safety
/// `width` components, `width * n` values of centres, and room for `n` sums.
#[inline(always)]
pub unsafe fn squares_portable(query: *const f32, width: usize, centres: *const f32, n: usize, out: *mut f32) {
    let whole = n - n % CENTRES;
    for first in (0..whole).step_by(CENTRES) {
        let mut sums = [0f32; CENTRES];
        for d in 0..width {
            // SAFETY: d < width, and first + CENTRES <= n.
            let (x, row) = unsafe { (*query.add(d), &*centres.add(d * n + first).cast::<[f32; CENTRES]>()) };
            for (sum, centre) in sums.iter_mut().zip(row) {
                let difference = x - centre;
                *sum += difference * difference;
            }
        }
        // SAFETY: first + CENTRES <= n.
        unsafe { out.add(first).cast::<[f32; CENTRES]>().write_unaligned(sums) };
    }
    for c in whole..n {
        let mut sum = 0f32;
        for d in 0..width {
            // SAFETY: d < width and c < n.
            let difference = unsafe { *query.add(d) - *centres.add(d * n + c) };
            sum += difference * difference;
        }
        // SAFETY: c < n.
        unsafe { *out.add(c) = sum };
    }
}

/// Defines the kernels of a level that the compiler makes of portable code.
macro_rules! portable_kernels {
    ($(#[$attribute:meta])?) => {
        /// # Safety
        /// What `Kernels` says, and the instructions of the level.
        $(#[$attribute])?
        unsafe fn unscale_u8(codes: *const u8, min: *const f32, step: *const f32, dim: usize, out: *mut f32) {
            // SAFETY: the caller's contract is the same.
            unsafe { $crate::distance::convert::unscale_portable(codes, min, step, dim, out) }
        }

        /// # Safety
        /// What `Kernels` says, and the instructions of the level.
        $(#[$attribute])?
        unsafe fn unscale_u16(codes: *const u16, min: *const f32, step: *const f32, dim: usize, out: *mut f32) {
            // SAFETY: the caller's contract is the same.
            unsafe { $crate::distance::convert::unscale_portable(codes, min, step, dim, out) }
        }

        /// # Safety
        /// What `Kernels` says, and the instructions of the level.
        $(#[$attribute])?
        unsafe fn squares(query: *const f32, width: usize, centres: *const f32, n: usize, out: *mut f32) {
            // SAFETY: the caller's contract is the same.
            unsafe { $crate::distance::convert::squares_portable(query, width, centres, n, out) }
        }

        /// # Safety
        /// What `Kernels` says, and the instructions of the level.
        $(#[$attribute])?
        unsafe fn fit_codes(rows: *const *const f32, n: usize, dim: usize, low: *mut f32) -> f32 {
            // SAFETY: the caller's contract is the same.
            unsafe { $crate::distance::encode::fit_codes_portable(rows, n, dim, low) }
        }

        /// # Safety
        /// What `Kernels` says, and the instructions of the level.
        $(#[$attribute])?
        unsafe fn encode_u8(row: *const f32, low: *const f32, step: f32, dim: usize, codes: *mut u8) -> f32 {
            // SAFETY: the caller's contract is the same.
            unsafe { $crate::distance::encode::encode_u8_portable(row, low, step, dim, codes) }
        }
    };
}
pub(crate) use portable_kernels;
