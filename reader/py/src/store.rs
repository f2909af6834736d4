//! Blocks of an index that are read by a Python object, which reaches its objects in a bucket.
//!
//! Threads of Python make the requests: the interpreter ends threads where they wait for its lock, wherever they are in
//! its code, and may not find frames of Rust below. Its threads call [`Errands`] for what is short and keeps the lock, and
//! no thread of the reader waits for the lock.

use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{IntoRawFd, RawFd};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use indexmill_core::Error;
use indexmill_core::engine::{Fetcher, Limits, Range, Refusal, Reply, Store, Traffic};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors;
use crate::results::dict_of;

/// What Python gives to `open`: what carries requests to the object that reads, and their limits.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Stored {
    /// Called with [`Errands`], starts threads that do them.
    carry: Py<PyAny>,
    /// Address that names of files are appended to.
    place: String,
    timeout_s: f64,
    cache_bytes: usize,
    /// Directory of blocks that were read before.
    blocks: Option<PathBuf>,
}

impl Stored {
    /// What reads of it.
    pub fn fetcher(self, py: Python<'_>) -> PyResult<Arc<Fetcher>> {
        let timeout = Duration::try_from_secs_f64(self.timeout_s).unwrap_or_default();
        if timeout.is_zero() || timeout > Limits::LONGEST_TIMEOUT {
            let (most, got) = (Limits::LONGEST_TIMEOUT.as_secs(), self.timeout_s);
            let message = format!("timeout_s: expected more than 0 and at most {most} seconds, got {got}; choose 10");
            return Err(errors::to_python(py, &Error::Config(message)));
        }
        let outbox = Arc::new(Outbox::new(self.place)?);
        self.carry.call1(py, (Errands(Arc::downgrade(&outbox)),))?;
        let limits = Limits::default().timeout(timeout).cache_bytes(self.cache_bytes);
        Ok(Arc::new(Fetcher::new(Arc::new(PyStore(outbox)), limits, self.blocks)))
    }
}

struct PyStore(Arc<Outbox>);

impl Store for PyStore {
    fn read(&self, range: Range, reply: Reply) {
        self.0.ask(Errand::Read(range, reply));
    }

    fn is_replaced(&self, reply: Sender<bool>) {
        self.0.ask(Errand::IsReplaced(reply));
    }

    fn place_of(&self, name: &str) -> String {
        format!("{}{name}", self.0.place)
    }
}

/// What a thread of Python is to do, and where its answer goes.
enum Errand {
    Read(Range, Reply),
    IsReplaced(Sender<bool>),
}

#[derive(Default)]
struct Asked {
    next: u64,
    /// Not taken yet.
    waiting: Vec<(u64, Errand)>,
    taken: HashMap<u64, Errand>,
}

/// Errands of the reader for one process. A forked child has none of its parent's threads, and must not touch their locks:
/// it has its own behind them.
struct Outbox {
    place: String,
    process: u32,
    errands: Mutex<Asked>,
    /// Can be read once errands wait, or the index is closed.
    bell: PipeWriter,
    ear: Mutex<Option<PipeReader>>,
    child: OnceLock<Box<Outbox>>,
}

impl Outbox {
    fn new(place: String) -> PyResult<Self> {
        let (ear, bell) = pipe()?;
        let (errands, process, child) = (Mutex::default(), std::process::id(), OnceLock::new());
        Ok(Outbox { place, process, errands, bell, ear: Mutex::new(Some(ear)), child })
    }

    /// That of this process, if it has begun.
    fn here(&self) -> Option<&Outbox> {
        let (process, mut found) = (std::process::id(), Some(self));
        while let Some(outbox) = found.filter(|outbox| outbox.process != process) {
            found = outbox.child.get().map(|child| &**child);
        }
        found
    }

    /// That of this process.
    fn begin(&self) -> PyResult<&Outbox> {
        if let Some(outbox) = self.here() {
            return Ok(outbox);
        }
        let mut last = self;
        while let Some(child) = last.child.get() {
            last = child;
        }
        let new = Box::new(Outbox::new(self.place.clone())?);
        Ok(last.child.get_or_init(|| new))
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has an errand done. Dropped, it is refused.
    fn ask(&self, errand: Errand) {
        let Some(outbox) = self.here() else { return };
        let mut errands = outbox.lock();
        errands.next += 1;
        let number = errands.next;
        errands.waiting.push((number, errand));
        if errands.waiting.len() == 1 {
            outbox.ring();
        }
    }

    fn ring(&self) {
        // Nobody listens after the interpreter's end alone.
        let _ = (&self.bell).write_all(&[0]);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // A copy of the bell may be open in a child, so that closing this one tells nothing.
        if self.process == std::process::id() {
            self.ring();
        }
    }
}

/// An errand for Python: its number, and the file, offset and bytes to read, or no file to tell whether it was replaced.
type Wish = (u64, Option<String>, u64, usize);

/// Errands of a reader for threads of Python. No method gives up the interpreter's lock.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct Errands(Weak<Outbox>);

#[pymethods]
impl Errands {
    /// Begins in this process: a descriptor, for the caller to close, that can be read once errands wait, or the index is
    /// closed. None if it is closed by now.
    fn begin(&self) -> PyResult<Option<RawFd>> {
        let Some(outbox) = self.0.upgrade() else { return Ok(None) };
        let ear = outbox.begin()?.ear.lock().unwrap_or_else(PoisonError::into_inner).take();
        let twice = || PyErr::new::<pyo3::exceptions::PyRuntimeError, _>("errands were begun in this process before");
        ear.map(IntoRawFd::into_raw_fd).map(Some).ok_or_else(twice)
    }

    /// Takes what waits; None once the index is closed.
    fn take(&self) -> Option<Vec<Wish>> {
        let outbox = self.0.upgrade()?;
        let mut errands = outbox.here()?.lock();
        let waiting = std::mem::take(&mut errands.waiting);
        let wish = |(number, errand): &(u64, Errand)| match errand {
            Errand::Read(Range { name, offset, bytes, .. }, _) => (*number, Some(name.to_string()), *offset, *bytes),
            Errand::IsReplaced(_) => (*number, None, 0, 0),
        };
        let wishes = waiting.iter().map(wish).collect();
        errands.taken.extend(waiting);
        Some(wishes)
    }

    /// Says that an errand begins; False if nobody waits for its answer any more, so that it need not.
    fn starts(&self, number: u64) -> bool {
        let Some(outbox) = self.0.upgrade() else { return false };
        let Some(mut errands) = outbox.here().map(Outbox::lock) else { return false };
        let is_wanted = match errands.taken.get(&number) {
            Some(Errand::Read(_, reply)) => reply.begin(),
            Some(Errand::IsReplaced(_)) => true,
            None => false,
        };
        if !is_wanted {
            errands.taken.remove(&number);
        }
        is_wanted
    }

    /// Answers a read.
    fn deliver(&self, number: u64, data: &Bound<'_, PyBytes>) {
        if let Some(Errand::Read(_, reply)) = self.done(number) {
            reply.give(Ok(data.as_bytes()));
        }
    }

    /// Answers whether the index was replaced.
    fn tell(&self, number: u64, is_replaced: bool) {
        if let Some(Errand::IsReplaced(reply)) = self.done(number) {
            // Its caller may have gone.
            let _ = reply.send(is_replaced);
        }
    }

    /// Says why an errand failed, and whether it may succeed later.
    fn refuse(&self, number: u64, message: String, passes: bool) {
        if let Some(Errand::Read(_, reply)) = self.done(number) {
            reply.give(Err(Refusal::new(message, passes)));
        }
    }
}

impl Errands {
    fn done(&self, number: u64) -> Option<Errand> {
        self.0.upgrade()?.here()?.lock().taken.remove(&number)
    }
}

/// What was asked of a store, by what it was; `None` of an index in files.
pub fn traffic(py: Python<'_>, traffic: Option<Traffic>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let dict = |traffic| dict_of!(py, Traffic { requests, bytes, retries, timeouts, cached, disk, damaged } = traffic);
    traffic.map(dict).transpose()
}
