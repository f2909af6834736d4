//! The portable level: plain loops that define what the other levels must return.

use super::level::{GROUP, Level, TILE_ROWS};

/// The kernel without any instruction-set requirement.
pub static LEVEL: Level = Level { name: "scalar", tile };

/// # Safety
/// What `Tile` says.
unsafe fn tile(
    rows: *const f32,
    centres: *const f32,
    halves: *const f32,
    width: usize,
    groups: usize,
    nearest: *mut u8,
) {
    let (mut least, mut index) = ([f32::INFINITY; TILE_ROWS], [0u8; TILE_ROWS]);
    for c in 0..groups * GROUP {
        // SAFETY: a half for every centre.
        let mut scores = [unsafe { *halves.add(c) }; TILE_ROWS];
        for d in 0..width {
            // SAFETY: four components of a group, and 64 of the rows, for each of `width`.
            let (y, components) = unsafe {
                let y = *centres.add((c / GROUP * width + d) * GROUP + c % GROUP);
                (y, &*rows.add(d * TILE_ROWS).cast::<[f32; TILE_ROWS]>())
            };
            scores.iter_mut().zip(components).for_each(|(score, &x)| *score = x.mul_add(y, *score));
        }
        for ((score, least), index) in scores.into_iter().zip(&mut least).zip(&mut index) {
            if score < *least {
                (*least, *index) = (score, c as u8);
            }
        }
    }
    // SAFETY: 64 indexes.
    unsafe { nearest.cast::<[u8; TILE_ROWS]>().write_unaligned(index) };
}
