use std::path::Path;

use super::*;
use crate::distance::score_codes;
use crate::testing::Random;

fn filled(table: &[f32]) -> Option<Floors> {
    let mut floors = Floors { level: level_of("avx512"), ..Floors::default() };
    floors.fill(Path::new("codes.imx"), table).unwrap();
    floors.level.is_some().then_some(floors)
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

/// What a byte loses is at most a step, so that codes two steps a chunk beyond the bar are refused.
#[test]
fn codes_within_the_bar_are_kept_and_those_far_beyond_are_not() {
    let mut random = Random::new(11);
    for m in [1usize, 2, 15, 16, 17, 31, 32, 48, 100, 300] {
        for scale in [1e-3f32, 1.0, 1e9] {
            let table: Vec<f32> = (0..m * TABLE_WIDTH).map(|_| (random.float() + 3.0) * scale).collect();
            let Some(floors) = filled(&table) else { return };
            assert!(floors.are_there());
            for n in [0usize, 1, 15, 16, 17, 63, 64, 65, 130] {
                let codes = random.bytes(n * m);
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
    let Some(floors) = filled(&table) else { return };
    let codes = random.bytes(n * m);
    let mut sorted = scores(&table, &codes, m);
    sorted.sort_by(f32::total_cmp);
    let kept = kept(&floors, sorted[n / 20], &codes, m).len();
    assert!((n / 20..n / 3).contains(&kept), "{kept} of {n} kept");
}

/// Sums of bytes beyond 16 bits count as the greatest of them, and the limit of a near bar is less.
#[test]
fn long_codes_are_bounded_too() {
    let (mut random, m, n) = (Random::new(13), 700usize, 192usize);
    let table: Vec<f32> = (0..m * TABLE_WIDTH).map(|_| random.float() * 4e3).collect();
    let Some(floors) = filled(&table) else { return };
    let mut codes = random.bytes(n * m);
    for (row, code) in table.chunks_exact(TABLE_WIDTH).zip(&mut codes[..m]) {
        *code = (0..=255u8).min_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize])).unwrap();
    }
    let scores = scores(&table, &codes, m);
    assert_eq!(kept(&floors, scores[0], &codes, m), [0]);
    assert_eq!(kept(&floors, scores[1], &codes, m).len(), n);
}

#[test]
fn tables_without_bounds_are_told() {
    let rows = |value: f32| vec![value; 2 * TABLE_WIDTH];
    let mut infinite = rows(1.0);
    infinite[9] = f32::INFINITY;
    for table in [rows(0.0), rows(5.0), rows(f32::INFINITY), infinite] {
        let Some(floors) = filled(&table) else { return };
        assert!(!floors.are_there());
    }
}

#[test]
fn a_row_of_infinite_entries_refuses_what_is_infinitely_far() {
    let mut table: Vec<f32> = (0..2 * TABLE_WIDTH).map(|i| i as f32).collect();
    table[..TABLE_WIDTH].fill(f32::INFINITY);
    let Some(floors) = filled(&table) else { return };
    let codes = vec![3; 2 * 40];
    assert!(floors.are_there() && kept(&floors, f32::MAX, &codes, 2).is_empty());
    assert_eq!(kept(&floors, f32::INFINITY, &codes, 2).len(), 40);
}
