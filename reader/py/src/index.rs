//! The class `Index`.

use std::path::PathBuf;

use indexmill_core::Index as CoreIndex;
use indexmill_core::ids::UserId;
use indexmill_core::search::{Counters, Entry, Policy, Queries, SearchOutput, SearchParams, Values};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors;

/// An opened index; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct Index {
    inner: CoreIndex,
}

/// Arguments of `Index.search` after the queries; negative numbers become 0, which the core refuses.
fn params(
    k: i64,
    l: i64,
    w: i64,
    policy: &str,
    entry: &str,
    threads: i64,
    inflight: i64,
) -> indexmill_core::Result<SearchParams> {
    let count = |x: i64| usize::try_from(x).unwrap_or(0);
    Ok(SearchParams {
        k: count(k),
        list_size: count(l),
        beam_width: count(w),
        policy: Policy::parse(policy)?,
        entry: Entry::parse(entry)?,
        threads: count(threads),
        inflight: count(inflight),
    })
}

#[pymethods]
impl Index {
    /// Opens the index in directory `path`.
    #[staticmethod]
    #[pyo3(signature = (path, engine = "auto"))]
    fn open(py: Python<'_>, path: PathBuf, engine: &str) -> PyResult<Self> {
        let opened = py.detach(|| CoreIndex::open(&path, engine));
        opened.map(|inner| Index { inner }).map_err(|e| errors::to_python(py, &e))
    }

    #[getter]
    fn n_vertices(&self) -> u32 {
        self.inner.graph.layout.n_vertices
    }

    #[getter]
    fn dim(&self) -> usize {
        self.inner.graph.user_dim()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.graph.layout.dtype.name()
    }

    #[getter]
    fn query_dtype(&self) -> &'static str {
        self.inner.graph.layout.dtype.query_name()
    }

    #[getter]
    fn metric(&self) -> &'static str {
        self.inner.graph.metric.name()
    }

    #[getter]
    fn max_degree(&self) -> usize {
        self.inner.graph.layout.max_degree
    }

    #[getter]
    fn node_bytes(&self) -> usize {
        self.inner.graph.layout.node_bytes
    }

    #[getter]
    fn nodes_per_page(&self) -> u32 {
        let layout = &self.inner.graph.layout;
        if layout.pages_per_block > 1 { 0 } else { layout.nodes_per_block }
    }

    #[getter]
    fn pages_per_node(&self) -> u32 {
        self.inner.graph.layout.pages_per_block
    }

    #[getter]
    fn n_entries(&self) -> usize {
        self.inner.entries.len()
    }

    #[getter]
    fn n_chunks(&self) -> usize {
        self.inner.codes.n_chunks
    }

    #[getter]
    fn id_type(&self) -> &'static str {
        self.inner.ids.id_type.name()
    }

    #[getter]
    fn engine(&self) -> &'static str {
        self.inner.engine.name()
    }

    #[getter]
    fn engine_note(&self) -> Option<String> {
        self.inner.engine_note()
    }

    #[getter]
    fn build_id(&self) -> &str {
        &self.inner.manifest.build_id
    }

    #[getter]
    fn metadata_sha256(&self) -> Option<&str> {
        let files = &self.inner.manifest.files;
        files.iter().find(|file| file.name == "metadata.parquet").map(|file| file.sha256.as_str())
    }

    /// Finds the k nearest vertices of each query.
    #[allow(clippy::too_many_arguments)]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        k: i64,
        search_list_size: i64,
        beam_width: i64,
        policy: &str,
        entry: &str,
        threads: i64,
        inflight: i64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let params = params(k, search_list_size, beam_width, policy, entry, threads, inflight)
            .map_err(|e| errors::to_python(py, &e))?;
        if let Ok(array) = queries.extract::<PyReadonlyArray2<'py, f32>>() {
            return self.run(py, contiguous(py, &array)?, Values::Float32, array.shape(), &params);
        }
        if let Ok(array) = queries.extract::<PyReadonlyArray2<'py, u8>>() {
            return self.run(py, contiguous(py, &array)?, Values::Uint8, array.shape(), &params);
        }
        if let Ok(array) = queries.extract::<PyReadonlyArray2<'py, i8>>() {
            return self.run(py, contiguous(py, &array)?, Values::Int8, array.shape(), &params);
        }
        let want = self.query_dtype();
        Err(errors::input(py, format!("queries: expected a 2-D {want} array, got another type or shape; convert them")))
    }

    /// User ids of a 1-D int64 array of slots.
    fn user_ids<'py>(&self, py: Python<'py>, slots: PyReadonlyArray1<'py, i64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let n = self.n_vertices();
        let mut wanted = Vec::with_capacity(slots.len());
        for &slot in slots.as_array() {
            match u32::try_from(slot) {
                Ok(slot) if slot < n => wanted.push(slot),
                _ => {
                    return Err(errors::input(
                        py,
                        format!("slots: expected 0..{}, got {slot}; drop missing ones", n - 1),
                    ));
                }
            }
        }
        let found = py.detach(|| self.inner.ids.user_ids(&wanted)).map_err(|e| errors::to_python(py, &e))?;
        found.into_iter().map(|id| id_object(py, id)).collect()
    }

    fn __repr__(&self) -> String {
        format!("<Index {} of {} vectors>", &self.build_id()[..12], self.n_vertices())
    }
}

impl Index {
    fn run<'py, 'a, T: Sync>(
        &self,
        py: Python<'py>,
        values: &'a [T],
        wrap: fn(&'a [T]) -> Values<'a>,
        shape: &[usize],
        params: &SearchParams,
    ) -> PyResult<Bound<'py, PyDict>> {
        let queries = Queries { values: wrap(values), n: shape[0], dim: shape[1] };
        let mut signal = None;
        let found = py.detach(|| {
            self.inner.search(&queries, params, &mut || {
                signal = Python::attach(|py| py.check_signals().err());
                signal.is_some()
            })
        });
        match (found, signal) {
            (_, Some(raised)) => Err(raised),
            (Ok(output), None) => to_dict(py, output, shape[0]),
            (Err(error), None) => Err(errors::to_python(py, &error)),
        }
    }
}

fn contiguous<'a, T: numpy::Element>(py: Python<'_>, array: &'a PyReadonlyArray2<'_, T>) -> PyResult<&'a [T]> {
    let message = "queries: expected a C-contiguous array, got strides; pass numpy.ascontiguousarray(queries)";
    array.as_slice().map_err(|_| errors::input(py, message.to_owned()))
}

fn id_object(py: Python<'_>, id: UserId) -> PyResult<Bound<'_, PyAny>> {
    Ok(match id {
        UserId::Vector(x) => x.into_pyobject(py)?.into_any(),
        UserId::Int64(x) => x.into_pyobject(py)?.into_any(),
        UserId::Uint64(x) => x.into_pyobject(py)?.into_any(),
        UserId::String(x) => x.into_pyobject(py)?.into_any(),
        UserId::Binary(x) => PyBytes::new(py, &x).into_any(),
    })
}

fn to_dict(py: Python<'_>, output: SearchOutput, n: usize) -> PyResult<Bound<'_, PyDict>> {
    let (k, dict) = (output.k, PyDict::new(py));
    dict.set_item("slots", rows(py, output.slots, n, k)?)?;
    dict.set_item("vector_ids", rows(py, output.vector_ids, n, k)?)?;
    dict.set_item("scores", rows(py, output.scores, n, k)?)?;
    type Count = (&'static str, fn(&Counters) -> u64);
    let counts: [Count; 8] = [
        ("pages_read", |c| c.pages_read),
        ("bytes_read", |c| c.bytes_read),
        ("bytes_used", |c| c.bytes_used),
        ("hops", |c| c.hops),
        ("distances", |c| c.distances),
        ("code_distances", |c| c.code_distances),
        ("expansions", |c| c.expansions),
        ("page_heap_hits", |c| c.page_heap_hits),
    ];
    for (name, pick) in counts {
        dict.set_item(name, PyArray1::from_iter(py, output.counters.iter().map(pick)))?;
    }
    dict.set_item("latency_us", PyArray1::from_iter(py, output.counters.iter().map(|c| c.latency_us)))?;
    dict.set_item("io_wait_us", PyArray1::from_iter(py, output.counters.iter().map(|c| c.io_wait_us)))?;
    Ok(dict)
}

fn rows<T: numpy::Element>(py: Python<'_>, values: Vec<T>, n: usize, k: usize) -> PyResult<Bound<'_, PyArray2<T>>> {
    PyArray1::from_vec(py, values).reshape([n, k])
}

/// One message for each damage in the index at `path`; empty if it is sound.
#[pyfunction]
pub fn verify(py: Python<'_>, path: PathBuf) -> Vec<String> {
    py.detach(|| indexmill_core::verify::verify(&path))
}
