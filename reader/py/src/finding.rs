//! User ids as Python gives them, to find vectors by them.

use indexmill_core::ids::{IdType, Ids, UserIds};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::calls::unlocked;

/// Vector ids of user ids, or of vector ids where there are none; -1 for ids that no vector has, or none that is left.
pub fn find<'py>(py: Python<'py>, ids: &Ids, wanted: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let wanted = match ids.id_type {
        IdType::None | IdType::Int64 => {
            UserIds::Int64(wanted.extract::<PyReadonlyArray1<'_, i64>>()?.as_array().to_vec())
        }
        IdType::Uint64 => UserIds::Uint64(wanted.extract::<PyReadonlyArray1<'_, u64>>()?.as_array().to_vec()),
        IdType::String => UserIds::String(wanted.extract::<Vec<String>>()?.into_iter().collect()),
        IdType::Binary => {
            let texts: Vec<Bound<'_, PyBytes>> = wanted.extract()?;
            UserIds::Binary(texts.iter().map(|text| text.as_bytes()).collect())
        }
        other => unreachable!("no object is a user id of type {other:?}"),
    };
    let found = unlocked(py, |stop| ids.find_unless(&wanted, stop))?;
    Ok(PyArray1::from_iter(py, found.into_iter().map(|id| id.map_or(-1, i64::from))))
}
