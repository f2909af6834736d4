//! Queries as they come from Python.

use indexmill_core::search::{OwnedQueries, Queries, Values};
use numpy::{Element, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::calls::unlocked;
use crate::errors;

/// Calls `search` with a copy of `queries`, a 2-D array in one of the types that the core takes, as [`unlocked`] does;
/// `want` is the type that a message asks for. Other threads may write into the array meanwhile.
pub fn with_queries<T: Send>(
    py: Python<'_>,
    queries: &Bound<'_, PyAny>,
    want: &str,
    search: impl FnOnce(&Queries<'_>, &mut dyn FnMut() -> bool) -> indexmill_core::Result<T> + Send,
) -> PyResult<T> {
    let queries = copied(py, queries, want)?;
    unlocked(py, |stop| search(&queries.borrow(), stop))
}

/// A copy of `queries`, as [`with_queries`] takes them.
pub fn copied(py: Python<'_>, queries: &Bound<'_, PyAny>, want: &str) -> PyResult<OwnedQueries> {
    if let Ok(array) = queries.extract() {
        return copied_array(py, &array, Values::Float32);
    }
    if let Ok(array) = queries.extract() {
        return copied_array(py, &array, Values::Uint8);
    }
    if let Ok(array) = queries.extract() {
        return copied_array(py, &array, Values::Int8);
    }
    Err(errors::input(py, format!("queries: expected a 2-D {want} array, got another type or shape; convert them")))
}

fn copied_array<'a, X: Element>(
    py: Python<'_>,
    array: &'a PyReadonlyArray2<'_, X>,
    values: fn(&'a [X]) -> Values<'a>,
) -> PyResult<OwnedQueries> {
    // `as_slice` takes arrays in the order of columns as well.
    let components = if array.is_c_contiguous() { array.as_slice().ok() } else { None };
    let Some(components) = components else {
        let message = "queries: expected a C-contiguous array, got another order, strides or addresses";
        return Err(errors::input(py, format!("{message}; pass numpy.require(queries, requirements=\"CA\")")));
    };
    Ok(Queries { values: values(components), n: array.shape()[0], dim: array.shape()[1] }.copied())
}
