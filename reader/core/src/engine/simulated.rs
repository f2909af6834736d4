//! A simulated device: real bytes, delivered when the device of a profile would deliver them.
//!
//! The device starts reads in the order of their submission. Each read occupies it for 1 / IOPS, or for the read's
//! share of the bandwidth, whichever is longer, and the next one starts afterwards. A read completes one latency after
//! its start. A generator of fixed seed draws the latencies from the profile's distribution, one for each read in that
//! order. They depend neither on each other nor on the load, which only delays the start.
//!
//! The bounds of a profile see to it that reads arrive: a second after their start at most, and each 4 KiB read that any
//! thread submitted before delays the start by a tenth of a second at most.
//!
//! The files are in memory, and a read hands over the bytes where they are: no system call, no copy. Submitting a read
//! takes as much processor time as the profile says, `request_us`. In that time its bytes are prefetched into the
//! cache, where real devices write by themselves (Intel's DDIO), and the rest is spent looking at the clock. Taking a
//! finished read costs about 10 nanoseconds more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::contract::{Engine, Finished, Flights, LONGEST_WAIT};
use super::file::{DataFile, Hold};
use super::profile::{Model, Profile};
use crate::distance::prefetch_row;
use crate::error::Result;
use crate::random::Random;

const SEED: u64 = 1;
/// A sleep ends late, by the timer's slack and the time to get a processor again: 50 to 130 microseconds on most
/// machines.
const SLEEP_ENDS_LATE: Duration = Duration::from_micros(150);
/// Until this long before the end other threads may have the processor.
const YIELD_BEFORE: Duration = Duration::from_micros(20);

/// The device of one opened index: all of its engines queue here.
pub struct Device {
    /// From the profile.
    pub name: String,
    /// Processor time of a request.
    request: Duration,
    /// Where times count from.
    origin: Instant,
    queue: Mutex<Queue>,
}

struct Queue {
    model: Model,
    /// Every read's, if they are all the same.
    latency_s: Option<f64>,
    /// When it can start another read, in seconds since the origin.
    next_free_s: f64,
    random: Random,
}

impl Queue {
    /// When a read of `bytes` bytes that is submitted at `now_s` completes, both in seconds since the origin.
    fn completion_s(&mut self, now_s: f64, bytes: usize) -> f64 {
        let start_s = self.next_free_s.max(now_s);
        self.next_free_s = start_s + self.model.occupied_s(bytes);
        start_s + self.latency_s.unwrap_or_else(|| self.model.latency_us(self.random.fraction()) * 1e-6)
    }
}

impl Device {
    /// A device that is idle.
    pub fn new(profile: Profile) -> Self {
        let Profile { name, model } = profile;
        let (least, most) = (model.latency_us(0.0), model.latency_us(1.0));
        let latency_s = (least == most).then_some(least * 1e-6);
        let request = Duration::from_secs_f64(model.request_us.unwrap_or(0.0) * 1e-6);
        let queue = Queue { model, latency_s, next_free_s: 0.0, random: Random::new(SEED) };
        Device { name, request, origin: Instant::now(), queue: Mutex::new(queue) }
    }

    /// Appends to `out` when reads of so many bytes that are submitted at `now_s` complete, in seconds since the origin.
    pub fn completions_s(&self, now_s: f64, bytes: impl Iterator<Item = usize>, mut out: impl FnMut(f64)) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.for_each(|bytes| out(queue.completion_s(now_s, bytes)));
    }
}

/// An engine of a simulated device; see the module's documentation.
pub struct Simulated {
    device: Arc<Device>,
    file: Arc<DataFile>,
    slot_bytes: usize,
    flights: Flights,
    /// Of each slot, its last read.
    reads: Vec<Hold>,
    queued: Vec<usize>,
    /// Completion times and slots, ascending: a constant latency only ever appends.
    pending: VecDeque<(Duration, usize)>,
}

impl Simulated {
    /// An engine of `device` over a file that is held in memory.
    pub fn new(device: Arc<Device>, file: Arc<DataFile>, slots: usize, slot_bytes: usize) -> Self {
        let (flights, reads) = (Flights::new(slots), vec![Hold::default(); slots]);
        Simulated { device, file, slot_bytes, flights, reads, queued: Vec::new(), pending: VecDeque::new() }
    }

    fn take_due(&mut self, finished: &mut Finished) {
        if self.pending.is_empty() {
            return;
        }
        let now = self.device.origin.elapsed();
        while let Some(&(due, slot)) = self.pending.front()
            && due <= now
        {
            self.pending.pop_front();
            self.flights.finish(slot);
            finished.done.push(slot);
        }
    }
}

/// Puts one more into its place.
fn insert(pending: &mut VecDeque<(Duration, usize)>, due: Duration, slot: usize) {
    match pending.back() {
        Some(&last) if last > (due, slot) => {
            let at = pending.partition_point(|&before| before < (due, slot));
            pending.insert(at, (due, slot));
        }
        _ => pending.push_back((due, slot)),
    }
}

impl Engine for Simulated {
    fn slots(&self) -> usize {
        self.reads.len()
    }

    fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()> {
        assert!(bytes <= self.slot_bytes, "{bytes} bytes into a buffer of {}", self.slot_bytes);
        let hold = self.file.hold_of(unit, bytes)?;
        self.flights.start(slot);
        self.reads[slot] = hold;
        self.queued.push(slot);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let now_s = begin.saturating_duration_since(self.device.origin).as_secs_f64();
        let (pending, mut slots) = (&mut self.pending, self.queued.iter());
        let bytes = self.queued.iter().map(|&slot| self.file.held(self.reads[slot]).len());
        self.device.completions_s(now_s, bytes, |due_s| {
            slots.by_ref().take(1).for_each(|&slot| insert(pending, Duration::from_secs_f64(due_s), slot));
        });
        if !self.device.request.is_zero() {
            for &slot in &self.queued {
                let content = self.file.held(self.reads[slot]);
                prefetch_row(content.as_ptr(), content.len());
            }
            let until = self.device.request * self.queued.len() as u32;
            while begin.elapsed() < until {}
        }
        self.queued.clear();
        Ok(())
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        let before = finished.done.len();
        self.poll_each(finished)?;
        if finished.done.len() == before
            && let Some(&(due, _)) = self.pending.front()
        {
            sleep_until((self.device.origin + due).min(Instant::now() + LONGEST_WAIT));
            self.take_due(finished);
        }
        Ok(())
    }

    fn poll_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.flush()?;
        self.take_due(finished);
        Ok(())
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        self.file.held(self.reads[slot])
    }
}

/// Waits until `due`, more precisely than the system's sleep: it returns at most a few microseconds late, unless
/// another thread has the processor. The last 150 microseconds are spent looking at the clock, so waiting takes
/// processor time.
fn sleep_until(due: Instant) {
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
