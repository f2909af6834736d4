//! Blocks of an index that are read by a Python object, which reaches its objects in a bucket.

use std::sync::Arc;
use std::time::Duration;

use indexmill_core::engine::{Fetcher, Limits, Refusal, Store, Traffic};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::results::dict_of;

/// What Python gives to `open`: the object that reads, and the limits of its requests.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Stored {
    /// With methods `read(name, offset, n_bytes) -> bytes` and `is_replaced() -> bool`.
    store: Py<PyAny>,
    timeout_s: f64,
    cache_bytes: usize,
}

impl Stored {
    /// What reads of it.
    pub fn fetcher(self) -> Arc<Fetcher> {
        let timeout = Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::MAX);
        let limits = Limits { timeout, cache_bytes: self.cache_bytes, ..Limits::default() };
        Arc::new(Fetcher::new(Arc::new(PyStore(self.store)), limits))
    }
}

struct PyStore(Py<PyAny>);

impl Store for PyStore {
    fn read(&self, name: &str, offset: u64, bytes: usize) -> Result<Vec<u8>, Refusal> {
        let read = Python::try_attach(|py| {
            let got = self.0.call_method1(py, "read", (name, offset, bytes))?;
            Ok(got.cast_bound::<PyBytes>(py)?.as_bytes().to_vec())
        });
        let ended = || Err(Refusal { message: "the interpreter has ended".to_owned(), passes: false });
        read.map_or_else(ended, |read: PyResult<Vec<u8>>| read.map_err(|error| refusal(&error)))
    }

    fn place_of(&self, name: &str) -> String {
        let asked = Python::try_attach(|py| self.0.call_method1(py, "where", (name,))?.extract(py));
        asked.and_then(|asked: PyResult<String>| asked.ok()).unwrap_or_else(|| name.to_owned())
    }

    fn is_replaced(&self) -> bool {
        let asked = Python::try_attach(|py| self.0.call_method0(py, "is_replaced")?.extract(py));
        asked.is_some_and(|asked: PyResult<bool>| asked.unwrap_or(false))
    }
}

/// An `OSError` may pass; others do not: the object tells them apart.
fn refusal(error: &PyErr) -> Refusal {
    Python::attach(|py| Refusal {
        message: error.value(py).to_string(),
        passes: error.is_instance_of::<PyOSError>(py) && !error.is_instance_of::<PyFileNotFoundError>(py),
    })
}

/// What was asked of a store, by what it was; `None` of an index in files.
pub fn traffic(py: Python<'_>, traffic: Option<Traffic>) -> PyResult<Option<Bound<'_, PyDict>>> {
    traffic.map(|traffic| dict_of!(py, Traffic { requests, bytes, retries, timeouts, cached } = traffic)).transpose()
}
