//! The class `IvfIndex`.

use std::path::PathBuf;

use indexmill_core::IvfIndex as CoreIndex;
use indexmill_core::ivf::{IvfMemory, IvfParams};
use indexmill_core::search::Queries;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::calls::{metadata_sha256, unlocked};
use crate::errors;
use crate::queries::Block;
use crate::results::{add_found, arrays_of, user_ids};

/// An opened index of kind "ivf"; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct IvfIndex {
    inner: CoreIndex,
}

/// Arguments of a search besides the queries; negative numbers become 0, which the core refuses.
#[derive(FromPyObject)]
pub struct IvfOptions {
    #[pyo3(item)]
    k: i64,
    #[pyo3(item)]
    nprobe: i64,
    #[pyo3(item)]
    prune: Option<f32>,
    #[pyo3(item)]
    rerank: i64,
    #[pyo3(item)]
    threads: i64,
    #[pyo3(item)]
    inflight: i64,
}

impl IvfOptions {
    fn params(&self) -> IvfParams {
        let count = |x: i64| usize::try_from(x).unwrap_or(0);
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

#[pymethods]
impl IvfIndex {
    /// Opens the index in directory `path`.
    #[staticmethod]
    #[pyo3(signature = (path, engine = "auto"))]
    fn open(py: Python<'_>, path: PathBuf, engine: &str) -> PyResult<Self> {
        let opened = py.detach(|| CoreIndex::open(&path, engine));
        opened.map(|inner| IvfIndex { inner }).map_err(|e| errors::to_python(py, &e))
    }

    #[getter]
    fn n_vectors(&self) -> u32 {
        self.inner.centroids.n_vectors
    }

    #[getter]
    fn dim(&self) -> usize {
        self.inner.user_dim()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.centroids.dtype.name()
    }

    #[getter]
    fn query_dtype(&self) -> &'static str {
        self.inner.query_dtype()
    }

    #[getter]
    fn metric(&self) -> &'static str {
        self.inner.centroids.metric.name()
    }

    #[getter]
    fn codec(&self) -> &'static str {
        self.inner.centroids.codec_name()
    }

    #[getter]
    fn n_lists(&self) -> usize {
        self.inner.centroids.n_lists
    }

    #[getter]
    fn n_batches(&self) -> usize {
        self.inner.batches.len()
    }

    #[getter]
    fn copies(&self) -> usize {
        self.inner.centroids.copies
    }

    #[getter]
    fn has_graph(&self) -> bool {
        self.inner.centroids.graph.is_some()
    }

    #[getter]
    fn has_vectors(&self) -> bool {
        self.inner.vectors.is_some()
    }

    /// Bytes that the index holds between searches, by what they hold.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let IvfMemory { centroids, graph, directories, vectors, ids, lists } = self.inner.memory();
        [
            ("centroids", centroids),
            ("graph", graph),
            ("directories", directories),
            ("vectors", vectors),
            ("ids", ids),
            ("lists", lists),
        ]
        .into_py_dict(py)
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

    /// Finds k near vectors of each query.
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        options: IvfOptions,
    ) -> PyResult<Bound<'py, PyDict>> {
        let params = options.params();
        let queries = Block::extract(py, queries, self.query_dtype())?;
        let (n, dim) = (queries.shape()[0], queries.shape()[1]);
        let queries = Queries { values: queries.values(py)?, n, dim };
        let output = unlocked(py, |stop| self.inner.search(&queries, &params, stop))?;
        let found = arrays_of!(
            py,
            &output.counters,
            lists,
            reads,
            vector_reads,
            bytes_read,
            centroid_distances,
            distances,
            reranked,
            latency_us,
            io_wait_us,
        );
        add_found(&found, output, n)?;
        Ok(found)
    }

    /// User ids of a 1-D int64 array of slots.
    fn user_ids<'py>(&self, py: Python<'py>, slots: PyReadonlyArray1<'py, i64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        user_ids(py, &self.inner.ids, self.n_vectors(), slots)
    }

    fn __repr__(&self) -> String {
        format!("<IvfIndex {} of {} vectors>", &self.build_id()[..12], self.n_vectors())
    }
}
