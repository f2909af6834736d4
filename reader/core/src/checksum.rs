//! CRC32C of pages and of bucket blocks. Each one is checked when it is read, so this is part of the cost of a read.
//!
//! On processors with AVX-512 and VPCLMULQDQ sixteen 128-bit words are folded at a time by carry-less products (Gopal et
//! al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009); elsewhere the `crc32c`
//! crate does it.

/// CRC32C of a page.
pub fn of_page(page: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if page.len().is_multiple_of(wide::LINE_BYTES) && !page.is_empty() && wide::is_available() {
        // SAFETY: the instructions are there, and whole lines.
        return unsafe { wide::of_lines(page, !0) };
    }
    crc32c::crc32c(page)
}

/// CRC32C of a block except its first four bytes, which store it.
pub fn of_block(block: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if block.len().is_multiple_of(wide::LINE_BYTES) && !block.is_empty() && wide::is_available() {
        let stored = crate::bytes::u32_at(block, 0);
        // SAFETY: the instructions are there, and whole lines.
        return unsafe { wide::of_lines(block, stored ^ wide::LEADING) };
    }
    crc32c::crc32c(&block[4..])
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    /// The polynomial of CRC32C, bit reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    /// Four bytes that turn a register of 0 into the one that CRC32C begins with, all ones.
    pub const LEADING: u32 = back(!0, 32);

    /// The register `bits` zero bits before it was `register`.
    const fn back(mut register: u32, bits: u32) -> u32 {
        let mut i = 0;
        while i < bits {
            register = if register >> 31 == 1 { (register ^ POLYNOMIAL) << 1 | 1 } else { register << 1 };
            i += 1;
        }
        register
    }

    pub const LINE_BYTES: usize = 64;
    /// Lines that are folded side by side: a fold waits for the one before it, and takes a processor some cycles.
    const ABREAST: usize = 4;

    /// Factors that move a 128-bit word `bits` bits towards the end: of its first and its second half.
    const fn factors(bits: u32) -> [i64; 2] {
        [power(bits + 32), power(bits - 32)]
    }

    /// x^bits modulo the polynomial, reflected, and shifted by the bit that a product of reflected words lacks.
    const fn power(bits: u32) -> i64 {
        let (mut power, mut i) = (1u32 << 31, 0);
        while i < bits {
            power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
            i += 1;
        }
        (power as i64) << 1
    }

    const LINE: [i64; 2] = factors(512);
    const LINES: [i64; 2] = factors(512 * ABREAST as u32);
    const WORDS: [[i64; 2]; 3] = [factors(384), factors(256), factors(128)];

    pub fn is_available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("sse4.2")
    }

    /// CRC32C of whole lines, at least one, from a register of 0; `mask` is applied to the first four bytes.
    ///
    /// # Safety
    /// [`is_available`] says so.
    #[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
    pub unsafe fn of_lines(bytes: &[u8], mask: u32) -> u32 {
        // SAFETY: a line has 64 bytes.
        let load = |line: &[u8; LINE_BYTES]| unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        let fold = |word: __m512i, by: __m512i| {
            let (first, second) =
                (_mm512_clmulepi64_epi128::<0x00>(word, by), _mm512_clmulepi64_epi128::<0x11>(word, by));
            _mm512_xor_si512(first, second)
        };
        let (lines, _) = bytes.as_chunks::<LINE_BYTES>();
        let (by_line, by_lines) = (in_each_word(LINE), in_each_word(LINES));
        let mut word = _mm512_xor_si512(load(&lines[0]), in_front(mask));
        let mut rest = &lines[1..];
        if let Some(([b, c, d], behind)) = rest.split_first_chunk::<{ ABREAST - 1 }>() {
            let mut words = [word, load(b), load(c), load(d)];
            let (blocks, behind) = behind.as_chunks::<ABREAST>();
            for block in blocks {
                for (word, line) in words.iter_mut().zip(block) {
                    *word = _mm512_xor_si512(fold(*word, by_lines), load(line));
                }
            }
            word = words[0];
            for &next in &words[1..] {
                word = _mm512_xor_si512(fold(word, by_line), next);
            }
            rest = behind;
        }
        for line in rest {
            word = _mm512_xor_si512(fold(word, by_line), load(line));
        }
        let [a, b, c] = WORDS;
        let moved = fold(word, _mm512_set_epi64(0, 0, c[1], c[0], b[1], b[0], a[1], a[0]));
        let mut halves = [0u64; 8];
        let mut last = [0u64; 8];
        // SAFETY: both hold 64 bytes.
        unsafe {
            _mm512_storeu_si512(halves.as_mut_ptr().cast(), moved);
            _mm512_storeu_si512(last.as_mut_ptr().cast(), word);
        }
        let low = halves[0] ^ halves[2] ^ halves[4] ^ last[6];
        let high = halves[1] ^ halves[3] ^ halves[5] ^ last[7];
        !(_mm_crc32_u64(_mm_crc32_u64(0, low), high) as u32)
    }

    #[target_feature(enable = "avx512f")]
    fn in_each_word([low, high]: [i64; 2]) -> __m512i {
        _mm512_set_epi64(high, low, high, low, high, low, high, low)
    }

    #[target_feature(enable = "avx512f")]
    fn in_front(mask: u32) -> __m512i {
        _mm512_zextsi128_si512(_mm_cvtsi32_si128(mask as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::{of_block, of_page};
    use crate::testing::Random;

    #[test]
    fn every_length_has_the_checksum_of_the_crate() {
        let mut random = Random::new(3);
        for len in [64, 128, 192, 256, 320, 448, 512, 576, 1000, 1024, 1088, 2048, 4096, 4100] {
            for _ in 0..20 {
                let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                assert_eq!(of_page(&bytes), crc32c::crc32c(&bytes), "{len}");
                assert_eq!(of_block(&bytes), crc32c::crc32c(&bytes[4..]), "{len}");
            }
        }
    }
}
