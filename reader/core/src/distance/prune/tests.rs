use super::bytes::{Bytes, LongBytes};
use super::chosen::Chosen;
use super::coded::Coded;
use super::floats::{Floats, Halves};
use super::{Rows, Rule, SLACK_STEP, Work, prune, sort_candidates};
use crate::distance::{Kernels, available, block, half_to_f32, kernels, products};
use crate::testing::Random;

/// The slow and obvious way: every candidate keeps how much each chosen one hides it.
fn oracle(n: usize, distances: &[f32], between: impl Fn(usize, usize) -> f32, rule: Rule, degree: usize) -> Vec<u32> {
    let mut hidden = vec![0f32; n];
    let mut chosen: Vec<usize> = Vec::new();
    let mut slack = 1f32;
    loop {
        for i in 0..n {
            if chosen.len() == degree || chosen.contains(&i) || hidden[i] > slack {
                continue;
            }
            chosen.push(i);
            for j in i + 1..n {
                let d = between(i, j);
                hidden[j] = hidden[j].max(if d == 0.0 { f32::INFINITY } else { distances[j] / d });
            }
        }
        if slack >= rule.alpha {
            break;
        }
        slack = (slack * SLACK_STEP).min(rule.alpha);
    }
    for i in 0..n {
        if rule.saturate && chosen.len() < degree && !chosen.contains(&i) {
            chosen.push(i);
        }
    }
    chosen.into_iter().map(|i| i as u32).collect()
}

/// Rows around a vertex, row 0, in the order of their distances from it, and those distances.
fn in_order<T: Copy>(rows: &[T], dim: usize, l2: unsafe fn(*const T, *const T, usize) -> f32) -> (Vec<u32>, Vec<f32>) {
    // SAFETY: rows of `dim` components.
    let far = |id: usize| unsafe { l2(rows.as_ptr(), rows.as_ptr().add(id * dim), dim) };
    let mut ids: Vec<u32> = (1..(rows.len() / dim) as u32).collect();
    let mut distances: Vec<f32> = ids.iter().map(|&id| far(id as usize)).collect();
    let left = sort_candidates(&mut ids, &mut distances);
    assert_eq!(left, ids.len());
    (ids, distances)
}

fn agrees<C: Chosen>(
    chosen: &mut C,
    rows: &[C::Component],
    dim: usize,
    l2: unsafe fn(*const C::Component, *const C::Component, usize) -> f32,
) where
    C::Component: Copy,
{
    let (ids, distances) = in_order(rows, dim, l2);
    let at = |i: usize| rows[ids[i] as usize * dim..].as_ptr();
    for (alpha, saturate) in [(1.0, true), (1.2, true), (1.2, false), (1.5, true)] {
        let rule = Rule { alpha, saturate };
        for degree in [0, 1, 5, 40, 200] {
            let mut out = vec![u32::MAX; degree];
            let given = Rows { vectors: rows.as_ptr(), dim };
            // SAFETY: ids are rows.
            let n = unsafe { prune(chosen, &mut Work::default(), given, &ids, &distances, rule, &mut out) };
            // SAFETY: rows of `dim` components.
            let places = oracle(ids.len(), &distances, |i, j| unsafe { l2(at(i), at(j), dim) }, rule, degree);
            let expected: Vec<u32> = places.into_iter().map(|i| ids[i as usize]).collect();
            assert_eq!(&out[..n], expected, "dim {dim}, alpha {alpha}, saturate {saturate}, degree {degree}");
        }
    }
}

/// Bytes of few values have many ties and duplicates.
fn some_bytes(random: &mut Random, n: usize, dim: usize, values: u8) -> Vec<u8> {
    random.bytes(n * dim).into_iter().map(|x| if values == 0 { x } else { x % values }).collect()
}

#[test]
fn bytes_are_chosen_as_by_the_oracle_at_every_level() {
    let mut random = Random::new(21);
    for level in block::available() {
        for dim in [1usize, 2, 3, 4, 7, 33, 128] {
            for (n, values) in [(1usize, 0u8), (2, 0), (17, 0), (90, 0), (90, 3), (150, 0)] {
                let rows = some_bytes(&mut random, n, dim, values);
                agrees(&mut Bytes::<u8>::new(level, kernels()), &rows, dim, kernels().l2_u8);
                let signed: Vec<i8> = rows.iter().map(|&x| x as i8).collect();
                agrees(&mut Bytes::<i8>::new(level, kernels()), &signed, dim, kernels().l2_i8);
            }
        }
    }
}

/// # Safety
/// `dim` values each.
unsafe fn l2_of_halves(a: *const u16, b: *const u16, dim: usize) -> f32 {
    // SAFETY: the caller vouches for `dim` values.
    let wide: Vec<f32> = (0..dim).map(|i| half_to_f32(unsafe { *a.add(i) })).collect();
    // SAFETY: the same.
    unsafe { (kernels().l2_f16)(wide.as_ptr(), b, dim) }
}

#[test]
fn halves_are_chosen_as_by_the_oracle_at_every_level() {
    let mut random = Random::new(26);
    for level in available() {
        for dim in [1usize, 8, 45] {
            let rows: Vec<u16> = (0..60 * dim).map(|_| 0x3000 | random.next() as u16 & 0x8fff).collect();
            agrees(&mut Coded::<u16>::new(products(), level), &rows, dim, l2_of_halves);
            agrees(&mut Halves::new(level), &rows, dim, l2_of_halves);
        }
    }
}

#[test]
fn work_space_of_one_prune_does_not_reach_the_next() {
    let mut random = Random::new(22);
    for level in block::available() {
        let mut shared = Bytes::<u8>::new(level, kernels());
        for dim in [40usize, 3, 128, 5] {
            let rows = some_bytes(&mut random, 120, dim, 0);
            agrees(&mut shared, &rows, dim, kernels().l2_u8);
        }
    }
    for level in available() {
        let (mut shared, mut coded) = (Floats::new(level), Coded::<f32>::new(products(), level));
        for dim in [40usize, 3, 70, 5] {
            let rows: Vec<f32> = (0..80 * dim).map(|_| random.float() - 0.5).collect();
            agrees(&mut shared, &rows, dim, kernels().l2_f32);
            agrees(&mut coded, &rows, dim, kernels().l2_f32);
        }
    }
}

#[test]
fn extreme_bytes_do_not_overflow() {
    let dim = block::MAX_DIM;
    let mut rows = vec![0u8; 9 * dim];
    for (i, row) in rows.chunks_exact_mut(dim).enumerate() {
        row[i * 100..].fill(if i % 2 == 0 { 255 } else { 0 });
    }
    for level in block::available() {
        agrees(&mut Bytes::<u8>::new(level, kernels()), &rows, dim, kernels().l2_u8);
    }
}

#[test]
fn rows_too_long_for_panels_are_chosen_alike() {
    let mut random = Random::new(23);
    for dim in [1usize, 9, 130] {
        let rows = some_bytes(&mut random, 70, dim, 0);
        agrees(&mut LongBytes::new(kernels().l2_u8), &rows, dim, kernels().l2_u8);
        let signed: Vec<i8> = rows.iter().map(|&x| x as i8).collect();
        agrees(&mut LongBytes::new(kernels().l2_i8), &signed, dim, kernels().l2_i8);
    }
    let dim = block::MAX_DIM + 1;
    let rows = some_bytes(&mut random, 4, dim, 0);
    let (ids, distances) = in_order(&rows, dim, kernels().l2_u8);
    let mut out = [0; 2];
    // SAFETY: ids are rows.
    let n = unsafe {
        super::prune_u8(
            Rows { vectors: rows.as_ptr(), dim },
            &ids,
            &distances,
            Rule { alpha: 1.2, saturate: true },
            &mut out,
        )
    };
    assert_eq!((n, out[0]), (2, ids[0]));
}

/// Every level of both kinds.
fn levels() -> impl Iterator<Item = (&'static block::Level, &'static Kernels)> {
    let widest = block::available().into_iter().map(|level| (level, kernels()));
    widest.chain(available().into_iter().map(|level| (products(), level)))
}

#[test]
fn floats_are_chosen_as_by_the_oracle_at_every_level() {
    let mut random = Random::new(24);
    for (bytes, level) in levels() {
        for dim in [1usize, 5, 31, 32, 33, 64, 100] {
            for n in [1usize, 2, 18, 90] {
                let rows: Vec<f32> = (0..n * dim).map(|_| random.float() * 8.0 - 4.0).collect();
                agrees(&mut Floats::new(level), &rows, dim, level.l2_f32);
                agrees(&mut Coded::<f32>::new(bytes, level), &rows, dim, level.l2_f32);
            }
        }
    }
}

/// Rows around `count / each` points, at `spread` of them.
fn clusters(random: &mut Random, count: usize, each: usize, dim: usize, spread: f32) -> Vec<f32> {
    let mut rows: Vec<f32> = Vec::new();
    for i in 0..count {
        for j in 0..dim {
            let x = random.float() - 0.5;
            rows.push(if i % each == 0 { x } else { rows[(i - i % each) * dim + j] + spread * x });
        }
    }
    rows
}

#[test]
fn codes_that_cannot_decide_change_nothing() {
    let mut random = Random::new(27);
    let kernels = kernels();
    let mut chosen = Coded::<f32>::new(products(), kernels);
    for (dim, scale) in [(24usize, 1f32), (24, 1e-13), (24, 1e-30), (24, 1e-41), (24, 1e13), (24, 1e18), (130, 1e-3)] {
        for (each, spread) in [(1, 1.0), (120, 1e-3), (120, 1e-6), (4, 0.0), (7, 1e-4), (120, 0.0)] {
            let mut rows = clusters(&mut random, 120, each, dim, spread);
            rows.iter_mut().for_each(|x| *x *= scale);
            agrees(&mut chosen, &rows, dim, kernels.l2_f32);
            for x in rows.iter_mut().step_by(7 * dim) {
                *x = scale * 100.0; // one component beyond what codes are fitted to
            }
            agrees(&mut chosen, &rows, dim, kernels.l2_f32);
        }
    }
}

#[test]
fn floats_too_long_for_codes_are_chosen_alike() {
    let (mut random, dim) = (Random::new(28), block::MAX_DIM + 1);
    let rows: Vec<f32> = (0..9 * dim).map(|_| random.float()).collect();
    agrees(&mut Coded::<f32>::new(products(), kernels()), &rows, dim, kernels().l2_f32);
}

#[test]
fn codes_are_as_far_from_their_row_as_they_say() {
    let mut random = Random::new(29);
    for level in available() {
        for dim in [1usize, 15, 16, 17, 50, 768] {
            let rows: Vec<f32> = (0..5 * dim).map(|_| random.float() * 3.0 - 1.0).collect();
            let all: Vec<*const f32> = rows.chunks_exact(dim).map(<[f32]>::as_ptr).collect();
            let (mut low, mut codes) = (vec![0f32; dim], vec![0u8; dim]);
            // SAFETY: five rows, lows and codes of `dim` components.
            let step = unsafe { (level.fit_codes)(all.as_ptr(), 5, dim, low.as_mut_ptr()) };
            for row in rows.chunks_exact(dim) {
                // SAFETY: the same.
                let left = unsafe { (level.encode_u8)(row.as_ptr(), low.as_ptr(), step, dim, codes.as_mut_ptr()) };
                let far = |j: usize| f64::from(row[j]) - f64::from(low[j]) - f64::from(step) * f64::from(codes[j]);
                let over: f64 = (0..dim).map(|j| far(j) * far(j)).sum();
                assert!((f64::from(left).sqrt() - over.sqrt()).abs() < f64::from(step) * 1e-3, "{}", level.name);
                assert!(over <= dim as f64 * f64::from(step).powi(2), "dim {dim}: a code is not the nearest");
            }
        }
    }
}

#[test]
fn the_least_distance_to_panels_has_the_bits_of_single_distances() {
    let mut random = Random::new(25);
    for dim in (1..=140).chain([255, 256, 300]) {
        let query: Vec<f32> = (0..dim).map(|_| random.float() * 200.0 - 100.0).collect();
        let points: Vec<Vec<f32>> =
            (0..32).map(|_| (0..dim).map(|_| random.float() * 200.0 - 100.0).collect()).collect();
        let panels: Vec<[f32; 16]> =
            (0..2 * dim).map(|i| std::array::from_fn(|p| points[i / dim * 16 + p][i % dim])).collect();
        for n_panels in 0..=2 {
            let far = |level: &Kernels, point: &Vec<f32>| {
                // SAFETY: `dim` floats each.
                unsafe { (level.l2_f32)(query.as_ptr(), point.as_ptr(), dim) }
            };
            let single = points[..16 * n_panels].iter().map(|p| far(kernels(), p)).fold(f32::INFINITY, f32::min);
            for level in available() {
                // SAFETY: `n_panels` panels of `dim` components are there.
                let least = unsafe { (level.least_l2_f32)(query.as_ptr(), panels.as_ptr(), n_panels, dim) };
                assert_eq!(least.to_bits(), single.to_bits(), "{}, dim {dim}", level.name);
            }
        }
    }
}

#[test]
fn sorting_drops_repeated_candidates_and_orders_ties_by_id() {
    let (mut ids, mut distances) = ([7, 3, 9, 3, 1, 7], [2.0, 2.0, 0.5, 2.0, 3.0, 2.0]);
    let n = sort_candidates(&mut ids, &mut distances);
    assert_eq!((&ids[..n], &distances[..n]), (&[9, 3, 7, 1][..], &[0.5, 2.0, 2.0, 3.0][..]));
    assert_eq!(sort_candidates(&mut [], &mut []), 0);
}
