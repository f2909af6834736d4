//! Results as arrays.

use indexmill_core::graph::{Counters, RangeOutput, SearchOutput, Trace};
use indexmill_core::ids::{Ids, Texts, UserId, UserIds};
use indexmill_core::search::Output;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::errors;

/// A dictionary with one array for each of the named fields of `$entries`.
macro_rules! arrays_of {
    ($py:expr, $entries:expr, $($field:ident),+ $(,)?) => {{
        let (dict, entries) = (pyo3::types::PyDict::new($py), $entries);
        $(dict.set_item(stringify!($field), numpy::PyArray1::from_iter($py, entries.iter().map(|e| e.$field)))?;)+
        dict
    }};
}
pub(crate) use arrays_of;

/// A dictionary with the named fields of a struct of the core.
macro_rules! dict_of {
    ($py:expr, $type:ident { $($field:ident),+ $(,)? } = $value:expr) => {{
        let $type { $($field,)+ .. } = $value;
        pyo3::types::IntoPyDict::into_py_dict([$((stringify!($field), $field)),+], $py)
    }};
}
pub(crate) use dict_of;

/// Adds slots, user ids and scores of queries to their counters.
pub fn with_found<'py, C>(counters: Bound<'py, PyDict>, output: Output<C>) -> PyResult<Bound<'py, PyDict>> {
    let (py, n) = (counters.py(), output.counters.len());
    counters.set_item("user_ids", found_ids(py, output.user_ids, &output.slots)?)?;
    counters.set_item("slots", rows(py, output.slots, n, output.k)?)?;
    counters.set_item("scores", rows(py, output.scores, n, output.k)?)?;
    Ok(counters)
}

/// The answers of a search.
pub fn found(py: Python<'_>, output: SearchOutput) -> PyResult<Bound<'_, PyDict>> {
    let (dict, n) = (counters(py, &output.counters)?, output.counters.len());
    dict.set_item("user_ids", found_ids(py, output.user_ids, &output.slots)?)?;
    dict.set_item("slots", rows(py, output.slots, n, output.k)?)?;
    dict.set_item("vector_ids", rows(py, output.vector_ids, n, output.k)?)?;
    dict.set_item("scores", rows(py, output.scores, n, output.k)?)?;
    Ok(dict)
}

/// The answers of a range search.
pub fn within(py: Python<'_>, output: RangeOutput) -> PyResult<Bound<'_, PyDict>> {
    let dict = counters(py, &output.counters)?;
    dict.set_item("starts", PyArray1::from_iter(py, output.starts.iter().map(|&start| start as i64)))?;
    dict.set_item("user_ids", found_ids(py, output.user_ids, &output.slots)?)?;
    dict.set_item("slots", PyArray1::from_vec(py, output.slots))?;
    dict.set_item("vector_ids", PyArray1::from_vec(py, output.vector_ids))?;
    dict.set_item("scores", PyArray1::from_vec(py, output.scores))?;
    Ok(dict)
}

/// One array for each counter.
fn counters<'py>(py: Python<'py>, queries: &[Counters]) -> PyResult<Bound<'py, PyDict>> {
    Ok(arrays_of!(
        py,
        queries,
        pages_read,
        bytes_read,
        id_pages_read,
        bytes_used,
        hops,
        distances,
        code_distances,
        expansions,
        page_heap_hits,
        cache_hits,
        rounds,
        latency_us,
        io_wait_us,
    ))
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
fn rows<T: numpy::Element>(py: Python<'_>, values: Vec<T>, n: usize, k: usize) -> PyResult<Bound<'_, PyArray2<T>>> {
    PyArray1::from_vec(py, values).reshape([n, k])
}

/// User ids of the results in `slots` as a flat array; None if they are the vector ids.
fn found_ids<'py>(py: Python<'py>, ids: UserIds, slots: &[i64]) -> PyResult<Option<Bound<'py, PyAny>>> {
    let string = |text: &[u8]| PyString::new(py, &String::from_utf8_lossy(text)).into_any().unbind();
    Ok(match ids {
        UserIds::None => None,
        UserIds::Int64(ids) => Some(PyArray1::from_vec(py, ids).into_any()),
        UserIds::Uint64(ids) => Some(PyArray1::from_vec(py, ids).into_any()),
        UserIds::String(texts) => Some(objects(py, &texts, slots, string)),
        UserIds::Binary(texts) => Some(objects(py, &texts, slots, |bytes| PyBytes::new(py, bytes).into_any().unbind())),
        other => unreachable!("no array holds {other:?}"),
    })
}

/// An array of an object for each text, None where there is no result.
fn objects<'py>(
    py: Python<'py>,
    texts: &Texts,
    slots: &[i64],
    object: impl Fn(&[u8]) -> Py<PyAny>,
) -> Bound<'py, PyAny> {
    let objects = slots.iter().zip(texts.iter()).map(|(&slot, text)| if slot < 0 { py.None() } else { object(text) });
    PyArray1::from_vec(py, objects.collect()).into_any()
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
        other => unreachable!("no object is {other:?}"),
    })
}
