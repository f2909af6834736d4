//! One query against many rows of a matrix far larger than the caches: memory latency dominates, so rows are
//! prefetched some ids ahead.

/// Bytes requested ahead of the row in work. Around 2 KiB keep the line-fill buffers busy without evicting L1.
const AHEAD_BYTES: usize = 2048;
const LINE_BYTES: usize = 64;

/// Number of rows to run ahead, for rows of `row_bytes`.
#[inline(always)]
pub fn rows_ahead(row_bytes: usize) -> usize {
    (AHEAD_BYTES / row_bytes.max(1)).clamp(2, 16)
}

/// Prefetches the cache lines of one row (at most 2 KiB of it: the hardware follows from there).
#[inline(always)]
pub fn prefetch_row(row: *const u8, row_bytes: usize) {
    let end = row.wrapping_add(row_bytes.min(AHEAD_BYTES));
    let mut line = row.wrapping_sub(row.addr() % LINE_BYTES);
    while line < end {
        prefetch_line(line);
        line = line.wrapping_add(LINE_BYTES);
    }
}

/// Asks for one cache line; harmless on any address.
#[inline(always)]
pub fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults; its intrinsic is not in stable Rust.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{address}]", address = in(reg) address,
            options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Defines a gather kernel around a pair kernel of the same level, so the pair kernel is inlined into the loop.
macro_rules! gather_kernel {
    ($(#[$attribute:meta])* $name:ident, $pair:path, $query:ty, $t:ty) => {
        /// # Safety
        /// What `Kernels` says, and the instructions of the level.
        $(#[$attribute])*
        unsafe fn $name(
            query: *const $query,
            base: *const $t,
            dim: usize,
            ids: *const u32,
            n_ids: usize,
            out: *mut f32,
        ) {
            let row_bytes = dim * size_of::<$t>();
            let ahead = $crate::distance::gather::rows_ahead(row_bytes);
            for i in 0..ahead.min(n_ids) {
                // SAFETY: i < n_ids; the caller vouches for ids and rows.
                let row = base.wrapping_add(unsafe { *ids.add(i) } as usize * dim);
                $crate::distance::gather::prefetch_row(row.cast(), row_bytes);
            }
            for i in 0..n_ids {
                if i + ahead < n_ids {
                    // SAFETY: i + ahead < n_ids.
                    let row = base.wrapping_add(unsafe { *ids.add(i + ahead) } as usize * dim);
                    $crate::distance::gather::prefetch_row(row.cast(), row_bytes);
                }
                // SAFETY: i < n_ids, and the caller vouches that every id is a row of `base`.
                unsafe { *out.add(i) = $pair(query, base.add(*ids.add(i) as usize * dim), dim) };
            }
        }
    };
}
pub(crate) use gather_kernel;

/// Defines the gather kernels of a level around its pair kernels.
macro_rules! gather_kernels {
    ($(#[$attribute:meta])*) => {
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_l2_f32, l2_f32, f32, f32);
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_l2_f16, l2_f16, f32, u16);
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_l2_u8, l2_u8, u8, u8);
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_l2_i8, l2_i8, i8, i8);
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_ip_f32, ip_f32, f32, f32);
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_ip_f16, ip_f16, f32, u16);
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_ip_u8, ip_u8, u8, u8);
        $crate::distance::gather::gather_kernel!($(#[$attribute])* gather_ip_i8, ip_i8, i8, i8);
    };
}
pub(crate) use gather_kernels;
