//! Calls into the core without the interpreter's lock, and what is the same for indexes of every kind.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use indexmill_core::verify::verify_unless;
use indexmill_core::{distance, manifest};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;

/// How often the interpreter is asked for signals. Each time its lock is waited for, which another thread may keep for
/// some milliseconds.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Calls `work` without the interpreter's lock; Ctrl-C ends it.
pub fn unlocked<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> indexmill_core::Result<T> + Send,
) -> PyResult<T> {
    let (mut signal, mut asked) = (None, None::<Instant>);
    let done = py.detach(|| {
        work(&mut || {
            if signal.is_none() && asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                signal = Python::attach(|py| py.check_signals().err());
                asked = Some(Instant::now());
            }
            signal.is_some()
        })
    });
    match (done, signal) {
        (_, Some(raised)) => Err(raised),
        (Ok(output), None) => Ok(output),
        (Err(error), None) => Err(errors::to_python(py, &error)),
    }
}

/// A count that a caller gave; negative numbers become 0, which the core refuses.
pub fn count(x: i64) -> usize {
    usize::try_from(x).unwrap_or(0)
}

/// The unit in use: its name, the instructions of each family of kernels, and why it is not a wider one (or None).
#[pyfunction]
pub fn unit(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let unit = distance::unit().map_err(|error| errors::to_python(py, &error))?;
    let told = PyDict::new(py);
    told.set_item("name", unit.name)?;
    told.set_item("distances", unit.kernels.name)?;
    told.set_item("products", unit.products.name)?;
    told.set_item("note", unit.note.as_deref())?;
    Ok(told)
}

/// One message for each damage in the index at `path`; empty if it is sound.
#[pyfunction]
pub fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    unlocked(py, |stop| verify_unless(&path, stop))
}

/// What the index at `path` is made of, by its manifest.
#[pyfunction]
pub fn index_kind(py: Python<'_>, path: PathBuf) -> PyResult<&'static str> {
    let read = py.detach(|| manifest::read_at(&path));
    read.map(|manifest| manifest.kind.name()).map_err(|e| errors::to_python(py, &e))
}
