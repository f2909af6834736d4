//! Queries as they come from Python.

use indexmill_core::search::Values;
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::errors;

/// A 2-D array of queries in one of the types the core takes.
pub enum Block<'py> {
    Float32(PyReadonlyArray2<'py, f32>),
    Uint8(PyReadonlyArray2<'py, u8>),
    Int8(PyReadonlyArray2<'py, i8>),
}

impl<'py> Block<'py> {
    /// Takes `queries` as they are; `want` is the type that a message asks for.
    pub fn extract(py: Python<'py>, queries: &Bound<'py, PyAny>, want: &str) -> PyResult<Self> {
        if let Ok(array) = queries.extract() {
            return Ok(Block::Float32(array));
        }
        if let Ok(array) = queries.extract() {
            return Ok(Block::Uint8(array));
        }
        if let Ok(array) = queries.extract() {
            return Ok(Block::Int8(array));
        }
        Err(errors::input(py, format!("queries: expected a 2-D {want} array, got another type or shape; convert them")))
    }

    /// Queries and dimensions.
    pub fn shape(&self) -> &[usize] {
        match self {
            Block::Float32(array) => array.shape(),
            Block::Uint8(array) => array.shape(),
            Block::Int8(array) => array.shape(),
        }
    }

    /// The components, one query after the other.
    pub fn values(&self, py: Python<'_>) -> PyResult<Values<'_>> {
        Ok(match self {
            Block::Float32(array) => Values::Float32(contiguous(py, array)?),
            Block::Uint8(array) => Values::Uint8(contiguous(py, array)?),
            Block::Int8(array) => Values::Int8(contiguous(py, array)?),
        })
    }
}

fn contiguous<'a, T: numpy::Element>(py: Python<'_>, array: &'a PyReadonlyArray2<'_, T>) -> PyResult<&'a [T]> {
    let message = "queries: expected a C-contiguous array, got strides; pass numpy.ascontiguousarray(queries)";
    array.as_slice().map_err(|_| errors::input(py, message.to_owned()))
}
