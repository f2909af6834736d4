//! io_uring: registered file and buffers, one submission for all reads that were queued.

use std::io;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use super::buffers::Buffers;
use super::{DataFile, Engine};
use crate::error::{Error, Result};
use crate::pagefile::PAGE_BYTES;

/// The kernel's largest submission queue.
const MAX_ENTRIES: usize = 32768;

/// Progress of the read into one buffer.
#[derive(Clone, Copy, Default)]
struct Progress {
    page: u64,
    filled: usize,
}

/// See the module's head.
pub struct Uring {
    ring: IoUring,
    file: Arc<DataFile>,
    /// Taken out, and leaked, only if the kernel cannot be asked to finish writing into them.
    buffers: Option<Buffers>,
    progress: Vec<Progress>,
    registered_file: bool,
    registered_buffers: bool,
    in_flight: usize,
    unsubmitted: usize,
    process: u32,
}

/// Whether a ring can be set up at all.
pub fn probe() -> io::Result<()> {
    let mut ring = new_ring(1)?;
    // Some containers let a ring be set up and forbid its use: send one empty request through.
    // SAFETY: a no-op touches no memory.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    ring.completion().next().map(drop).ok_or_else(|| io::Error::other("a request got no answer"))
}

/// A ring whose completions run on the submitting thread when it asks (kernel 6.1), or a plain one.
fn new_ring(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    // The flag says when there are completions to run, so that looking for some costs no system call.
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    match builder.build(entries) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        ring => ring,
    }
}

impl Uring {
    /// Sets up a ring with room for every buffer; to be used by the calling thread only.
    pub fn new(file: Arc<DataFile>, buffers: Buffers) -> Result<Self> {
        let entries = buffers.slots().next_power_of_two().min(MAX_ENTRIES) as u32;
        let ring = new_ring(entries).map_err(|e| Error::io(&file.path, "set up io_uring", e))?;
        // Registration saves work a read; limits on locked memory may refuse it, and reads work without.
        let registered_file = ring.submitter().register_files(&[file.fd()]).is_ok();
        // SAFETY: the buffers outlive the ring's reads: drop waits for them.
        let registered_buffers = unsafe { ring.submitter().register_buffers(&[buffers.as_iovec()]) }.is_ok();
        let progress = vec![Progress::default(); buffers.slots()];
        let (in_flight, unsubmitted, process) = (0, 0, std::process::id());
        let buffers = Some(buffers);
        Ok(Uring {
            ring,
            file,
            buffers,
            progress,
            registered_file,
            registered_buffers,
            in_flight,
            unsubmitted,
            process,
        })
    }

    fn buffers(&self) -> &Buffers {
        self.buffers.as_ref().expect("taken by drop only")
    }

    fn entry(&self, slot: usize) -> squeue::Entry {
        let Progress { page, filled } = self.progress[slot];
        let address = self.buffers().address(slot).wrapping_add(filled);
        let bytes = (self.buffers().slot_bytes() - filled) as u32;
        let offset = page * PAGE_BYTES as u64 + filled as u64;
        let fd = types::Fd(self.file.fd());
        let entry = match (self.registered_file, self.registered_buffers) {
            (true, true) => opcode::ReadFixed::new(types::Fixed(0), address, bytes, 0).offset(offset).build(),
            (false, true) => opcode::ReadFixed::new(fd, address, bytes, 0).offset(offset).build(),
            (true, false) => opcode::Read::new(types::Fixed(0), address, bytes).offset(offset).build(),
            (false, false) => opcode::Read::new(fd, address, bytes).offset(offset).build(),
        };
        entry.user_data(slot as u64)
    }

    fn push(&mut self, slot: usize) -> Result<()> {
        let entry = self.entry(slot);
        // SAFETY: the buffer belongs to this read until it completes, and outlives it.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.enter(0)?;
        }
        self.unsubmitted += 1;
        self.in_flight += 1;
        Ok(())
    }

    /// Submits what was pushed, runs due completions and waits for `want` of them.
    fn enter(&mut self, want: u32) -> Result<()> {
        // IORING_ENTER_GETEVENTS: deferred completions are run only by a thread that asks for events.
        const GETEVENTS: u32 = 1;
        let mut refusals = 0;
        loop {
            // SAFETY: every pushed entry is valid, see `push`; no argument is passed.
            let result = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(self.unsubmitted as u32, want, GETEVENTS, None)
            };
            match result {
                Ok(submitted) => {
                    self.unsubmitted -= submitted.min(self.unsubmitted);
                    if self.unsubmitted == 0 {
                        return Ok(());
                    }
                }
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                Err(e) if is_transient(&e) && refusals < MAX_REFUSALS => {
                    refusals += 1;
                    std::thread::sleep(REFUSAL_PAUSE);
                }
                Err(e) => return Err(Error::io(&self.file.path, "submit reads to io_uring", e)),
            }
            if !self.ring.completion().is_empty() {
                // Let the caller make room before trying again.
                return Ok(());
            }
        }
    }

    /// Moves finished reads to `done`; unfinished ones go back into the queue.
    fn collect(&mut self, done: &mut Vec<usize>) -> Result<()> {
        while let Some(entry) = self.next_completion() {
            let (slot, result) = (entry.user_data() as usize, entry.result());
            self.in_flight -= 1;
            let Progress { page, filled } = self.progress[slot];
            if result < 0 {
                let error = io::Error::from_raw_os_error(-result);
                if !is_transient(&error) {
                    return Err(self.file.read_error(page, error));
                }
                self.push(slot)?;
            } else if result == 0 {
                return Err(self.file.shrank(page));
            } else if filled + result as usize == self.buffers().slot_bytes() {
                done.push(slot);
            } else if self.file.is_cut(result as usize) {
                return Err(self.file.shrank(page));
            } else {
                self.progress[slot].filled += result as usize;
                self.push(slot)?;
            }
        }
        Ok(())
    }

    fn next_completion(&mut self) -> Option<io_uring::cqueue::Entry> {
        self.ring.completion().next()
    }
}

/// Times in a row that the kernel may lack memory for a submission, with a pause after each: one second in all.
const MAX_REFUSALS: u32 = 1000;
const REFUSAL_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

impl Engine for Uring {
    fn slots(&self) -> usize {
        self.progress.len()
    }

    fn queue(&mut self, slot: usize, page: u64) -> Result<()> {
        self.progress[slot] = Progress { page, filled: 0 };
        self.push(slot)
    }

    fn flush(&mut self) -> Result<()> {
        if self.unsubmitted > 0 { self.enter(0) } else { Ok(()) }
    }

    fn reap(&mut self, done: &mut Vec<usize>) -> Result<()> {
        let before = done.len();
        self.collect(done)?;
        while self.in_flight > 0 && (done.len() == before || self.unsubmitted > 0) {
            self.enter(u32::from(done.len() == before))?;
            self.collect(done)?;
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<usize>) -> Result<()> {
        if self.unsubmitted > 0 || self.ring.submission().taskrun() {
            self.enter(0)?;
        }
        self.collect(done)?;
        // Reads that go on.
        self.flush()
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        // SAFETY: callers ask for buffers of finished reads only.
        unsafe { self.buffers().content(slot) }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // A forked child shares the ring with its parent and must not take the parent's completions.
        let owns_ring = std::process::id() == self.process;
        while owns_ring && self.in_flight > 0 {
            if self.enter(1).is_err() {
                break;
            }
            while self.next_completion().is_some() {
                self.in_flight -= 1;
            }
        }
        if self.in_flight > 0 {
            // The kernel may still write into them: keep the memory for good.
            std::mem::forget(self.buffers.take());
        }
    }
}
