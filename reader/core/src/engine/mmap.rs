//! Reads answered one after the other by a map of the file: the synchronous baseline of the E2LSH-on-storage study.
//!
//! A block is copied out of the map when it is flushed, and the thread waits for the page fault. The copy, which a
//! search on bare memory would not make, is there because the bytes of a map may change or vanish between the check
//! of a checksum and their use.

use std::sync::Arc;

use super::buffers::Buffers;
use super::file::DataFile;
use super::flight::Flights;
use super::{Engine, take_all};
use crate::error::Result;

/// See the module's head.
pub struct Mmap {
    file: Arc<DataFile>,
    buffers: Buffers,
    flights: Flights,
    queued: Vec<(usize, u64)>,
    finished: Vec<(usize, Result<()>)>,
}

impl Mmap {
    /// Needs a file that was opened as a map.
    pub fn new(file: Arc<DataFile>, buffers: Buffers) -> Self {
        let flights = Flights::new(buffers.slots());
        Mmap { file, buffers, flights, queued: Vec::new(), finished: Vec::new() }
    }
}

impl Engine for Mmap {
    fn slots(&self) -> usize {
        self.buffers.slots()
    }

    fn queue(&mut self, slot: usize, page: u64) -> Result<()> {
        self.flights.start(slot);
        self.queued.push((slot, page));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        for (slot, page) in self.queued.drain(..) {
            let (address, bytes) = (self.buffers.address(slot), self.buffers.slot_bytes());
            // SAFETY: the slot is in flight, so nobody else touches its buffer.
            let result = unsafe { self.file.read_block(&*self.file, address, bytes, page) };
            self.finished.push((slot, result));
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<usize>) -> Result<()> {
        self.poll(done)
    }

    fn poll(&mut self, done: &mut Vec<usize>) -> Result<()> {
        self.flush()?;
        take_all(self.finished.drain(..), &mut self.flights, done)
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        // SAFETY: no read into it is in flight.
        unsafe { self.buffers.content(slot) }
    }
}
