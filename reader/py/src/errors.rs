//! Errors of the core as the exception classes of `indexmill.formats.errors`, imported when one is raised.

use indexmill_core::Error;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The Python exception for `error`.
pub fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Corrupt(_) => "CorruptFile",
        Error::TooOld(_) => "TooOld",
        Error::TooNew(_) => "TooNew",
        Error::Foreign(_) => "ForeignFile",
        Error::OtherKind(_) => "OtherKind",
        Error::Config(_) => "ConfigError",
        Error::Input(_) | Error::Io { .. } => "InputError",
        Error::Store(_) => "StorageError",
        Error::Interrupted => return PyErr::new::<pyo3::exceptions::PyKeyboardInterrupt, _>(error.to_string()),
        // Internal, and what a newer core may add.
        _ => return PyErr::new::<pyo3::exceptions::PyRuntimeError, _>(error.to_string()),
    };
    raise(py, class, error.to_string())
}

/// An `InputError`.
pub fn input(py: Python<'_>, message: String) -> PyErr {
    raise(py, "InputError", message)
}

fn raise(py: Python<'_>, class: &str, message: String) -> PyErr {
    let found = py
        .import("indexmill.formats.errors")
        .and_then(|m| m.getattr(class)?.cast_into::<PyType>().map_err(PyErr::from));
    match found {
        Ok(class) => PyErr::from_type(class, message),
        Err(import_error) => import_error,
    }
}
