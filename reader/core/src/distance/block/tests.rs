use super::{CHUNK, CHUNK_BYTES, Level, Lists, MAX_DIM, PANEL_POINTS, Panels, Rows};
use crate::testing::Random;

/// Every level that this CPU has, and that of AMX in any case: by the emulator if the CPU has none.
fn levels() -> Vec<&'static Level> {
    #[allow(unused_mut)]
    let mut levels = super::available();
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
        if !super::amx::is_granted().unwrap_or(false) {
            super::emulator::install();
        }
        levels.push(&super::amx::LEVEL);
    }
    levels
}

/// Points in panels with their ids, and the vectors they are compared with.
struct Case {
    dim: usize,
    n_points: usize,
    points: Vec<u8>,
    vectors: Vec<u8>,
    rows: Vec<i64>,
    bytes: Vec<u8>,
    offsets: Vec<i32>,
    ids: Vec<u32>,
}

impl Case {
    fn new(dim: usize, points: Vec<u8>, vectors: Vec<u8>, rows: Vec<i64>) -> Case {
        let n_points = points.len() / dim;
        let (n_panels, chunks) = (n_points.div_ceil(PANEL_POINTS), dim.div_ceil(CHUNK));
        let mut bytes = vec![0u8; n_panels * chunks * CHUNK_BYTES];
        let mut offsets = vec![i32::MAX; n_panels * PANEL_POINTS];
        let mut ids = vec![u32::MAX; n_panels * PANEL_POINTS];
        for p in 0..n_points {
            let (panel, lane) = (p / PANEL_POINTS, p % PANEL_POINTS);
            let point = &points[p * dim..(p + 1) * dim];
            for (j, &x) in point.iter().enumerate() {
                bytes[(panel * chunks + j / CHUNK) * CHUNK_BYTES + lane * CHUNK + j % CHUNK] = x;
            }
            offsets[p] = point.iter().map(|&x| i32::from(x) * (i32::from(x) - 256)).sum();
            ids[p] = 3 * p as u32;
        }
        Case { dim, n_points, points, vectors, rows, bytes, offsets, ids }
    }

    fn random(random: &mut Random, dim: usize, n_points: usize, n_rows: usize) -> Case {
        let rows = (0..n_rows as i64).rev().map(|r| 2 * r).collect(); // every second row, backwards
        let (points, vectors) = (random.bytes(n_points * dim), random.bytes(2 * n_rows * dim));
        Case::new(dim, points, vectors, rows)
    }

    fn arguments(&self) -> (Rows, Panels) {
        let (vectors, rows, n_rows) = (self.vectors.as_ptr(), self.rows.as_ptr(), self.rows.len());
        let (bytes, offsets) = (self.bytes.as_ptr(), self.offsets.as_ptr());
        let n_panels = self.offsets.len() / PANEL_POINTS;
        (Rows { vectors, dim: self.dim, rows, n_rows }, Panels { bytes, offsets, n_panels })
    }

    /// The slow and obvious way, in 64 bits.
    fn score(&self, row: i64, p: usize) -> i64 {
        let query = &self.vectors[row as usize * self.dim..][..self.dim];
        let point = &self.points[p * self.dim..][..self.dim];
        point.iter().zip(query).map(|(&x, &y)| i64::from(x) * (i64::from(x) - 2 * i64::from(y))).sum()
    }

    fn scores_are_exact(&self, level: &Level) {
        let (rows, panels) = self.arguments();
        let width = self.offsets.len();
        let mut out = vec![0i32; self.rows.len() * width];
        // SAFETY: the arrays of this case, and `out` is as large as asked.
        unsafe { level.scores(rows, panels, out.as_mut_ptr()) };
        for (i, &row) in self.rows.iter().enumerate() {
            for p in 0..self.n_points {
                let (got, expected) = (i64::from(out[i * width + p]), self.score(row, p));
                assert_eq!(got, expected, "{}: dim {}, row {i}, point {p}", level.name, self.dim);
            }
        }
    }

    fn lists_are_the_sorted_scores(&self, level: &Level, fanout: usize) {
        let (rows, panels) = self.arguments();
        let n = self.vectors.len() / self.dim;
        let (mut scores, mut ids) = (vec![i32::MAX; n * fanout], vec![u32::MAX; n * fanout]);
        let lists = Lists { scores: scores.as_mut_ptr(), ids: ids.as_mut_ptr(), fanout };
        // SAFETY: the arrays of this case, and lists for all vectors.
        unsafe { level.nearest(rows, panels, self.ids.as_ptr(), lists) };
        for &row in &self.rows {
            let mut expected: Vec<(i64, u32)> = (0..self.n_points).map(|p| (self.score(row, p), self.ids[p])).collect();
            expected.sort_unstable();
            expected.resize(fanout, (i64::from(i32::MAX), u32::MAX));
            let mine = row as usize * fanout..(row as usize + 1) * fanout;
            let got: Vec<(i64, u32)> = mine.map(|at| (i64::from(scores[at]), ids[at])).collect();
            assert_eq!(got, expected, "{}: dim {}, row {row}, fanout {fanout}", level.name, self.dim);
        }
    }
}

#[test]
fn scores_are_exact_at_every_level_for_any_shape() {
    let mut random = Random::new(1);
    for dim in (1..=70).chain([96, 127, 128, 129, 300, 960]) {
        let (n_points, n_rows) = (1 + random.below(100), 1 + random.below(50));
        let case = Case::random(&mut random, dim, n_points, n_rows);
        levels().into_iter().for_each(|level| case.scores_are_exact(level));
    }
}

#[test]
fn lists_hold_the_nearest_points_at_every_level() {
    let mut random = Random::new(2);
    for fanout in [1, 2, 3, 17, 64] {
        for dim in [1, 3, 4, 16, 33, 128] {
            let (n_points, n_rows) = (1 + random.below(200), 1 + random.below(210));
            let case = Case::random(&mut random, dim, n_points, n_rows);
            levels().into_iter().for_each(|level| case.lists_are_the_sorted_scores(level, fanout));
        }
    }
}

#[test]
fn equal_scores_are_ordered_by_id_at_every_level() {
    let mut random = Random::new(3);
    let few = |random: &mut Random, n: usize| random.bytes(n).into_iter().map(|x| x % 2).collect::<Vec<u8>>();
    let (points, vectors) = (few(&mut random, 3 * 130), few(&mut random, 3 * 20));
    let case = Case::new(3, points, vectors, (0..20).collect());
    for level in levels() {
        case.lists_are_the_sorted_scores(level, 5);
        case.lists_are_the_sorted_scores(level, 130);
    }
}

/// A later call may bring points with smaller ids, as groups do.
#[test]
fn lists_are_the_same_in_whatever_order_points_come() {
    let mut random = Random::new(4);
    let case = Case::random(&mut random, 2, 64, 30);
    let (rows, panels) = case.arguments();
    for level in levels() {
        let found = [[0, 1, 2, 3], [3, 1, 2, 0]].map(|order| {
            let (mut scores, mut ids) = (vec![i32::MAX; 60 * 4], vec![u32::MAX; 60 * 4]);
            for panel in order {
                // SAFETY: one of the four panels.
                unsafe {
                    let one = Panels {
                        bytes: panels.bytes.add(panel * CHUNK_BYTES),
                        offsets: panels.offsets.add(panel * PANEL_POINTS),
                        n_panels: 1,
                    };
                    let lists = Lists { scores: scores.as_mut_ptr(), ids: ids.as_mut_ptr(), fanout: 4 };
                    level.nearest(rows, one, case.ids.as_ptr().add(panel * PANEL_POINTS), lists);
                }
            }
            (scores, ids)
        });
        assert_eq!(found[0], found[1], "{}", level.name);
    }
}

#[test]
fn scores_of_extreme_bytes_fit_up_to_the_largest_dimension() {
    for dim in [MAX_DIM - 4, MAX_DIM - 1, MAX_DIM] {
        for (point, query) in [(255, 0), (255, 255), (0, 255), (128, 0), (128, 255)] {
            let case = Case::new(dim, vec![point; dim], vec![query; dim], vec![0; 12]);
            levels().into_iter().for_each(|level| case.scores_are_exact(level));
        }
    }
}

#[test]
fn no_rows_and_no_points_are_served() {
    let mut random = Random::new(5);
    let (no_rows, no_points) = (Case::random(&mut random, 5, 20, 0), Case::random(&mut random, 5, 0, 7));
    for level in levels() {
        no_rows.scores_are_exact(level);
        no_points.lists_are_the_sorted_scores(level, 2);
    }
}

#[test]
fn least_scores_are_the_first_of_the_sorted_at_every_level() {
    let mut random = Random::new(6);
    for panels in [1, 2, 3, 5, 30, 64] {
        let width = panels * PANEL_POINTS;
        for distinct in [1, 3, 50, u32::MAX] {
            let draw = |random: &mut Random| match random.below(8) {
                0 => i32::MAX,
                _ => (random.next() as u32 % distinct) as i32,
            };
            let scores: Vec<i32> = (0..4 * width).map(|_| draw(&mut random)).collect();
            for k in [1, 2, 6, 16, 17, 40] {
                let expected: Vec<u32> = scores.chunks_exact(width).flat_map(|row| sorted_places(row, k)).collect();
                for level in levels() {
                    let mut places = vec![0; 4 * k];
                    level.least(&scores, width, k, &mut places);
                    assert_eq!(places, expected, "{}: {panels} panels, {distinct} values, {k} places", level.name);
                }
            }
        }
    }
}

/// The slow and obvious way.
fn sorted_places(scores: &[i32], k: usize) -> Vec<u32> {
    let mut places: Vec<u32> = (0..scores.len() as u32).filter(|&at| scores[at as usize] < i32::MAX).collect();
    places.sort_by_key(|&at| (scores[at as usize], at));
    places.resize(k.max(places.len()), u32::MAX);
    places.truncate(k);
    places
}
