//! The class `IvfIndex`.

use std::path::PathBuf;

use indexmill_core::IvfIndex as CoreIndex;
use indexmill_core::ivf::{IvfMemory, IvfParams};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{count, unlocked};
use crate::class::index_class;
use crate::queries::with_queries;
use crate::results::{arrays_of, dict_of, with_found};

/// An opened index of kind "ivf"; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct IvfIndex {
    inner: CoreIndex,
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
        IvfParams {
            k: count(self.k),
            nprobe: count(self.nprobe),
            prune: self.prune,
            // A negative number is more than there can be.
            rerank: usize::try_from(self.rerank).unwrap_or(usize::MAX),
            threads: count(self.threads),
            inflight: count(self.inflight),
        }
    }
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

    /// Opens the index in directory `path`.
    #[staticmethod]
    #[pyo3(signature = (path, engine = "auto"))]
    fn open(py: Python<'_>, path: PathBuf, engine: &str) -> PyResult<Self> {
        unlocked(py, |stop| CoreIndex::open_unless(&path, engine, stop)).map(|inner| IvfIndex { inner })
    }

    /// Bytes that the index holds between searches, by what they hold.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict_of!(py, IvfMemory { centroids, graph, directories, vectors, ids, lists } = self.inner.memory())
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
            self.inner.search(queries, &params, stop)
        })?;
        let counters = arrays_of!(
            py, &output.counters,
            lists, reads, vector_reads, bytes_read, id_pages_read, centroid_distances, distances, reranked,
            latency_us, io_wait_us
        );
        with_found(counters, output)
    }
}
