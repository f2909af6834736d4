use super::{Centres, Level, Rows, available};
use crate::testing::Random;

/// The nearest centre of each chunk of each row, the slow and obvious way in 64 bits, and how near all centres are.
fn distances(rows: Rows, centres: Centres, i: usize, j: usize) -> Vec<f64> {
    let columns = centres.bounds[j] as usize..centres.bounds[j + 1] as usize;
    let row = &rows.values[i * rows.dim..][columns.clone()];
    centres
        .values
        .chunks_exact(rows.dim)
        .map(|c| row.iter().zip(&c[columns.clone()]).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum())
        .collect()
}

fn labels(level: &Level, rows: Rows, centres: Centres) -> Vec<u8> {
    let n = rows.values.len() / rows.dim;
    let mut labels = vec![255; n * (centres.bounds.len() - 1)];
    level.nearest(rows, centres, &mut labels);
    labels
}

/// Rows of whole numbers, of which scores are exact where the origin is whole: with centres in pairs around it.
fn whole(random: &mut Random, n: usize, largest: usize) -> Vec<f32> {
    (0..n).map(|_| random.below(2 * largest + 1) as f32 - largest as f32).collect()
}

#[test]
fn labels_are_the_first_nearest_centre_at_every_level_for_any_shape() {
    let mut random = Random::new(1);
    for dim in (1..=40).chain([96, 128, 300]) {
        let n_chunks = 1 + random.below(dim.min(9));
        let bounds: Vec<i64> = (0..=n_chunks).map(|j| (j * dim / n_chunks) as i64).collect();
        let (n, pairs) = (1 + random.below(400), 1 + random.below(128));
        let half = whole(&mut random, pairs * dim, 3);
        let centres: Vec<f32> = half.iter().copied().chain(half.iter().map(|x| -x)).collect();
        let values = whole(&mut random, n * dim, 5);
        let (rows, centres) = (Rows { values: &values, dim }, Centres { values: &centres, bounds: &bounds });
        let expected: Vec<u8> = (0..n * n_chunks)
            .map(|at| {
                let far = distances(rows, centres, at / n_chunks, at % n_chunks);
                let least = far.iter().copied().fold(f64::INFINITY, f64::min);
                far.iter().position(|&d| d == least).unwrap() as u8
            })
            .collect();
        for level in available() {
            assert_eq!(labels(level, rows, centres), expected, "{}: dim {dim}, {n} rows", level.name);
        }
    }
}

#[test]
fn labels_of_any_floats_are_the_same_at_every_level_and_nearly_the_nearest() {
    let mut random = Random::new(2);
    for (dim, offset) in [(3, 0.0), (12, 0.0), (12, 1000.0), (50, -1e6)] {
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.float() + offset).collect() };
        let (values, centres) = (floats(301 * dim), floats(255 * dim));
        let bounds = [0, dim as i64 / 3, dim as i64];
        let (rows, centres) = (Rows { values: &values, dim }, Centres { values: &centres, bounds: &bounds });
        let expected = labels(available()[0], rows, centres);
        for level in available() {
            assert_eq!(labels(level, rows, centres), expected, "{}: dim {dim} at {offset}", level.name);
        }
        for (at, &label) in expected.iter().enumerate() {
            let far = distances(rows, centres, at / 2, at % 2);
            let least = far.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(far[label as usize] <= least + 1e-4, "dim {dim} at {offset}: {} over {least}", far[label as usize]);
        }
    }
}

#[test]
fn scores_beyond_float_end_in_the_same_label_at_every_level() {
    let huge = [0.0, 1e30, -1e30, f32::MAX, -f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let mut random = Random::new(3);
    let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| huge[random.below(huge.len())]).collect() };
    for _ in 0..20 {
        let (values, finite) = (floats(70 * 4), floats(6 * 4).into_iter().map(|x| if x.is_finite() { x } else { 1.0 }));
        let centres: Vec<f32> = finite.collect();
        let (rows, centres) = (Rows { values: &values, dim: 4 }, Centres { values: &centres, bounds: &[0, 1, 4] });
        let expected = labels(available()[0], rows, centres);
        assert!(expected.iter().all(|&label| label < 6));
        available().into_iter().for_each(|level| assert_eq!(labels(level, rows, centres), expected, "{}", level.name));
    }
}

#[test]
fn no_rows_are_served() {
    for level in available() {
        assert!(
            labels(level, Rows { values: &[], dim: 2 }, Centres { values: &[1.0, 2.0], bounds: &[0, 2] }).is_empty()
        );
    }
}
