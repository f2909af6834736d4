//! The class `IvfIndex`.

use std::path::PathBuf;

use indexmill_core::IvfIndex as CoreIndex;
use indexmill_core::engine::Reading;
use indexmill_core::ivf::{IvfOutput, IvfParams};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::calls::{count, unlocked};
use crate::class::{Held, index_class};
use crate::mailbox::{Mailbox, Ticket};
use crate::queries::{copied, with_queries};
use crate::results::{arrays_of, with_found};
use crate::store::{Stored, traffic};

/// An opened index of kind "ivf"; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct IvfIndex {
    inner: Held<CoreIndex>,
}

/// Arguments of a search besides the queries; negative numbers become 0, which the core refuses.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct IvfOptions {
    k: i64,
    nprobe: i64,
    prune: Option<f32>,
    rerank: i64,
    threads: i64,
    inflight: i64,
}

impl IvfOptions {
    fn params(&self) -> IvfParams {
        // A negative number of candidates is more than there can be.
        IvfParams::new(count(self.k), count(self.nprobe))
            .prune(self.prune)
            .rerank(usize::try_from(self.rerank).unwrap_or(usize::MAX))
            .threads(count(self.threads))
            .inflight(count(self.inflight))
    }
}

/// The answers of a search.
fn found(py: Python<'_>, output: IvfOutput) -> PyResult<Bound<'_, PyDict>> {
    let counters = arrays_of!(
        py,
        &output.counters,
        lists,
        reads,
        vector_reads,
        bytes_read,
        id_pages_read,
        centroid_distances,
        distances,
        reranked,
        rounds,
        latency_us,
        io_wait_us
    );
    with_found(counters, output)
}

index_class! {
    IvfIndex(index) {
        n_vectors: u32 = index.centroids.n_vectors;
        dim: usize = index.user_dim();
        dtype: &'static str = index.centroids.dtype().name();
        query_dtype: &'static str = index.query_dtype();
        metric: &'static str = index.centroids.metric.name();
        codec: &'static str = index.centroids.codec_name();
        n_lists: usize = index.centroids.n_lists;
        n_batches: usize = index.batches.len();
        copies: usize = index.centroids.copies;
        has_graph: bool = index.centroids.graph.is_some();
        has_vectors: bool = index.vectors.is_some();
    }

    /// Opens the index in directory `path`, with its blocks in a store if there is one.
    #[staticmethod]
    #[pyo3(signature = (path, engine = "auto", stored = None))]
    fn open(py: Python<'_>, path: PathBuf, engine: &str, stored: Option<Stored>) -> PyResult<Self> {
        let fetcher = stored.map(|stored| stored.fetcher(py)).transpose()?;
        let reading = fetcher.as_ref().map_or(Reading::Named(engine), Reading::Stored);
        unlocked(py, |stop| CoreIndex::open_with(&path, reading, stop)).map(|inner| IvfIndex { inner: Held::new(inner) })
    }

    /// What was asked of the store so far; None if there is none.
    #[getter]
    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        traffic(py, self.inner.traffic())
    }

    /// Bytes that the index holds between searches, by what they hold.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.inner.memory().parts().into_py_dict(py)
    }

    /// Finds k near vectors of each query.
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        options: IvfOptions,
    ) -> PyResult<Bound<'py, PyDict>> {
        let params = options.params();
        let output = with_queries(py, queries, self.query_dtype(), |queries, stop| {
            self.inner.search_unless(queries, &params, stop)
        })?;
        found(py, output)
    }

    /// Begins a `search`; its outcome gets to `mailbox` under the number `token`.
    fn search_later<'py>(
        &self,
        py: Python<'py>,
        mailbox: &Bound<'py, Mailbox>,
        token: u64,
        queries: &Bound<'py, PyAny>,
        options: IvfOptions,
    ) -> PyResult<Ticket> {
        let (params, queries) = (options.params(), copied(py, queries, self.query_dtype())?);
        let done = mailbox.get().slot(token, found);
        Ticket::begin(py, || self.inner.search_later(queries, params, done))
    }
}
