//! The function `measure_device`.

use std::path::PathBuf;

use indexmill_core::device::{Load, measure_unless};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{count, unlocked};

/// Reads random blocks of the file or device at `path`; negative numbers become 0, which the core refuses.
#[pyfunction]
pub fn measure_device(
    py: Python<'_>,
    path: PathBuf,
    block_bytes: i64,
    depth: i64,
    threads: i64,
    seconds: f64,
    seed: u64,
) -> PyResult<Bound<'_, PyDict>> {
    let load = Load::new(count(block_bytes), count(depth), seconds).threads(count(threads)).seed(seed);
    let measured = unlocked(py, |stop| measure_unless(&path, &load, stop))?;
    let dict = PyDict::new(py);
    dict.set_item("reads", measured.reads)?;
    dict.set_item("elapsed_s", measured.elapsed_s)?;
    dict.set_item("direct", measured.direct)?;
    dict.set_item("engine", measured.engine)?;
    dict.set_item("latencies_us", PyArray1::from_vec(py, measured.latencies_us))?;
    Ok(dict)
}
