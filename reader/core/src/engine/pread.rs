//! A pool of threads that call pread: the engine for systems without io_uring.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::buffers::Buffers;
use super::{DataFile, Engine};
use crate::error::{Error, Result};

/// Threads of one pool at most; more reads in flight do not get more out of one device.
const MAX_THREADS: usize = 32;
/// They only call pread.
const STACK_BYTES: usize = 128 << 10;

struct Job {
    slot: usize,
    page: u64,
}

#[derive(Default)]
struct Queues {
    jobs: VecDeque<Job>,
    done: Vec<(usize, Result<()>)>,
    closed: bool,
}

struct Shared {
    file: Arc<DataFile>,
    buffers: Buffers,
    queues: Mutex<Queues>,
    work: Condvar,
    finished: Condvar,
}

impl Shared {
    /// A panicking thread cannot leave the queues half changed, so a poisoned lock is as good as another.
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's head.
pub struct PreadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    queued: Vec<Job>,
    in_flight: usize,
    process: u32,
}

impl PreadPool {
    /// Starts one thread for each buffer, up to a limit.
    pub fn new(file: Arc<DataFile>, buffers: Buffers) -> Result<Self> {
        let n_threads = buffers.slots().min(MAX_THREADS);
        let queues = Mutex::new(Queues::default());
        let shared = Arc::new(Shared { file, buffers, queues, work: Condvar::new(), finished: Condvar::new() });
        let process = std::process::id();
        let mut pool = PreadPool { shared, threads: Vec::new(), queued: Vec::new(), in_flight: 0, process };
        for _ in 0..n_threads {
            let shared = pool.shared.clone();
            let thread = Builder::new().name("indexmill-pread".to_owned()).stack_size(STACK_BYTES);
            match thread.spawn(move || read_until_closed(&shared)) {
                Ok(handle) => pool.threads.push(handle),
                // Fewer threads are slower, not wrong.
                Err(_) if !pool.threads.is_empty() => break,
                Err(e) => return Err(Error::io(&pool.shared.file.path, "start a reading thread", e)),
            }
        }
        Ok(pool)
    }

    /// Appends the slots of good reads to `done`; gives the first error, if there is one, once all are counted.
    fn hand_over(&mut self, finished: Vec<(usize, Result<()>)>, done: &mut Vec<usize>) -> Result<()> {
        let mut first = Ok(());
        for (slot, result) in finished {
            self.in_flight -= 1;
            match result {
                Ok(()) => done.push(slot),
                Err(e) => first = first.and(Err(e)),
            }
        }
        first
    }
}

fn read_until_closed(shared: &Shared) {
    let mut queues = shared.queues();
    loop {
        if let Some(job) = queues.jobs.pop_front() {
            drop(queues);
            let bytes = shared.buffers.slot_bytes();
            // SAFETY: the slot is in flight, so nobody else touches its buffer.
            let result = unsafe { shared.file.read_block(shared.buffers.address(job.slot), bytes, job.page) };
            queues = shared.queues();
            queues.done.push((job.slot, result));
            shared.finished.notify_one();
        } else if queues.closed {
            return;
        } else {
            queues = shared.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Engine for PreadPool {
    fn slots(&self) -> usize {
        self.shared.buffers.slots()
    }

    fn queue(&mut self, slot: usize, page: u64) -> Result<()> {
        self.queued.push(Job { slot, page });
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let n = self.queued.len();
        if n == 0 {
            return Ok(());
        }
        self.in_flight += n;
        self.shared.queues().jobs.extend(self.queued.drain(..));
        (0..n).for_each(|_| self.shared.work.notify_one());
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<usize>) -> Result<()> {
        self.flush()?;
        let mut queues = self.shared.queues();
        while queues.done.is_empty() && self.in_flight > 0 {
            queues = self.shared.finished.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        let finished = std::mem::take(&mut queues.done);
        drop(queues);
        self.hand_over(finished, done)
    }

    fn poll(&mut self, done: &mut Vec<usize>) -> Result<()> {
        self.flush()?;
        if self.in_flight == 0 {
            return Ok(());
        }
        let finished = std::mem::take(&mut self.shared.queues().done);
        self.hand_over(finished, done)
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        // SAFETY: callers ask for buffers of finished reads only.
        unsafe { self.shared.buffers.content(slot) }
    }
}

impl Drop for PreadPool {
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
        drop(queues);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has finished, which is all that is waited for.
            let _ = thread.join();
        }
    }
}
