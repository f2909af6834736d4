use std::path::Path;

use super::*;
use crate::distance::score_codes;
use crate::testing::Random;

/// The oracle of all levels.
static PORTABLE: Level = Level { extent, round, near };

fn extent(row: &[f32; TABLE_WIDTH]) -> (f32, f32, f32) {
    let fold = |(least, greatest, sum): (f32, f32, f32), &x: &f32| (least.min(x), greatest.max(x), sum + x);
    row.iter().fold((f32::INFINITY, 0.0, 0.0), fold)
}

fn round(row: &[f32; TABLE_WIDTH], least: f32, per_step: f32, bytes: &mut [u8; TABLE_WIDTH]) {
    for (&entry, byte) in row.iter().zip(bytes) {
        let steps = (entry - least) * per_step;
        *byte = if steps.is_nan() { 255 } else { steps as u8 }; // infinite less infinite, in a row of such entries
    }
}

/// # Safety
/// Each code has a byte for each row.
unsafe fn near(rows: &[[u8; TABLE_WIDTH]], codes: &[*const u8; LANES], limit: u16) -> u64 {
    let is_near = |&code: &*const u8| {
        // SAFETY: a code has a byte for each row.
        let code = unsafe { std::slice::from_raw_parts(code, rows.len()) };
        let sum = rows.iter().zip(code).fold(0u16, |sum, (row, &c)| sum.saturating_add(u16::from(row[c as usize])));
        sum <= limit
    };
    codes.iter().rev().fold(0, |bits, code| bits << 1 | u64::from(is_near(code)))
}

/// The oracle, and the level of this CPU if it has one.
fn levels() -> impl Iterator<Item = &'static Level> {
    [&PORTABLE].into_iter().chain(level_of("avx512"))
}

fn filled(level: &'static Level, table: &[f32]) -> Floors {
    let mut floors = Floors { level: Some(level), ..Floors::default() };
    floors.fill(Path::new("codes.imx"), table).unwrap();
    floors
}

fn scores(table: &[f32], codes: &[u8], m: usize) -> Vec<f32> {
    let mut out = vec![0f32; codes.len() / m];
    score_codes(table, |i| &codes[i * m..][..m], &mut out);
    out
}

fn kept(floors: &Floors, bar: f32, codes: &[u8], m: usize) -> Vec<u32> {
    let mut kept = vec![7];
    floors.keep(bar, codes.len() / m, |i| &codes[i * m..][..m], &mut kept);
    kept
}

/// Bytes of entries at multiples of the step, and a rounding beside them, above all.
#[test]
fn bytes_stand_for_no_more_than_their_entries() {
    let mut random = Random::new(14);
    for (level, scale) in levels().flat_map(|level| [1e-30f32, 1e-3, 1.0, 1e30].map(|scale| (level, scale))) {
        let mut table: Vec<f32> = (0..3 * TABLE_WIDTH).map(|_| (random.float() + 1.0) * scale).collect();
        let floors = filled(level, &table);
        for (row, &least) in table.chunks_exact_mut(TABLE_WIDTH).zip(&floors.least) {
            for (i, entry) in row.iter_mut().enumerate() {
                let at = (f64::from(least) + (i / 3) as f64 * floors.step) as f32;
                *entry = [at.next_down(), at, at.next_up()][i % 3].max(least);
            }
            let mut bytes = [0u8; TABLE_WIDTH];
            let per_step = (1.0 - 1.0 / (1 << 20) as f32) / floors.step as f32;
            // SAFETY: this CPU has the level.
            unsafe { (level.round)((&*row).try_into().unwrap(), least, per_step, &mut bytes) };
            for (&entry, byte) in row.iter().zip(bytes) {
                assert!(f64::from(byte) * floors.step <= f64::from(entry) - f64::from(least), "{byte} for {entry}");
            }
            assert!(bytes.iter().max() > Some(&80), "{bytes:?}");
        }
    }
}

#[test]
fn levels_agree() {
    let mut random = Random::new(15);
    let mut row: [f32; TABLE_WIDTH] = std::array::from_fn(|_| random.float() + 3.0);
    row[7] = f32::INFINITY;
    for level in levels() {
        for (least, per_step) in [(2.0, 1.0), (2.0, 60.0), (2.0, 1e30)] {
            let (mut want, mut got) = ([1u8; TABLE_WIDTH], [2u8; TABLE_WIDTH]);
            // SAFETY: this CPU has the level.
            unsafe { (round(&row, least, per_step, &mut want), (level.round)(&row, least, per_step, &mut got)) };
            assert_eq!(got, want);
        }
        row[7] = 3.5;
        // SAFETY: as above.
        let (want, got) = unsafe { (extent(&row), (level.extent)(&row)) };
        assert_eq!((got.0, got.1), (want.0, want.1));
        assert!((got.2 - want.2).abs() < 1e-4 * want.2);
        for m in [1usize, 15, 16, 17, 300] {
            let rows: Vec<[u8; TABLE_WIDTH]> = random.bytes(m * TABLE_WIDTH).as_chunks().0.to_vec();
            let codes = random.bytes(m * LANES);
            let codes = std::array::from_fn(|i| codes[i * m..].as_ptr());
            for limit in [0, 100, 128 * m as u16, u16::MAX - 1, u16::MAX] {
                // SAFETY: as above; codes have m bytes.
                let (want, got) = unsafe { (near(&rows, &codes, limit), (level.near)(&rows, &codes, limit)) };
                assert_eq!(got, want, "{m} chunks, limit {limit}");
            }
        }
        row[7] = f32::INFINITY;
    }
}

/// Numbers of codes around what is bounded at once.
const LENGTHS: [usize; 9] = [0, 1, 15, 16, 17, 63, 64, 65, 130];

#[test]
fn codes_within_the_bar_are_kept() {
    let mut random = Random::new(11);
    for m in [1usize, 2, 15, 16, 17, 31, 32, 48, 100, 300] {
        for scale in [1e-3f32, 1.0, 1e9] {
            let table: Vec<f32> = (0..m * TABLE_WIDTH).map(|_| (random.float() + 3.0) * scale).collect();
            for (level, n) in levels().flat_map(|level| LENGTHS.map(|n| (level, n))) {
                let (floors, codes) = (filled(level, &table), random.bytes(n * m));
                let scores = scores(&table, &codes, m);
                let mut bars = scores.clone();
                bars.extend([0.0, 3.0 * scale * m as f32, f32::MAX, f32::INFINITY]);
                for bar in bars {
                    let kept = kept(&floors, bar, &codes, m);
                    assert!(kept.is_sorted_by(|a, b| a < b) && kept.last().is_none_or(|&i| (i as usize) < n));
                    for (i, &score) in (0..).zip(&scores) {
                        assert!(score > bar || kept.contains(&i), "{m} chunks: {score} is within {bar}");
                    }
                }
            }
        }
    }
}

#[test]
fn most_codes_beyond_the_bar_are_refused() {
    let (mut random, m, n) = (Random::new(12), 32usize, 640usize);
    let table: Vec<f32> = (0..m * TABLE_WIDTH).map(|_| random.float() * random.float() * 4e3).collect();
    let codes = random.bytes(n * m);
    let mut sorted = scores(&table, &codes, m);
    sorted.sort_by(f32::total_cmp);
    for level in levels() {
        let kept = kept(&filled(level, &table), sorted[n / 20], &codes, m).len();
        assert!((n / 20..n / 3).contains(&kept), "{kept} of {n} kept");
    }
}

/// Sums of bytes beyond 16 bits count as the greatest of them, and the limit of a near bar is less.
#[test]
fn long_codes_are_bounded_too() {
    let (mut random, m, n) = (Random::new(13), 700usize, 192usize);
    let table: Vec<f32> = (0..m * TABLE_WIDTH).map(|_| random.float() * 4e3).collect();
    let mut codes = random.bytes(n * m);
    for (row, code) in table.chunks_exact(TABLE_WIDTH).zip(&mut codes[..m]) {
        *code = (0..=255u8).min_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize])).unwrap();
    }
    let scores = scores(&table, &codes, m);
    for level in levels() {
        let floors = filled(level, &table);
        assert_eq!(kept(&floors, scores[0], &codes, m), [0]);
        assert_eq!(kept(&floors, scores[1], &codes, m).len(), n);
    }
}

#[test]
fn tables_without_bounds_are_told() {
    let rows = |value: f32| vec![value; 2 * TABLE_WIDTH];
    let mut infinite = rows(1.0);
    infinite[9] = f32::INFINITY;
    for table in [rows(0.0), rows(5.0), rows(f32::INFINITY), infinite] {
        assert!(levels().all(|level| !filled(level, &table).are_there()));
    }
}

#[test]
fn a_row_of_infinite_entries_refuses_what_is_infinitely_far() {
    let mut table: Vec<f32> = (0..2 * TABLE_WIDTH).map(|i| i as f32).collect();
    table[..TABLE_WIDTH].fill(f32::INFINITY);
    let codes = vec![3; 2 * 40];
    for floors in levels().map(|level| filled(level, &table)) {
        assert!(floors.are_there() && kept(&floors, f32::MAX, &codes, 2).is_empty());
        assert_eq!(kept(&floors, f32::INFINITY, &codes, 2).len(), 40);
    }
}

#[test]
#[should_panic(expected = "bounds of no table")]
fn without_bounds_nothing_is_refused() {
    let mut floors = filled(&PORTABLE, &[5.0; TABLE_WIDTH]);
    floors.clear();
    kept(&floors, 1.0, &[0; 20], 1);
}
