//! Reading blocks of an index's files behind one trait.
//!
//! An engine belongs to one search thread, owns the buffers that are read into and has one buffer for each read that
//! may be in flight. The contract of every engine: a completed read got all of its bytes (short reads are
//! continued, interrupted ones repeated), anything else is an error that names file and page, and dropping an
//! engine waits for the reads in flight. After an error an engine is good for being dropped only.
//!
//! | file | engine |
//! |---|---|
//! | `uring.rs`, `ring.rs` | io_uring, also with a polling thread of the kernel (SQPOLL) |
//! | `pread.rs` | a pool of threads that call pread |
//! | `synchronous.rs` | one block after the other, from one of the two that follow |
//! | `mmap.rs`, `mapping.rs` | a map of the file |
//! | `../remap.rs` | pages composed of nodes in memory |
//! | `simulated.rs`, `profile.rs`, `pause.rs` | a modelled device |
//! | `none.rs` | none: what is searched is in memory |
//!
//! `choice.rs` picks one by name, `progress.rs` decides what each result of a read means.

mod buffers;
mod choice;
mod file;
mod flight;
mod mapping;
mod mmap;
mod none;
mod pause;
mod pread;
mod profile;
mod progress;
#[cfg(target_os = "linux")]
mod ring;
mod simulated;
mod synchronous;
#[cfg(target_os = "linux")]
mod uring;

pub use choice::EngineChoice;
pub use profile::{Model, Profile};

pub(crate) use file::{Access, DataFile};
pub(crate) use none::NoEngine;
pub(crate) use synchronous::Fill;

use crate::error::Result;
use flight::Flights;

/// Reads whole blocks into numbered buffers; see the module's contract.
pub(crate) trait Engine: Send {
    /// Number of buffers.
    fn slots(&self) -> usize;

    /// Bytes of a buffer.
    fn slot_bytes(&self) -> usize;

    /// Asks for the block of `bytes` bytes that starts at `unit` into the front of buffer `slot`, which is at least as
    /// long and must not be in flight. It may start at the next [`Engine::flush`] only.
    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()>;

    /// Asks for a block that fills the buffer.
    fn queue(&mut self, slot: usize, unit: u64) -> Result<()> {
        self.queue_part(slot, unit, self.slot_bytes())
    }

    /// Starts everything that was queued.
    fn flush(&mut self) -> Result<()>;

    /// Starts everything that was queued and appends the slots of all finished reads to `done`; blocks until there
    /// is one unless nothing is in flight.
    fn reap(&mut self, done: &mut Vec<usize>) -> Result<()>;

    /// Starts everything that was queued and appends the slots of finished reads to `done`; never blocks for a
    /// device (but a synchronous engine, which knows no other way), and makes no system call where there is nothing to do.
    fn poll(&mut self, done: &mut Vec<usize>) -> Result<()>;

    /// Whether a thread that has nothing else to do learns of a finished read sooner by polling than by being woken up.
    fn rewards_polling(&self) -> bool {
        false
    }

    /// Content of a buffer that is not in flight.
    fn buffer(&self, slot: usize) -> &[u8];
}

/// Appends the slots of good reads to `done`; gives the first error once all are taken.
fn take_all(
    finished: impl Iterator<Item = (usize, Result<()>)>,
    flights: &mut Flights,
    done: &mut Vec<usize>,
) -> Result<()> {
    let mut first = Ok(());
    for (slot, result) in finished {
        flights.finish(slot);
        match result {
            Ok(()) => done.push(slot),
            Err(e) => first = first.and(Err(e)),
        }
    }
    first
}

#[cfg(test)]
mod tests;
