//! Waiting for a point in time more precisely than the system's sleep.

use std::time::{Duration, Instant};

/// A sleep ends late by the timer's slack and the way back to a processor: 50 to 130 microseconds on most machines.
const SLEEP_ENDS_LATE: Duration = Duration::from_micros(150);
/// Others may still have the processor before this.
const YIELD_BEFORE: Duration = Duration::from_micros(20);

/// Returns at `due`, or a few microseconds after it unless another thread has the processor. The last 150 microseconds
/// are spent looking at the clock, so waiting takes processor time.
pub fn sleep_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        } else if left > SLEEP_ENDS_LATE {
            std::thread::sleep(left - SLEEP_ENDS_LATE);
        } else if left > YIELD_BEFORE {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
