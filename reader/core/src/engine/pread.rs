//! A pool of threads that call pread: the engine for systems without io_uring.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::buffers::Buffers;
use super::contract::{Engine, Finished, Flights, LONGEST_WAIT, PATIENCE, take_all};
use super::file::{DataFile, ReadAt};
use crate::error::{Error, Result};

/// Most threads of one pool; more reads in flight do not make one device faster.
const MAX_THREADS: usize = 32;
/// They only call pread.
const STACK_BYTES: usize = 128 << 10;

struct Job {
    slot: usize,
    unit: u64,
    bytes: usize,
}

#[derive(Default)]
struct Queues {
    jobs: VecDeque<Job>,
    done: Vec<(usize, Result<()>)>,
    /// Threads that read.
    busy: usize,
    closed: bool,
}

struct Shared<R> {
    file: Arc<DataFile>,
    /// What is really read: the file.
    source: Arc<R>,
    buffers: Buffers,
    queues: Mutex<Queues>,
    work: Condvar,
    finished: Condvar,
}

impl<R> Shared<R> {
    /// A panicking thread cannot leave the queues half changed, so a poisoned lock can be used.
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool; see the module's documentation.
pub struct PreadPool<R> {
    shared: Arc<Shared<R>>,
    threads: Vec<JoinHandle<()>>,
    queued: Vec<Job>,
    flights: Flights,
    process: u32,
}

impl<R: ReadAt + 'static> PreadPool<R> {
    /// Starts one thread for each buffer, up to a limit.
    pub fn new(file: Arc<DataFile>, source: Arc<R>, buffers: Buffers) -> Result<Self> {
        let slots = buffers.slots();
        let queues = Mutex::new(Queues::default());
        let (work, finished) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { file, source, buffers, queues, work, finished });
        let (flights, process) = (Flights::new(slots), std::process::id());
        let mut pool = PreadPool { shared, threads: Vec::new(), queued: Vec::new(), flights, process };
        for _ in 0..slots.min(MAX_THREADS) {
            let shared = pool.shared.clone();
            let thread = Builder::new().name("indexmill-pread".to_owned()).stack_size(STACK_BYTES);
            match thread.spawn(move || read_until_closed(&*shared)) {
                Ok(handle) => pool.threads.push(handle),
                // Fewer threads are slower, not wrong.
                Err(_) if !pool.threads.is_empty() => break,
                Err(e) => return Err(Error::io(&pool.shared.file.path, "start a reading thread", e)),
            }
        }
        Ok(pool)
    }
}

fn read_until_closed(shared: &Shared<impl ReadAt>) {
    let mut queues = shared.queues();
    loop {
        if let Some(job) = queues.jobs.pop_front() {
            queues.busy += 1;
            drop(queues);
            let address = shared.buffers.address(job.slot);
            // SAFETY: the slot is in flight, so nothing else touches its buffer, which is long enough.
            let result = unsafe { shared.file.read_block(&*shared.source, address, job.bytes, job.unit) };
            queues = shared.queues();
            queues.busy -= 1;
            queues.done.push((job.slot, result));
            shared.finished.notify_one();
        } else if queues.closed {
            return;
        } else {
            queues = shared.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<R: ReadAt + 'static> Engine for PreadPool<R> {
    fn slots(&self) -> usize {
        self.shared.buffers.slots()
    }

    fn slot_bytes(&self) -> usize {
        self.shared.buffers.slot_bytes()
    }

    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()> {
        self.shared.buffers.check_fits(bytes);
        self.flights.start(slot);
        self.queued.push(Job { slot, unit, bytes });
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let n = self.queued.len();
        if n > 0 {
            self.shared.queues().jobs.extend(self.queued.drain(..));
            (0..n).for_each(|_| self.shared.work.notify_one());
        }
        Ok(())
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.flush()?;
        let mut queues = self.shared.queues();
        if self.flights.count() > 0 {
            let waited = self.shared.finished.wait_timeout_while(queues, LONGEST_WAIT, |queues| queues.done.is_empty());
            queues = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        take_all(queues.done.drain(..), &mut self.flights, finished);
        Ok(())
    }

    fn poll_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.flush()?;
        if self.flights.count() == 0 {
            return Ok(());
        }
        take_all(self.shared.queues().done.drain(..), &mut self.flights, finished);
        Ok(())
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        // SAFETY: no read into it is in flight.
        unsafe { self.shared.buffers.content(slot) }
    }
}

impl<R> Drop for PreadPool<R> {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A forked child has no such threads: waiting for them would never end.
            std::mem::forget(self.shared.clone());
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        let mut queues = self.shared.queues();
        queues.jobs.clear();
        queues.closed = true;
        self.shared.work.notify_all();
        let waited = self.shared.finished.wait_timeout_while(queues, PATIENCE, |queues| queues.busy > 0);
        let (queues, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if queues.busy > 0 {
            // A thread that still reads has its share of the buffers, and ends after its read.
            return;
        }
        drop(queues);
        for thread in self.threads.drain(..) {
            // A thread that panicked has finished too, and nothing else matters here.
            let _ = thread.join();
        }
    }
}
