//! The class `Index`.

use std::path::PathBuf;
use std::sync::Arc;

use indexmill_core::Index as CoreIndex;
use indexmill_core::engine::Reading;
use indexmill_core::graph::Filter as CoreFilter;
use indexmill_core::graph::{Entry, Policy, SearchParams};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{count, unlocked};
use crate::class::{Held, index_class};
use crate::errors;
use crate::mailbox::{Mailbox, Ticket};
use crate::queries::{copied, with_queries};
use crate::results::{columns, found, within};
use crate::store::{Stored, traffic};

/// An opened index; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct Index {
    inner: Held<CoreIndex>,
}

impl Index {
    fn of(inner: CoreIndex) -> Self {
        Index { inner: Held::new(inner) }
    }
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
#[pyo3(from_item_all)]
pub struct Options<'py> {
    k: i64,
    search_list_size: i64,
    beam_width: i64,
    policy: String,
    entry: String,
    threads: i64,
    inflight: i64,
    deterministic: bool,
    allow: Option<PyRef<'py, Filter>>,
}

impl Options<'_> {
    fn params(&self) -> indexmill_core::Result<SearchParams> {
        Ok(SearchParams::new(count(self.k))
            .list_size(count(self.search_list_size))
            .beam_width(count(self.beam_width))
            .policy(Policy::parse(&self.policy)?)
            .entry(Entry::parse(&self.entry)?)
            .threads(count(self.threads))
            .inflight(count(self.inflight))
            .deterministic(self.deterministic)
            .allow(self.allow.as_ref().map(|filter| filter.inner.clone())))
    }
}

index_class! {
    Index(index) {
        n_vertices: u32 = index.graph.layout().n_vertices;
        dim: usize = index.graph.user_dim();
        dtype: &'static str = index.graph.layout().dtype.name();
        query_dtype: &'static str = index.graph.layout().dtype.query_name();
        metric: &'static str = index.graph.metric.name();
        max_degree: usize = index.graph.layout().max_degree;
        node_bytes: usize = index.graph.layout().node_bytes;
        nodes_per_page: u32 = match index.graph.layout() {
            layout if layout.pages_per_block > 1 => 0,
            layout => layout.nodes_per_block,
        };
        pages_per_node: u32 = index.graph.layout().pages_per_block;
        n_entries: usize = index.entries.len();
        n_navigation: usize = index.navigation.as_ref().map_or(0, |navigation| navigation.len());
        memory_bytes: u64 = index.memory_bytes();
        n_chunks: usize = index.codes.n_chunks();
        labels: Option<(String, u32, u32)> = {
            index.manifest.labels().map(|labels| (labels.column.clone(), labels.least, labels.most))
        };
    }

    /// Opens the index in directory `path`, with its blocks in a store if there is one.
    #[staticmethod]
    #[pyo3(signature = (path, engine = "auto", stored = None))]
    fn open(py: Python<'_>, path: PathBuf, engine: &str, stored: Option<Stored>) -> PyResult<Self> {
        let fetcher = stored.map(|stored| stored.fetcher(py)).transpose()?;
        let reading = fetcher.as_ref().map_or(Reading::Named(engine), Reading::Stored);
        unlocked(py, |stop| CoreIndex::open_with(&path, reading, stop)).map(Self::of)
    }

    /// What was asked of the store so far; None if there is none.
    #[getter]
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        traffic(py, self.inner.traffic())
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
        let (output, events) = with_queries(py, queries, self.query_dtype(), |queries, stop| match trace {
            true => self.inner.search_traced_unless(queries, &params, stop).map(|(output, events)| (output, Some(events))),
            false => self.inner.search_unless(queries, &params, stop).map(|output| (output, None)),
        })?;
        let dict = found(py, output)?;
        if let Some(events) = events {
            dict.set_item("trace", columns(py, &events)?)?;
        }
        Ok(dict)
    }

    /// Begins a `search`; its outcome gets to `mailbox` under the number `token`.
    fn search_later<'py>(
        &self,
        py: Python<'py>,
        mailbox: &Bound<'py, Mailbox>,
        token: u64,
        queries: &Bound<'py, PyAny>,
        options: Options<'py>,
    ) -> PyResult<Ticket> {
        let params = options.params().map_err(|e| errors::to_python(py, &e))?;
        let queries = copied(py, queries, self.query_dtype())?;
        let done = mailbox.get().slot(token, found);
        Ticket::begin(py, || self.inner.search_later(queries, params, done))
    }

    /// Begins a `range_search` as `search_later` begins a search.
    fn range_search_later<'py>(
        &self,
        py: Python<'py>,
        mailbox: &Bound<'py, Mailbox>,
        token: u64,
        queries: &Bound<'py, PyAny>,
        radius: f32,
        options: Options<'py>,
    ) -> PyResult<Ticket> {
        let params = options.params().map_err(|e| errors::to_python(py, &e))?;
        let queries = copied(py, queries, self.query_dtype())?;
        let done = mailbox.get().slot(token, within);
        Ticket::begin(py, || self.inner.range_search_later(queries, radius, params, done))
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
        let output = with_queries(py, queries, self.query_dtype(), |queries, stop| {
            self.inner.range_search_unless(queries, radius, &params, stop)
        })?;
        within(py, output)
    }

    /// Makes a filter from a bitmap over vector ids, least significant bit first; `is_label`: of a label with edges of its own.
    #[pyo3(signature = (bitmap, is_label = false))]
    fn filter(&self, py: Python<'_>, bitmap: PyReadonlyArray1<'_, u8>, is_label: bool) -> PyResult<Filter> {
        let bits = bitmap.as_slice().map_err(|_| errors::input(py, "allow: expected a contiguous array".to_owned()))?;
        let bits = bits.to_vec(); // other threads may write into the array
        let made = unlocked(py, |stop| match is_label {
            true => self.inner.label_filter_unless(&bits, stop),
            false => self.inner.filter_unless(&bits, stop),
        })?;
        Ok(Filter { inner: Arc::new(made) })
    }

    /// The same index as if the vertex in slot `order[s]` lived in slot s.
    fn remapped(&self, py: Python<'_>, order: PyReadonlyArray1<'_, u32>) -> PyResult<Self> {
        // A copy: other threads may write into the array while it is read several times.
        let order = order.as_slice().map_err(|_| errors::input(py, "order: expected a contiguous array".to_owned()))?;
        let order = order.to_vec();
        unlocked(py, |stop| self.inner.remapped_unless(&order, stop)).map(Self::of)
    }

    /// Caches the blocks around the entry vertices; returns the number of blocks and their bytes.
    fn cache_around_entries(&self, py: Python<'_>, bytes: usize) -> PyResult<(usize, usize)> {
        let made = unlocked(py, |stop| self.inner.cache_around_entries_unless(bytes, stop))?;
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
        let made = with_queries(py, queries, self.query_dtype(), |queries, stop| {
            self.inner.cache_from_queries_unless(queries, &params, bytes, stop)
        })?;
        Ok((made.len(), made.bytes()))
    }
}
