use super::{Gather, Kernels, Pair, TABLE_WIDTH, available, half_to_f32, score_codes};
use crate::testing::Random;

const INFINITY: u16 = 0x7c00;
const NAN: u16 = 0x7e00;

fn sum_f64(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| term(x as f64, y as f64)).sum()
}

fn levels_agree<T, Q>(a: &[Q], b: &[T], pick: impl Fn(&'static Kernels) -> Pair<T, Q>) -> f32 {
    let values: Vec<f32> = available()
        .into_iter()
        // SAFETY: both arrays hold `a.len()` values.
        .map(|level| unsafe { pick(level)(a.as_ptr(), b.as_ptr(), a.len()) })
        .collect();
    let alike = |v: &f32| v.to_bits() == values[0].to_bits() || v.is_nan() && values[0].is_nan();
    assert!(values.iter().all(alike), "levels differ at dim {}: {values:?}", a.len());
    values[0]
}

/// The other tests compare whatever levels there are; this one says that a 64-bit ARM CPU has two.
#[cfg(target_arch = "aarch64")]
#[test]
fn neon_is_among_the_levels_of_an_arm_cpu() {
    let names: Vec<&str> = available().into_iter().map(|level| level.name).collect();
    assert_eq!(names, ["scalar", "neon"]);
}

#[test]
fn float_kernels_give_the_same_bits_at_every_level_and_match_f64() {
    let mut random = Random::new(1);
    for dim in 1..=300 {
        let a: Vec<f32> = (0..dim).map(|_| random.float() * 200.0 - 100.0).collect();
        let b: Vec<f32> = (0..dim).map(|_| random.float() * 200.0 - 100.0).collect();
        let l2 = levels_agree(&a, &b, |k| k.l2_f32) as f64;
        let exact = sum_f64(&a, &b, |x, y| (x - y) * (x - y));
        assert!((l2 - exact).abs() <= 1e-5 * exact, "dim {dim}: {l2} against {exact}");
        let ip = levels_agree(&a, &b, |k| k.ip_f32) as f64;
        let exact = sum_f64(&a, &b, |x, y| x * y);
        let size = sum_f64(&a, &b, |x, y| (x * y).abs());
        assert!((ip - exact).abs() <= 1e-5 * size, "dim {dim}: {ip} against {exact}");
    }
}

/// Lanes of -0.0, of which a tail changes only some.
#[test]
fn products_that_underflow_keep_their_sign_at_every_level() {
    for dim in 1..=100 {
        let (a, b) = (vec![1e-30f32; dim], vec![-1e-30f32; dim]);
        let ip = levels_agree(&a, &b, |k| k.ip_f32);
        assert!(ip == 0.0 && ip.is_sign_negative() == (dim >= 32), "dim {dim}: {ip:?}");
    }
}

#[test]
fn integer_kernels_are_exact_at_every_level() {
    let mut random = Random::new(2);
    for dim in 1..=300 {
        let a = random.bytes(dim);
        let b = random.bytes(dim);
        let (sa, sb): (Vec<i8>, Vec<i8>) = (a.iter().map(|&x| x as i8).collect(), b.iter().map(|&x| x as i8).collect());
        let l2: i64 = a.iter().zip(&b).map(|(&x, &y)| (x as i64 - y as i64).pow(2)).sum();
        assert_eq!(levels_agree(&a, &b, |k| k.l2_u8), l2 as f32);
        let l2: i64 = sa.iter().zip(&sb).map(|(&x, &y)| (x as i64 - y as i64).pow(2)).sum();
        assert_eq!(levels_agree(&sa, &sb, |k| k.l2_i8), l2 as f32);
        let ip: i64 = a.iter().zip(&b).map(|(&x, &y)| x as i64 * y as i64).sum();
        assert_eq!(levels_agree(&a, &b, |k| k.ip_u8), ip as f32);
        let ip: i64 = sa.iter().zip(&sb).map(|(&x, &y)| x as i64 * y as i64).sum();
        assert_eq!(levels_agree(&sa, &sb, |k| k.ip_i8), ip as f32);
    }
}

/// Finite halves of every exponent.
fn some_halves(random: &mut Random, n: usize) -> Vec<u16> {
    (0..n)
        .map(|_| random.next() as u16)
        .map(|bits| if bits & INFINITY == INFINITY { bits ^ 0x4000 } else { bits })
        .collect()
}

#[test]
fn halves_are_compared_as_the_floats_they_widen_to() {
    let mut random = Random::new(5);
    for dim in 1..=300 {
        let query: Vec<f32> = (0..dim).map(|_| random.float() * 200.0 - 100.0).collect();
        let halves = some_halves(&mut random, dim);
        let wide: Vec<f32> = halves.iter().map(|&bits| half_to_f32(bits)).collect();
        let pairs: [(Pair<u16, f32>, Pair<f32>); 2] =
            [(super::kernels().l2_f16, super::kernels().l2_f32), (super::kernels().ip_f16, super::kernels().ip_f32)];
        for (half, float) in pairs {
            // SAFETY: all hold `dim` values.
            unsafe {
                let expected = float(query.as_ptr(), wide.as_ptr(), dim);
                assert_eq!(half(query.as_ptr(), halves.as_ptr(), dim).to_bits(), expected.to_bits(), "dim {dim}");
            }
        }
        levels_agree(&query, &halves, |k| k.l2_f16);
        levels_agree(&query, &halves, |k| k.ip_f16);
    }
}

#[test]
fn infinite_halves_give_infinity_and_nan_gives_nan_at_every_level() {
    for dim in [1usize, 7, 32, 33, 70] {
        for at in [0, dim / 2, dim - 1] {
            let (query, mut halves) = (vec![1f32; dim], vec![0x3c00u16; dim]);
            halves[at] = INFINITY;
            assert_eq!(levels_agree(&query, &halves, |k| k.l2_f16), f32::INFINITY);
            assert_eq!(levels_agree(&query, &halves, |k| k.ip_f16), f32::INFINITY);
            halves[at] = INFINITY | 0x8000;
            assert_eq!(levels_agree(&query, &halves, |k| k.l2_f16), f32::INFINITY);
            assert_eq!(levels_agree(&query, &halves, |k| k.ip_f16), f32::NEG_INFINITY);
            halves[at] = NAN;
            assert!(levels_agree(&query, &halves, |k| k.l2_f16).is_nan());
            assert!(levels_agree(&query, &halves, |k| k.ip_f16).is_nan());
        }
    }
}

/// Vector instructions load from any address; rows begin wherever the dimension puts them.
#[test]
fn addresses_need_no_alignment_beyond_that_of_a_component() {
    let mut random = Random::new(6);
    let bytes = random.bytes(200);
    let signed: Vec<i8> = bytes.iter().map(|&x| x as i8).collect();
    let floats: Vec<f32> = bytes.iter().map(|&x| x as f32 / 7.0).collect();
    let halves = some_halves(&mut random, 200);
    for dim in [1usize, 15, 64, 100] {
        for shift in 0..67 {
            let (from, other) = (shift..shift + dim, 99 - shift..99 - shift + dim);
            let exact: i64 = bytes[from.clone()]
                .iter()
                .zip(&bytes[other.clone()])
                .map(|(&x, &y)| (x as i64 - y as i64).pow(2))
                .sum();
            assert_eq!(levels_agree(&bytes[from.clone()], &bytes[other.clone()], |k| k.l2_u8), exact as f32);
            levels_agree(&signed[from.clone()], &signed[other.clone()], |k| k.ip_i8);
            levels_agree(&floats[from.clone()], &floats[other.clone()], |k| k.l2_f32);
            levels_agree(&floats[from], &halves[other], |k| k.l2_f16);
        }
    }
}

#[test]
fn integer_kernels_do_not_overflow_on_extreme_values() {
    for dim in [1, 64, 32767, 32768, 32769, 70001, 140003] {
        let (low, high) = (vec![0u8; dim], vec![255u8; dim]);
        assert_eq!(levels_agree(&low, &high, |k| k.l2_u8), (dim as u64 * 65025) as f32);
        assert_eq!(levels_agree(&high, &high, |k| k.ip_u8), (dim as u64 * 65025) as f32);
        let (low, high) = (vec![-128i8; dim], vec![127i8; dim]);
        assert_eq!(levels_agree(&low, &high, |k| k.l2_i8), (dim as u64 * 65025) as f32);
        assert_eq!(levels_agree(&low, &low, |k| k.ip_i8), (dim as u64 * 16384) as f32);
        assert_eq!(levels_agree(&low, &high, |k| k.ip_i8), -((dim as u64 * 16256) as f32));
    }
}

fn gather_agrees<T, Q>(query: &[Q], base: &[T], ids: &[u32], gather: Gather<T, Q>, pair: Pair<T, Q>) {
    let dim = query.len();
    let mut out = vec![f32::NAN; ids.len() + 1];
    // SAFETY: ids are rows of `base`.
    unsafe {
        gather(query.as_ptr(), base.as_ptr(), dim, ids.as_ptr(), ids.len(), out.as_mut_ptr());
        for (&id, &d) in ids.iter().zip(&out) {
            assert_eq!(d.to_bits(), pair(query.as_ptr(), base.as_ptr().add(id as usize * dim), dim).to_bits());
        }
    }
    assert!(out[ids.len()].is_nan(), "nothing is written beyond the last");
}

#[test]
fn gather_equals_single_distances() {
    let mut random = Random::new(3);
    for dim in [1usize, 7, 96, 128, 300] {
        let bytes = random.bytes(50 * dim);
        let signed: Vec<i8> = bytes.iter().map(|&x| x as i8).collect();
        let floats: Vec<f32> = bytes.iter().map(|&x| x as f32 / 3.0).collect();
        let halves = some_halves(&mut random, 50 * dim);
        for n in [0, 1, 37] {
            let ids: Vec<u32> = (0..n).map(|_| random.below(50) as u32).collect();
            for k in available() {
                gather_agrees(&bytes[..dim], &bytes, &ids, k.gather_l2_u8, k.l2_u8);
                gather_agrees(&bytes[..dim], &bytes, &ids, k.gather_ip_u8, k.ip_u8);
                gather_agrees(&signed[..dim], &signed, &ids, k.gather_l2_i8, k.l2_i8);
                gather_agrees(&signed[..dim], &signed, &ids, k.gather_ip_i8, k.ip_i8);
                gather_agrees(&floats[..dim], &floats, &ids, k.gather_l2_f32, k.l2_f32);
                gather_agrees(&floats[..dim], &floats, &ids, k.gather_ip_f32, k.ip_f32);
                gather_agrees(&floats[..dim], &halves, &ids, k.gather_l2_f16, k.l2_f16);
                gather_agrees(&floats[..dim], &halves, &ids, k.gather_ip_f16, k.ip_f16);
            }
        }
    }
}

#[test]
fn codes_are_looked_up_chunk_by_chunk() {
    let mut random = Random::new(7);
    for m in [1usize, 3, 32, 129] {
        let table: Vec<f32> = (0..m * TABLE_WIDTH).map(|_| random.float() * 1e3).collect();
        for n in 0..=9 {
            let codes = random.bytes(n * m);
            let mut out = vec![0f32; n];
            score_codes(&table, |i| &codes[i * m..(i + 1) * m], &mut out);
            for (code, got) in codes.chunks_exact(m).zip(out) {
                let in_order =
                    code.iter().zip(table.chunks_exact(TABLE_WIDTH)).fold(0f32, |sum, (&c, row)| sum + row[c as usize]);
                assert_eq!(got.to_bits(), in_order.to_bits());
            }
        }
    }
}

#[test]
fn rows_of_tables_are_the_same_at_every_level_and_add_components_in_order() {
    let mut random = Random::new(8);
    for (n, width) in [(1usize, 1usize), (31, 4), (32, 3), (33, 8), (200, 5), (256, 4), (256, 70)] {
        let query: Vec<f32> = (0..width).map(|_| random.float() * 9.0).collect();
        let centres: Vec<f32> = (0..n * width).map(|_| random.float() * 9.0).collect();
        for level in available() {
            let mut out = vec![f32::NAN; n + 1];
            // SAFETY: sizes as the kernel wants them.
            unsafe { (level.squares)(query.as_ptr(), width, centres.as_ptr(), n, out.as_mut_ptr()) };
            for (c, got) in out[..n].iter().enumerate() {
                let differences = (0..width).map(|d| query[d] - centres[d * n + c]);
                let in_order = differences.fold(0f32, |sum, difference| sum + difference * difference);
                assert_eq!(got.to_bits(), in_order.to_bits(), "{}", level.name);
            }
            assert!(out[n].is_nan(), "nothing is written beyond the last");
        }
    }
}

#[test]
fn every_half_widens_to_the_same_float_at_every_level() {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let widened: Vec<Vec<u32>> = available()
        .into_iter()
        .map(|level| {
            let mut out = vec![0f32; halves.len()];
            // SAFETY: both arrays hold 65536 values.
            unsafe { (level.widen_f16)(halves.as_ptr(), halves.len(), out.as_mut_ptr()) };
            out.iter().map(|x| x.to_bits()).collect()
        })
        .collect();
    assert!(widened.iter().all(|w| *w == widened[0]));
    for (half, value) in
        [(0x3c00u16, 1.0f32), (0xc000, -2.0), (0x7bff, 65504.0), (1, 5.960_464_5e-8), (0x0400, 6.103_515_6e-5)]
    {
        assert_eq!(f32::from_bits(widened[0][half as usize]), value);
    }
}

#[test]
fn scaled_codes_decode_to_the_same_float_at_every_level() {
    let mut random = Random::new(4);
    for dim in [1usize, 5, 16, 33, 300] {
        let min: Vec<f32> = (0..dim).map(|_| random.float() - 0.5).collect();
        let step: Vec<f32> = (0..dim).map(|_| random.float()).collect();
        let codes: Vec<u16> = (0..dim).map(|_| random.next() as u16).collect();
        let bytes = random.bytes(dim);
        for level in available() {
            let mut out = vec![0f32; dim];
            // SAFETY: every array holds `dim` values.
            unsafe {
                (level.unscale_u16)(codes.as_ptr(), min.as_ptr(), step.as_ptr(), dim, out.as_mut_ptr());
                assert!((0..dim).all(|j| out[j] == min[j] + step[j] * codes[j] as f32));
                (level.unscale_u8)(bytes.as_ptr(), min.as_ptr(), step.as_ptr(), dim, out.as_mut_ptr());
                assert!((0..dim).all(|j| out[j] == min[j] + step[j] * bytes[j] as f32));
            }
        }
    }
}
