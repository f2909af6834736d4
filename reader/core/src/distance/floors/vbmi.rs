//! The level of AVX-512 F, BW, VL and VBMI.

use std::arch::x86_64::*;

use super::level::{LANES, Level};
use crate::distance::lookup::TABLE_WIDTH;

/// Chunks that are transposed together.
const CHUNKS: usize = 16;
/// Floats of a register.
const FLOATS: usize = 16;

pub static LEVEL: Level = Level { extent, round, near };

/// Whether this CPU has all instructions of the level.
pub fn is_there() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
}

/// # Safety
/// What `is_there` asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn extent(row: &[f32; TABLE_WIDTH]) -> (f32, f32, f32) {
    let (mut least, mut greatest) = (_mm512_set1_ps(f32::INFINITY), _mm512_setzero_ps());
    let mut sum = _mm512_setzero_ps();
    for floats in row.as_chunks::<FLOATS>().0 {
        // SAFETY: 16 floats.
        let x = unsafe { _mm512_loadu_ps(floats.as_ptr()) };
        least = _mm512_min_ps(least, x);
        greatest = _mm512_max_ps(greatest, x);
        sum = _mm512_add_ps(sum, x);
    }
    (_mm512_reduce_min_ps(least), _mm512_reduce_max_ps(greatest), _mm512_reduce_add_ps(sum))
}

/// # Safety
/// What `is_there` asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn round(row: &[f32; TABLE_WIDTH], least: f32, per_step: f32, out: &mut [u8; TABLE_WIDTH]) {
    let (least, per_step) = (_mm512_set1_ps(least), _mm512_set1_ps(per_step));
    for (floats, bytes) in row.as_chunks::<FLOATS>().0.iter().zip(out.as_chunks_mut::<FLOATS>().0) {
        // SAFETY: 16 floats, and room for 16 bytes.
        unsafe {
            let steps = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(floats.as_ptr()), least), per_step);
            let narrowed = _mm512_cvtusepi32_epi8(_mm512_cvttps_epu32(steps)); // at most 255
            _mm_storeu_si128(bytes.as_mut_ptr().cast(), narrowed);
        }
    }
}

/// # Safety
/// Each code has a byte for each row, and what `is_there` asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn near(rows: &[[u8; TABLE_WIDTH]], codes: &[*const u8; LANES], limit: u16) -> u64 {
    let low = _mm512_set1_epi16(0xff);
    // Sums of the codes with even and with odd numbers.
    let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for (i, rows) in rows.chunks(CHUNKS).enumerate() {
        // SAFETY: each code has a byte for each row.
        let chunks = unsafe { transposed(codes, i * CHUNKS, rows.len()) };
        for (row, chunk) in rows.iter().zip(&chunks) {
            // SAFETY: a row has 256 bytes.
            let bytes = unsafe { look_up(row, *chunk) };
            even = _mm512_adds_epu16(even, _mm512_and_si512(bytes, low));
            odd = _mm512_adds_epu16(odd, _mm512_srli_epi16::<8>(bytes));
        }
    }
    let limit = _mm512_set1_epi16(limit as i16);
    let even = _mm512_movm_epi16(_mm512_cmple_epu16_mask(even, limit));
    let odd = _mm512_movm_epi16(_mm512_cmple_epu16_mask(odd, limit));
    _mm512_movepi8_mask(_mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, odd))
}

/// Bytes `first .. first + n` of all codes, n up to 16: register c has byte `first + c` of code i in lane i.
///
/// The four parts of a register hold codes 16 apart, and each part is transposed by itself: number (row, column) of a
/// matrix of 16 x 16 bytes is one of 8 bits, which each round rotates by one.
///
/// # Safety
/// Each code has those bytes, and what `is_there` asks for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn transposed(codes: &[*const u8; LANES], first: usize, n: usize) -> [__m512i; CHUNKS] {
    let mut rows = [_mm512_setzero_si512(); CHUNKS];
    for (j, row) in rows.iter_mut().enumerate() {
        // SAFETY: as the caller says.
        let parts = unsafe {
            [
                load(codes[j], first, n),
                load(codes[16 + j], first, n),
                load(codes[32 + j], first, n),
                load(codes[48 + j], first, n),
            ]
        };
        *row = _mm512_castsi128_si512(parts[0]);
        *row = _mm512_inserti32x4::<1>(*row, parts[1]);
        *row = _mm512_inserti32x4::<2>(*row, parts[2]);
        *row = _mm512_inserti32x4::<3>(*row, parts[3]);
    }
    for _ in 0..4 {
        let before = rows;
        for k in 0..8 {
            rows[2 * k] = _mm512_unpacklo_epi8(before[k], before[k + 8]);
            rows[2 * k + 1] = _mm512_unpackhi_epi8(before[k], before[k + 8]);
        }
    }
    rows
}

/// `n` bytes of a code, and zeros.
///
/// # Safety
/// The code has `n` bytes from `first` on, `n` up to 16, and what `is_there` asks for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn load(code: *const u8, first: usize, n: usize) -> __m128i {
    if n == CHUNKS {
        // SAFETY: the code has bytes up to `first + 16`.
        return unsafe { _mm_loadu_si128(code.add(first).cast()) };
    }
    // SAFETY: the code has bytes up to `first + n`; others are not read.
    unsafe { _mm_maskz_loadu_epi8((1 << n) - 1, code.add(first).cast()) }
}

/// The byte of a row that each lane names.
///
/// # Safety
/// What `is_there` asks for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn look_up(row: &[u8; TABLE_WIDTH], places: __m512i) -> __m512i {
    let at: *const u8 = row.as_ptr();
    // SAFETY: four registers of 64 bytes.
    let parts = unsafe {
        [
            _mm512_loadu_si512(at.cast()),
            _mm512_loadu_si512(at.add(64).cast()),
            _mm512_loadu_si512(at.add(128).cast()),
            _mm512_loadu_si512(at.add(192).cast()),
        ]
    };
    let low = _mm512_permutex2var_epi8(parts[0], places, parts[1]);
    let high = _mm512_permutex2var_epi8(parts[2], places, parts[3]);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(places), low, high)
}
