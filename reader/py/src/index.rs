//! The class `Index`.

use std::path::PathBuf;
use std::sync::Arc;

use indexmill_core::Index as CoreIndex;
use indexmill_core::graph::Filter as CoreFilter;
use indexmill_core::graph::{Entry, Policy, SearchParams};
use indexmill_core::search::Queries;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{metadata_sha256, unlocked};
use crate::errors;
use crate::queries::Block;
use crate::results::{columns, counters, rows, user_ids};

/// An opened index; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct Index {
    inner: CoreIndex,
}

/// Vertices that a search may return; see `Index.filter`.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct Filter {
    inner: Arc<CoreFilter>,
}

#[pymethods]
impl Filter {
    #[getter]
    fn n_allowed(&self) -> u32 {
        self.inner.n_allowed()
    }
}

/// Arguments of a search besides the queries; negative numbers become 0, which the core refuses.
#[derive(FromPyObject)]
pub struct Options<'py> {
    #[pyo3(item)]
    k: i64,
    #[pyo3(item)]
    search_list_size: i64,
    #[pyo3(item)]
    beam_width: i64,
    #[pyo3(item)]
    policy: String,
    #[pyo3(item)]
    entry: String,
    #[pyo3(item)]
    threads: i64,
    #[pyo3(item)]
    inflight: i64,
    #[pyo3(item)]
    deterministic: bool,
    #[pyo3(item)]
    allow: Option<PyRef<'py, Filter>>,
}

impl Options<'_> {
    fn params(&self) -> indexmill_core::Result<SearchParams> {
        let count = |x: i64| usize::try_from(x).unwrap_or(0);
        Ok(SearchParams {
            k: count(self.k),
            list_size: count(self.search_list_size),
            beam_width: count(self.beam_width),
            policy: Policy::parse(&self.policy)?,
            entry: Entry::parse(&self.entry)?,
            threads: count(self.threads),
            inflight: count(self.inflight),
            deterministic: self.deterministic,
            allow: self.allow.as_ref().map(|filter| filter.inner.clone()),
        })
    }
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
    fn n_navigation(&self) -> usize {
        self.inner.navigation.as_ref().map_or(0, |navigation| navigation.len())
    }

    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }

    #[getter]
    fn n_chunks(&self) -> usize {
        self.inner.codes.n_chunks()
    }

    #[getter]
    fn id_type(&self) -> &'static str {
        self.inner.ids.id_type.name()
    }

    #[getter]
    fn engine(&self) -> &'static str {
        self.inner.engine_name()
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
        metadata_sha256(&self.inner.manifest)
    }

    /// Finds the k nearest vertices of each query, and says what each query did, if `trace` is wanted.
    #[pyo3(signature = (queries, options, trace = false))]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        options: Options<'py>,
        trace: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let params = options.params().map_err(|e| errors::to_python(py, &e))?;
        let queries = Block::extract(py, queries, self.query_dtype())?;
        let n = queries.shape()[0];
        let (output, events) = self.run(py, &queries, |index, queries, stop| match trace {
            true => index.search_traced(queries, &params, stop).map(|(output, events)| (output, Some(events))),
            false => index.search(queries, &params, stop).map(|output| (output, None)),
        })?;
        let dict = counters(py, &output.counters)?;
        if let Some(events) = events {
            dict.set_item("trace", columns(py, &events)?)?;
        }
        dict.set_item("slots", rows(py, output.slots, n, output.k)?)?;
        dict.set_item("vector_ids", rows(py, output.vector_ids, n, output.k)?)?;
        dict.set_item("scores", rows(py, output.scores, n, output.k)?)?;
        Ok(dict)
    }

    /// Finds all vertices of each query with a score at least as good as `radius`.
    fn range_search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        radius: f32,
        options: Options<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let params = options.params().map_err(|e| errors::to_python(py, &e))?;
        let queries = Block::extract(py, queries, self.query_dtype())?;
        let output =
            self.run(py, &queries, |index, queries, stop| index.range_search(queries, radius, &params, stop))?;
        let dict = counters(py, &output.counters)?;
        dict.set_item("starts", PyArray1::from_iter(py, output.starts.iter().map(|&start| start as i64)))?;
        dict.set_item("slots", PyArray1::from_vec(py, output.slots))?;
        dict.set_item("vector_ids", PyArray1::from_vec(py, output.vector_ids))?;
        dict.set_item("scores", PyArray1::from_vec(py, output.scores))?;
        Ok(dict)
    }

    /// Makes a filter from a bitmap over vector ids, least significant bit first.
    fn filter(&self, py: Python<'_>, bitmap: PyReadonlyArray1<'_, u8>) -> PyResult<Filter> {
        let bits = bitmap.as_slice().map_err(|_| errors::input(py, "allow: expected a contiguous array".to_owned()))?;
        let made = py.detach(|| self.inner.filter(bits));
        made.map(|filter| Filter { inner: Arc::new(filter) }).map_err(|e| errors::to_python(py, &e))
    }

    /// The same index as if the vertex in slot `order[s]` lived in slot s.
    fn remapped(&self, py: Python<'_>, order: PyReadonlyArray1<'_, u32>) -> PyResult<Self> {
        let order = order.as_slice().map_err(|_| errors::input(py, "order: expected a contiguous array".to_owned()))?;
        self.unlocked(py, |index, stop| index.remapped(order, stop)).map(|inner| Index { inner })
    }

    /// Caches the blocks around the entry vertices; returns the number of blocks and their bytes.
    fn cache_around_entries(&self, py: Python<'_>, bytes: usize) -> PyResult<(usize, usize)> {
        let made = self.unlocked(py, |index, stop| index.cache_around_entries(bytes, stop))?;
        Ok((made.len(), made.bytes()))
    }

    /// Caches the blocks that a search for `queries` reads most often; returns the number of blocks and their bytes.
    fn cache_from_queries<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        options: Options<'py>,
        bytes: usize,
    ) -> PyResult<(usize, usize)> {
        let params = options.params().map_err(|e| errors::to_python(py, &e))?;
        let queries = Block::extract(py, queries, self.query_dtype())?;
        let made =
            self.run(py, &queries, |index, queries, stop| index.cache_from_queries(queries, &params, bytes, stop))?;
        Ok((made.len(), made.bytes()))
    }

    /// User ids of a 1-D int64 array of slots.
    fn user_ids<'py>(&self, py: Python<'py>, slots: PyReadonlyArray1<'py, i64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        user_ids(py, &self.inner.ids, self.n_vertices(), slots)
    }

    fn __repr__(&self) -> String {
        format!("<Index {} of {} vectors>", &self.build_id()[..12], self.n_vertices())
    }
}

impl Index {
    /// Calls `search` with the queries, as [`Index::unlocked`] does.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        queries: &Block<'_>,
        search: impl FnOnce(&CoreIndex, &Queries<'_>, &mut dyn FnMut() -> bool) -> indexmill_core::Result<T> + Send,
    ) -> PyResult<T> {
        let values = queries.values(py)?;
        let queries = Queries { values, n: queries.shape()[0], dim: queries.shape()[1] };
        self.unlocked(py, |index, stop| search(index, &queries, stop))
    }

    /// Calls `work` as [`unlocked`] does.
    fn unlocked<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&CoreIndex, &mut dyn FnMut() -> bool) -> indexmill_core::Result<T> + Send,
    ) -> PyResult<T> {
        unlocked(py, |stop| work(&self.inner, stop))
    }
}
