//! Results as arrays.

use indexmill_core::graph::{Counters, Trace};
use indexmill_core::ids::{Ids, UserId};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors;

/// One array for each counter.
pub fn counters<'py>(py: Python<'py>, queries: &[Counters]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    type Count = (&'static str, fn(&Counters) -> u64);
    let counts: [Count; 9] = [
        ("pages_read", |c| c.pages_read),
        ("bytes_read", |c| c.bytes_read),
        ("bytes_used", |c| c.bytes_used),
        ("hops", |c| c.hops),
        ("distances", |c| c.distances),
        ("code_distances", |c| c.code_distances),
        ("expansions", |c| c.expansions),
        ("page_heap_hits", |c| c.page_heap_hits),
        ("cache_hits", |c| c.cache_hits),
    ];
    for (name, pick) in counts {
        dict.set_item(name, PyArray1::from_iter(py, queries.iter().map(pick)))?;
    }
    dict.set_item("latency_us", PyArray1::from_iter(py, queries.iter().map(|c| c.latency_us)))?;
    dict.set_item("io_wait_us", PyArray1::from_iter(py, queries.iter().map(|c| c.io_wait_us)))?;
    Ok(dict)
}

/// One array for each property of an event.
pub fn columns<'py>(py: Python<'py>, trace: &Trace) -> PyResult<Bound<'py, PyDict>> {
    let (dict, events) = (PyDict::new(py), &trace.events);
    let of_query = |(query, ends): (usize, &[usize])| std::iter::repeat_n(query as u32, ends[1] - ends[0]);
    let queries: Vec<u32> = trace.starts.windows(2).enumerate().flat_map(of_query).collect();
    dict.set_item("query", PyArray1::from_vec(py, queries))?;
    dict.set_item("hop", PyArray1::from_iter(py, events.iter().map(|event| event.hop)))?;
    dict.set_item("page", PyArray1::from_iter(py, events.iter().map(|event| u64::from(event.block))))?;
    dict.set_item("vertex", PyArray1::from_iter(py, events.iter().map(|event| event.slot)))?;
    dict.set_item("kind", PyArray1::from_iter(py, events.iter().map(|event| event.kind as i8)))?;
    dict.set_item("distance", PyArray1::from_iter(py, events.iter().map(|event| event.distance)))?;
    Ok(dict)
}

/// Values of `n` queries as an array `[n, k]`.
pub fn rows<T: numpy::Element>(py: Python<'_>, values: Vec<T>, n: usize, k: usize) -> PyResult<Bound<'_, PyArray2<T>>> {
    PyArray1::from_vec(py, values).reshape([n, k])
}

/// User ids of `slots`, which are below `n`.
pub fn user_ids<'py>(
    py: Python<'py>,
    ids: &Ids,
    n: u32,
    slots: PyReadonlyArray1<'py, i64>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut wanted = Vec::with_capacity(slots.len());
    for &slot in slots.as_array() {
        match u32::try_from(slot) {
            Ok(slot) if slot < n => wanted.push(slot),
            _ => {
                return Err(errors::input(py, format!("slots: expected 0..{}, got {slot}; drop missing ones", n - 1)));
            }
        }
    }
    let found = py.detach(|| ids.user_ids(&wanted)).map_err(|e| errors::to_python(py, &e))?;
    found.into_iter().map(|id| id_object(py, id)).collect()
}

/// A user id as Python's type for it.
fn id_object(py: Python<'_>, id: UserId) -> PyResult<Bound<'_, PyAny>> {
    Ok(match id {
        UserId::Vector(x) => x.into_pyobject(py)?.into_any(),
        UserId::Int64(x) => x.into_pyobject(py)?.into_any(),
        UserId::Uint64(x) => x.into_pyobject(py)?.into_any(),
        UserId::String(x) => x.into_pyobject(py)?.into_any(),
        UserId::Binary(x) => PyBytes::new(py, &x).into_any(),
    })
}
