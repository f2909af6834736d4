//! Searches that an event loop of asyncio awaits: what the search threads found waits in a mailbox, without the
//! interpreter's lock, until the loop takes it out.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use indexmill_core::search::Ticket as CoreTicket;
use indexmill_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;

/// Outcomes of searches for one event loop, which watches the descriptor `fileno`.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct Mailbox(Arc<Letters>);

/// Makes the outcome of a search a Python object.
type Letter = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

struct Letters {
    /// Holds a byte while there are letters.
    bell: PipeReader,
    inside: Mutex<Inside>,
}

struct Inside {
    ring: PipeWriter,
    letters: Vec<(u64, Letter)>,
}

impl Letters {
    fn post(&self, token: u64, letter: Letter) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.letters.push((token, letter));
        if inside.letters.len() == 1 {
            // The pipe is empty, and its other end lives as long as this one.
            let _ = inside.ring.write_all(&[0]);
        }
    }

    fn take(&self) -> std::io::Result<Vec<(u64, Letter)>> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if !inside.letters.is_empty() {
            (&self.bell).read_exact(&mut [0])?;
        }
        Ok(std::mem::take(&mut inside.letters))
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let (bell, ring) = pipe()?;
        Ok(Mailbox(Arc::new(Letters { bell, inside: Mutex::new(Inside { ring, letters: Vec::new() }) })))
    }

    /// A descriptor that can be read while outcomes are there.
    fn fileno(&self) -> RawFd {
        self.0.bell.as_raw_fd()
    }

    /// Takes out all outcomes: the number of each search, what it found, or else its error. An outcome that cannot be made
    /// a Python object is an error, and the others are there nevertheless.
    #[allow(clippy::type_complexity)]
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Py<PyAny>>, Option<Py<PyAny>>)>> {
        let letters = self.0.take()?;
        let opened = letters.into_iter().map(|(token, letter)| {
            let found = catch_unwind(AssertUnwindSafe(|| letter(py)));
            match found.unwrap_or_else(|panic| Err(errors::to_python(py, &Error::panicked(&*panic)))) {
                Ok(found) => (token, Some(found), None),
                Err(error) => (token, None, Some(error.into_value(py).into_any())),
            }
        });
        Ok(opened.collect())
    }
}

impl Mailbox {
    /// Where a search thread leaves its outcome; `convert` makes that a Python object, on the thread of the event loop.
    /// A search that goes without one leaves an error: nobody awaits it for ever.
    pub fn slot<T: Send + 'static, F>(
        &self,
        token: u64,
        convert: F,
    ) -> impl FnOnce(Result<T>) + Send + 'static + use<T, F>
    where
        F: FnOnce(Python<'_>, T) -> PyResult<Bound<'_, PyDict>> + Send + 'static,
    {
        let mut slot = Slot { letters: self.0.clone(), token, is_used: false };
        move |outcome| {
            slot.post(Box::new(move |py| match outcome {
                Ok(found) => Ok(convert(py, found)?.into_any().unbind()),
                Err(error) => Err(errors::to_python(py, &error)),
            }));
        }
    }
}

/// The place for one letter.
struct Slot {
    letters: Arc<Letters>,
    token: u64,
    is_used: bool,
}

impl Slot {
    fn post(&mut self, letter: Letter) {
        self.is_used = true;
        self.letters.post(self.token, letter);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_used {
            let error = Error::Internal("a search ended without an outcome".to_owned());
            self.post(Box::new(move |py| Err(errors::to_python(py, &error))));
        }
    }
}

/// A search that was begun.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct Ticket(CoreTicket);

#[pymethods]
impl Ticket {
    /// Makes the search end soon.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.0.cancel());
    }
}

impl Ticket {
    /// Begins a search without the interpreter's lock.
    pub fn begin(py: Python<'_>, search: impl FnOnce() -> Result<CoreTicket> + Send) -> PyResult<Self> {
        py.detach(search).map(Ticket).map_err(|error| errors::to_python(py, &error))
    }
}
