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
    borrowed(py, queries, want, |queries| Ok(queries.copied()))
}

fn borrowed<T>(
    py: Python<'_>,
    queries: &Bound<'_, PyAny>,
    want: &str,
    work: impl FnOnce(&Queries<'_>) -> PyResult<T>,
) -> PyResult<T> {
    if let Ok(array) = queries.extract() {
        return with_array(py, &array, Values::Float32, work);
    }
    if let Ok(array) = queries.extract() {
        return with_array(py, &array, Values::Uint8, work);
    }
    if let Ok(array) = queries.extract() {
        return with_array(py, &array, Values::Int8, work);
    }
    Err(errors::input(py, format!("queries: expected a 2-D {want} array, got another type or shape; convert them")))
}

fn with_array<'a, X: Element, T>(
    py: Python<'_>,
    array: &'a PyReadonlyArray2<'_, X>,
    values: impl FnOnce(&'a [X]) -> Values<'a>,
    work: impl FnOnce(&Queries<'_>) -> PyResult<T>,
) -> PyResult<T> {
    // `as_slice` takes arrays in the order of columns as well.
    let components = if array.is_c_contiguous() { array.as_slice().ok() } else { None };
    let Some(components) = components else {
        let message = "queries: expected a C-contiguous array, got another order, strides or addresses";
        return Err(errors::input(py, format!("{message}; pass numpy.require(queries, requirements=\"CA\")")));
    };
    work(&Queries { values: values(components), n: array.shape()[0], dim: array.shape()[1] })
}
