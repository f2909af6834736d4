use super::{Kernels, available};
use crate::testing::Random;

fn sum_f64(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| term(x as f64, y as f64)).sum()
}

fn levels_agree<T>(a: &[T], b: &[T], pick: impl Fn(&'static Kernels) -> super::Pair<T>) -> f32 {
    let values: Vec<f32> = available()
        .into_iter()
        // SAFETY: both arrays hold `a.len()` values.
        .map(|level| unsafe { pick(level)(a.as_ptr(), b.as_ptr(), a.len()) })
        .collect();
    assert!(values.iter().all(|v| v.to_bits() == values[0].to_bits()), "levels differ at dim {}: {values:?}", a.len());
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
    }
}

#[test]
fn gather_equals_single_distances() {
    let mut random = Random::new(3);
    for dim in [1usize, 7, 96, 128, 300] {
        let base = random.bytes(50 * dim);
        let floats: Vec<f32> = base.iter().map(|&x| x as f32 / 3.0).collect();
        let ids: Vec<u32> = (0..37).map(|_| random.below(50) as u32).collect();
        for level in available() {
            let mut out = vec![0f32; ids.len()];
            // SAFETY: ids are rows of the 50-row matrices.
            unsafe {
                (level.gather_l2_u8)(base.as_ptr(), base.as_ptr(), dim, ids.as_ptr(), ids.len(), out.as_mut_ptr());
                for (&id, &d) in ids.iter().zip(&out) {
                    assert_eq!(d, (level.l2_u8)(base.as_ptr(), base.as_ptr().add(id as usize * dim), dim));
                }
                (level.gather_l2_f32)(floats.as_ptr(), floats.as_ptr(), dim, ids.as_ptr(), ids.len(), out.as_mut_ptr());
                for (&id, &d) in ids.iter().zip(&out) {
                    assert_eq!(d, (level.l2_f32)(floats.as_ptr(), floats.as_ptr().add(id as usize * dim), dim));
                }
            }
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
