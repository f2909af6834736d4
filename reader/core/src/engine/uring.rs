//! io_uring: registered files and buffers, one submission for all reads that were queued.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use io_uring::{opcode, squeue, types};

use super::buffers::Buffers;
use super::contract::{Engine, Finished, Flights, PATIENCE};
use super::file::DataFile;
use super::progress::{Next, Progress, REFUSAL_PAUSE};
use super::ring::Ring;
use crate::error::{Error, Result};

/// The kernel reads no more at once.
const MAX_READ_BYTES: usize = 1 << 30;

/// See the module's head.
pub struct Uring {
    ring: Ring,
    file: Arc<DataFile>,
    /// Taken out, and leaked, only if the kernel does not finish writing into them.
    buffers: Option<Buffers>,
    fds: Vec<RawFd>,
    reads: Vec<Progress>,
    flights: Flights,
    /// Reads that the kernel refused, until they go back into the queue.
    turned_away: Vec<usize>,
    registered_files: bool,
    registered_buffers: bool,
    /// What the kernel refused to register, and why, so that each read takes a little longer.
    refusal: Option<String>,
    process: u32,
}

impl Uring {
    /// Takes a ring with room for every buffer.
    pub fn new(ring: Ring, file: Arc<DataFile>, buffers: Buffers) -> Self {
        // SAFETY: drop waits for the reads in flight, or keeps the buffers for good.
        let (of_files, of_buffers) = unsafe { ring.register(&file.fds(), buffers.as_iovec()) };
        let (registered_files, registered_buffers) = (of_files.is_ok(), of_buffers.is_ok());
        let refused = [("files", of_files), ("buffers", of_buffers)];
        let refusal = refused.into_iter().find_map(|(what, outcome)| {
            outcome.err().map(|e| format!("io_uring reads without registered {what}: {e}"))
        });
        let (slots, process) = (buffers.slots(), std::process::id());
        let (reads, flights) = (vec![Progress::default(); slots], Flights::new(slots));
        let (fds, buffers, turned_away) = (file.fds(), Some(buffers), Vec::new());
        Uring {
            ring,
            file,
            buffers,
            fds,
            reads,
            flights,
            turned_away,
            registered_files,
            registered_buffers,
            refusal,
            process,
        }
    }

    /// Why reads are not as fast as they could be, if so.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn buffers(&self) -> &Buffers {
        self.buffers.as_ref().expect("taken by drop only")
    }

    fn entry(&self, slot: usize) -> squeue::Entry {
        let read = &self.reads[slot];
        let address = self.buffers().address(slot).wrapping_add(read.filled());
        let bytes = read.missing().min(MAX_READ_BYTES) as u32;
        let (i, offset) = self.file.locate(self.file.offset_of(read.unit) + read.filled() as u64);
        let (fixed, fd) = (types::Fixed(i as u32), types::Fd(self.fds[i]));
        let entry = match (self.registered_files, self.registered_buffers) {
            (true, true) => opcode::ReadFixed::new(fixed, address, bytes, 0).offset(offset).build(),
            (false, true) => opcode::ReadFixed::new(fd, address, bytes, 0).offset(offset).build(),
            (true, false) => opcode::Read::new(fixed, address, bytes).offset(offset).build(),
            (false, false) => opcode::Read::new(fd, address, bytes).offset(offset).build(),
        };
        entry.user_data(slot as u64)
    }

    fn push(&mut self, slot: usize) -> Result<()> {
        let entry = self.entry(slot);
        // SAFETY: the buffer belongs to this read until it completes, and outlives it.
        unsafe { self.ring.push(&entry) }.map_err(|e| {
            self.flights.finish(slot);
            self.refused(e)
        })
    }

    fn enter(&mut self, want: u32) -> Result<()> {
        self.ring.enter(want).map_err(|e| self.refused(e))
    }

    fn refused(&self, source: io::Error) -> Error {
        Error::io(&self.file.path, "submit reads to io_uring", source)
    }

    /// Takes the finished reads; unfinished ones go back into the queue, refused ones together after a pause.
    fn collect(&mut self, finished: &mut Finished) -> Result<()> {
        while let Some(entry) = self.ring.next_completion() {
            self.take(entry.user_data() as usize, entry.result(), finished)?;
        }
        if !self.turned_away.is_empty() {
            std::thread::sleep(REFUSAL_PAUSE);
        }
        while let Some(slot) = self.turned_away.pop() {
            self.push(slot)?;
        }
        Ok(())
    }

    /// Takes what the kernel says of a read: its bytes, or a negative error number.
    fn take(&mut self, slot: usize, result: i32, finished: &mut Finished) -> Result<()> {
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        let direct = self.file.is_direct_at(self.reads[slot].unit);
        match self.reads[slot].take(result, direct) {
            Ok(Next::Done) => {
                self.flights.finish(slot);
                finished.done.push(slot);
            }
            Ok(Next::Again) => self.push(slot)?,
            Ok(Next::AgainLater) => self.turned_away.push(slot),
            Err(fault) => {
                self.flights.finish(slot);
                finished.failed.push((slot, self.file.fault(self.reads[slot].unit, fault)));
            }
        }
        Ok(())
    }
}

impl Engine for Uring {
    fn slots(&self) -> usize {
        self.reads.len()
    }

    fn slot_bytes(&self) -> usize {
        self.buffers().slot_bytes()
    }

    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()> {
        self.buffers().check_fits(bytes);
        self.flights.start(slot);
        self.reads[slot] = Progress::new(unit, bytes);
        self.push(slot)
    }

    fn flush(&mut self) -> Result<()> {
        if self.ring.has_unsubmitted() { self.enter(0) } else { Ok(()) }
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.reap_several(1, finished)
    }

    fn reap_several(&mut self, least: usize, finished: &mut Finished) -> Result<()> {
        let least = if self.ring.limits_waits() { least } else { 1 }; // one may come, and the others hang
        let before = self.flights.count();
        self.collect(finished)?;
        if self.flights.count() == before && before > 0 {
            self.enter(least.min(before) as u32)?;
            self.collect(finished)?;
        }
        // Reads that go on.
        self.flush()
    }

    fn poll_each(&mut self, finished: &mut Finished) -> Result<()> {
        if self.ring.has_unsubmitted() || self.ring.has_put_off() {
            self.enter(0)?;
        }
        self.collect(finished)?;
        // Reads that go on.
        self.flush()
    }

    fn rewards_polling(&self) -> bool {
        true
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        // SAFETY: no read into it is in flight.
        unsafe { self.buffers().content(slot) }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // A forked child shares the ring with its parent and must not take the parent's completions.
        let owns_ring = std::process::id() == self.process;
        let (mut in_flight, began) = (self.flights.count() - self.turned_away.len(), Instant::now());
        while owns_ring && in_flight > 0 && began.elapsed() < PATIENCE {
            if self.ring.enter(1).is_err() {
                break;
            }
            while self.ring.next_completion().is_some() {
                in_flight -= 1;
            }
        }
        if in_flight > 0 {
            // The kernel may still write into them: keep the memory for good.
            std::mem::forget(self.buffers.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;
    use crate::common::Scratch;
    use crate::pagefile::PAGE_BYTES;

    #[test]
    fn one_pause_follows_all_reads_that_the_kernel_refuses() {
        const N: usize = 512;
        let ring = match Ring::new(N) {
            Ok(ring) => ring,
            Err(e) => return eprintln!("skipped: {e}"),
        };
        let scratch = Scratch::new();
        let path = scratch.0.join("pages");
        let pages: Vec<u8> = (0..N * PAGE_BYTES).map(|i| (i / PAGE_BYTES) as u8).collect();
        fs::write(&path, &pages).unwrap();
        let file = Arc::new(DataFile::of(File::open(&path).unwrap()));
        let mut engine = Uring::new(ring, file, Buffers::new(N, PAGE_BYTES).unwrap());
        let (mut finished, began) = (Finished::default(), Instant::now());
        for slot in 0..N {
            engine.flights.start(slot);
            engine.reads[slot] = Progress::new(slot as u64, PAGE_BYTES);
            engine.take(slot, -libc::EAGAIN, &mut finished).unwrap();
        }
        engine.collect(&mut finished).unwrap();
        assert!(began.elapsed() < Duration::from_millis(256), "{:?} for {N} refusals", began.elapsed());
        while finished.done.len() < N {
            engine.reap_each(&mut finished).unwrap();
        }
        (0..N).for_each(|slot| assert_eq!(engine.buffer(slot), &pages[slot * PAGE_BYTES..][..PAGE_BYTES]));
    }
}
