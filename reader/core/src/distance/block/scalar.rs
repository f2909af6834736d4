//! The portable level: plain loops that define what the other levels must return.

use super::least::least_portable;
use super::level::{CHUNK, CHUNK_BYTES, Level, PANEL_POINTS, norm_portable};

/// The kernel without any instruction-set requirement.
pub static LEVEL: Level = Level::plain("scalar", 1, &[tile], norm_portable, least_portable);

/// # Safety
/// What `Tile` says.
unsafe fn tile(
    query: *const i8,
    panel: *const u8,
    offsets: *const i32,
    chunks: usize,
    limits: *const i32,
    scores: *mut i32,
    hits: *mut u16,
) -> bool {
    let mut sums = [0i32; PANEL_POINTS];
    for c in 0..chunks {
        // SAFETY: the query holds `chunks` chunks of four components, the panel as many of 64 bytes.
        let (four, bytes) = unsafe {
            (
                &*query.add(c * CHUNK).cast::<[i8; CHUNK]>(),
                &*panel.add(c * CHUNK_BYTES).cast::<[[u8; CHUNK]; PANEL_POINTS]>(),
            )
        };
        for (sum, point) in sums.iter_mut().zip(bytes) {
            *sum += (0..CHUNK).map(|j| i32::from(point[j]) * i32::from(four[j])).sum::<i32>();
        }
    }
    let mut found = 0u16;
    for (lane, sum) in sums.into_iter().enumerate() {
        // SAFETY: 16 offsets and scores, one limit.
        unsafe {
            let score = *offsets.add(lane) - 2 * sum;
            *scores.add(lane) = score;
            found |= u16::from(score <= *limits) << lane;
        }
    }
    // SAFETY: one panel of one row.
    unsafe { *hits = found };
    found != 0
}
