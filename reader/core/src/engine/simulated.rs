//! A simulated device: real bytes, delivered when the device of a profile would deliver them.
//!
//! The device takes reads up in the order of their submission, and starts each as soon as the one before it occupies
//! it no more: for 1 / IOPS or for the read's share of the bandwidth, whichever is longer. A read is complete a latency
//! after its start. Latencies are drawn from the profile's distribution by a generator of fixed seed, one for each
//! read in that order; they depend neither on each other nor on the load, but for the wait to be started.
//!
//! A thread that waits for a read cannot be stopped before it arrives. By the bounds of a profile that is a second at
//! most after its start, and each 4 KiB read that was submitted before it, by any thread, puts that off by a tenth of
//! a second at most.
//!
//! The bytes come through the page cache, at submission. A page that is not cached yet takes its real time, and no
//! completion is earlier than that: study a file that was read once and fits in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Engine;
use super::buffers::Buffers;
use super::file::DataFile;
use super::flight::Flights;
use super::pause::sleep_until;
use super::profile::{Model, Profile};
use crate::error::Result;
use crate::random::Random;

const SEED: u64 = 1;

/// The device of one opened index: all of its engines queue here.
pub struct Device {
    /// From the profile.
    pub name: String,
    /// Where times count from.
    origin: Instant,
    queue: Mutex<Queue>,
}

struct Queue {
    model: Model,
    /// When it can start another read, in seconds since the origin.
    next_free_s: f64,
    random: Random,
}

impl Device {
    /// A device that is idle.
    pub fn new(profile: Profile) -> Self {
        let queue = Queue { model: profile.model, next_free_s: 0.0, random: Random::new(SEED) };
        Device { name: profile.name, origin: Instant::now(), queue: Mutex::new(queue) }
    }

    /// When a read of `bytes` bytes that is submitted at `now_s` completes, both in seconds since the origin.
    pub fn completion_s(&self, now_s: f64, bytes: usize) -> f64 {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let start_s = queue.next_free_s.max(now_s);
        queue.next_free_s = start_s + queue.model.occupied_s(bytes);
        let fraction = queue.random.fraction();
        start_s + queue.model.latency_us(fraction) * 1e-6
    }
}

/// See the module's head.
pub struct Simulated {
    device: Arc<Device>,
    file: Arc<DataFile>,
    buffers: Buffers,
    flights: Flights,
    queued: Vec<(usize, u64, usize)>,
    /// Completion times and slots, the earliest on top.
    pending: BinaryHeap<Reverse<(Duration, usize)>>,
}

impl Simulated {
    /// An engine of `device`.
    pub fn new(device: Arc<Device>, file: Arc<DataFile>, buffers: Buffers) -> Self {
        let flights = Flights::new(buffers.slots());
        Simulated { device, file, buffers, flights, queued: Vec::new(), pending: BinaryHeap::new() }
    }

    fn take_due(&mut self, done: &mut Vec<usize>) {
        if self.pending.is_empty() {
            return;
        }
        let now = self.device.origin.elapsed();
        while let Some(&Reverse((due, slot))) = self.pending.peek()
            && due <= now
        {
            self.pending.pop();
            self.flights.finish(slot);
            done.push(slot);
        }
    }
}

impl Engine for Simulated {
    fn slots(&self) -> usize {
        self.buffers.slots()
    }

    fn slot_bytes(&self) -> usize {
        self.buffers.slot_bytes()
    }

    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()> {
        self.buffers.check_fits(bytes);
        self.flights.start(slot);
        self.queued.push((slot, unit, bytes));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        let now_s = self.device.origin.elapsed().as_secs_f64();
        for &(slot, _, bytes) in &self.queued {
            let due = Duration::from_secs_f64(self.device.completion_s(now_s, bytes));
            self.pending.push(Reverse((due, slot)));
        }
        self.queued.drain(..).try_for_each(|(slot, unit, bytes)| {
            // SAFETY: the slot is in flight, so nobody else touches its buffer, which is long enough.
            unsafe { self.file.read_block(&*self.file, self.buffers.address(slot), bytes, unit) }
        })
    }

    fn reap(&mut self, done: &mut Vec<usize>) -> Result<()> {
        let before = done.len();
        self.poll(done)?;
        while done.len() == before
            && let Some(&Reverse((due, _))) = self.pending.peek()
        {
            sleep_until(self.device.origin + due);
            self.take_due(done);
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<usize>) -> Result<()> {
        self.flush()?;
        self.take_due(done);
        Ok(())
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        // SAFETY: no read into it is in flight.
        unsafe { self.buffers.content(slot) }
    }
}
