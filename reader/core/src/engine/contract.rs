//! The contract of every engine.
//!
//! One thread uses an engine at a time; another one may take it over when no read is in flight. It owns the buffers that
//! are read into and has one buffer for each read that may be in flight. A completed read has all of its bytes: short
//! reads are continued, and interrupted ones repeated. Any other read has failed, with an error that names file and page;
//! the engine goes on. Dropping an engine waits for the reads in flight, at most for [`PATIENCE`]: memory that a read may
//! still be written into is kept for good. After an error of the engine itself it can only be dropped.

use std::ops::Range;
use std::time::Duration;

use crate::error::{Error, Result};

/// Longest wait of [`Engine::reap`] for a read, so that a caller who wants to stop need not wait for a device that hangs.
/// (Linux before 5.11 cannot end a wait for io_uring.)
pub const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How long an engine that ends waits for reads in flight.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Reads that finished.
#[derive(Debug, Default)]
pub struct Finished {
    /// Buffers that hold what was asked for.
    pub done: Vec<usize>,
    /// Buffers that do not, and why.
    pub failed: Vec<(usize, Error)>,
}

impl Finished {
    /// Takes the outcome of a read.
    pub fn take(&mut self, slot: usize, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.done.push(slot),
            Err(error) => self.failed.push((slot, error)),
        }
    }

    /// Whether no read finished.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.failed.is_empty()
    }

    /// Moves the slots to `done`, or says why a read failed.
    fn hand_over(mut self, done: &mut Vec<usize>) -> Result<()> {
        done.append(&mut self.done);
        self.failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Reads whole blocks into numbered buffers; see the module's contract.
pub(crate) trait Engine: Send {
    /// Number of buffers.
    fn slots(&self) -> usize;

    /// Bytes of a buffer.
    fn slot_bytes(&self) -> usize;

    /// Bytes of memory that all of them take.
    fn bytes(&self) -> usize {
        self.slots() * self.slot_bytes()
    }

    /// Asks for the block of `bytes` bytes that starts at `unit` into the front of buffer `slot`, which is at least as
    /// long and must not be in flight. It may start at the next [`Engine::flush`] only.
    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()>;

    /// Asks for a block that fills the buffer.
    fn queue(&mut self, slot: usize, unit: u64) -> Result<()> {
        self.queue_part(slot, unit, self.slot_bytes())
    }

    /// Starts everything that was queued.
    fn flush(&mut self) -> Result<()>;

    /// Starts everything that was queued and takes all finished reads. If there is none and some are in flight, this
    /// waits for one, at most for about [`LONGEST_WAIT`]: then it may take none.
    fn reap_each(&mut self, finished: &mut Finished) -> Result<()>;

    /// As [`Engine::reap_each`], for a caller that has nothing to do before `least` reads have finished: where the engine
    /// can, a wait is for as many.
    fn reap_several(&mut self, _least: usize, finished: &mut Finished) -> Result<()> {
        self.reap_each(finished)
    }

    /// Starts everything that was queued and takes the finished reads; makes no system call where there is nothing to
    /// do, and never blocks for a device, unless the engine is synchronous, or has blocks of a store on a local disk:
    /// then it reads a few of them.
    fn poll_each(&mut self, finished: &mut Finished) -> Result<()>;

    /// As [`Engine::reap_each`]; appends the slots to `done`, or returns the error of a read that failed.
    fn reap(&mut self, done: &mut Vec<usize>) -> Result<()> {
        let mut finished = Finished::default();
        self.reap_each(&mut finished)?;
        finished.hand_over(done)
    }

    /// As [`Engine::poll_each`]; appends the slots to `done`, or returns the error of a read that failed.
    #[cfg(test)]
    fn poll(&mut self, done: &mut Vec<usize>) -> Result<()> {
        let mut finished = Finished::default();
        self.poll_each(&mut finished)?;
        finished.hand_over(done)
    }

    /// Whether an idle thread learns of a finished read sooner by polling than by being woken up.
    fn rewards_polling(&self) -> bool {
        false
    }

    /// Whether reads are so slow that a query counts those that follow one another.
    fn counts_rounds(&self) -> bool {
        false
    }

    /// Whether the read counts that finished last into a buffer: its block was not at hand.
    fn takes_round(&self, _slot: usize) -> bool {
        true
    }

    /// Nobody looks at the content of a buffer again: its memory may go. One in flight stays.
    fn release(&mut self, _slot: usize) {}

    /// Forgets what is in memory of the file that a failed check names; whether other bytes may be read then.
    fn forget(&mut self, _error: &Error) -> bool {
        false
    }

    /// Whether blocks that are asked for into these buffers from now on are read even if they are at hand.
    fn read_anew(&mut self, _slots: Range<usize>, _anew: bool) {}

    /// Content of a buffer that is not in flight.
    fn buffer(&self, slot: usize) -> &[u8];
}

/// Takes the outcomes of reads, which are in flight no more.
pub fn take_all(outcomes: impl Iterator<Item = (usize, Result<()>)>, flights: &mut Flights, finished: &mut Finished) {
    for (slot, outcome) in outcomes {
        flights.finish(slot);
        finished.take(slot, outcome);
    }
}

/// The buffers with a read in flight: the device writes into them, so nothing else may touch them.
///
/// Asking for a buffer in a wrong state is a bug of the caller, and panics.
pub struct Flights {
    flying: Vec<bool>,
    count: usize,
}

impl Flights {
    /// `slots` buffers, all idle.
    pub fn new(slots: usize) -> Self {
        Flights { flying: vec![false; slots], count: 0 }
    }

    /// Reads in flight.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A read into the buffer begins.
    pub fn start(&mut self, slot: usize) {
        self.check_idle(slot);
        self.flying[slot] = true;
        self.count += 1;
    }

    /// The read into the buffer ended.
    pub fn finish(&mut self, slot: usize) {
        assert!(self.flying[slot], "buffer {slot} is not in flight");
        self.flying[slot] = false;
        self.count -= 1;
    }

    /// Whether a read into the buffer is in flight.
    pub fn is_flying(&self, slot: usize) -> bool {
        self.flying[slot]
    }

    /// Panics if a read into the buffer is in flight.
    pub fn check_idle(&self, slot: usize) {
        assert!(!self.flying[slot], "buffer {slot} is in flight");
    }
}
