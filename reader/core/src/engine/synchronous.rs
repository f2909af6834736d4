//! A synchronous engine: the calling thread reads one block after the other when it flushes.

use std::sync::Arc;

use super::buffers::Buffers;
use super::contract::{Engine, Finished, Flights, take_all};
use super::file::DataFile;
use crate::error::Result;

/// Where the blocks come from.
pub trait Fill: Send + Sync {
    /// Fills `block` with the block that starts at `unit` of the file.
    fn fill(&self, unit: u64, block: &mut [u8]) -> Result<()>;
}

/// An engine that reads when it is flushed.
pub struct Synchronous<S> {
    source: S,
    buffers: Buffers,
    flights: Flights,
    queued: Vec<(usize, u64, usize)>,
    finished: Vec<(usize, Result<()>)>,
}

impl<S: Fill> Synchronous<S> {
    /// An engine that reads from `source` into `buffers`.
    pub fn new(source: S, buffers: Buffers) -> Self {
        let flights = Flights::new(buffers.slots());
        Synchronous { source, buffers, flights, queued: Vec::new(), finished: Vec::new() }
    }
}

impl<S: Fill> Engine for Synchronous<S> {
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
        for (slot, unit, bytes) in self.queued.drain(..) {
            let address = self.buffers.address(slot);
            // SAFETY: initialised memory of this buffer alone; it is in flight, so nothing else touches it.
            let block = unsafe { std::slice::from_raw_parts_mut(address, bytes) };
            self.finished.push((slot, self.source.fill(unit, block)));
        }
        Ok(())
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.poll_each(finished)
    }

    fn poll_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.flush()?;
        take_all(self.finished.drain(..), &mut self.flights, finished);
        Ok(())
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        // SAFETY: no read into it is in flight.
        unsafe { self.buffers.content(slot) }
    }
}

/// A file that was opened as a map: the synchronous baseline of the E2LSH-on-storage study.
///
/// A block is copied out of the map when it is flushed, and the thread waits for the page fault. A search on bare memory
/// would not make this copy. It is needed because the bytes of a map may change or vanish between the check of a
/// checksum and their use.
pub struct Mapped(pub Arc<DataFile>);

impl Fill for Mapped {
    fn fill(&self, unit: u64, block: &mut [u8]) -> Result<()> {
        // SAFETY: the block is the caller's.
        unsafe { self.0.read_block(&*self.0, block.as_mut_ptr(), block.len(), unit) }
    }
}

impl Fill for Arc<dyn Fill> {
    fn fill(&self, unit: u64, block: &mut [u8]) -> Result<()> {
        (**self).fill(unit, block)
    }
}
