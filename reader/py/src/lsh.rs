//! The class `LshIndex`.

use std::path::PathBuf;

use indexmill_core::LshIndex as CoreIndex;
use indexmill_core::lsh::{InMemory, LshMemory, LshParams};
use indexmill_core::search::Queries;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::calls::{metadata_sha256, unlocked};
use crate::errors;
use crate::queries::Block;
use crate::results::{add_found, arrays_of, user_ids};

/// An opened index of kind "lsh"; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct LshIndex {
    inner: CoreIndex,
}

/// Arguments of a search besides the queries; negative numbers become 0, which the core refuses.
#[derive(FromPyObject)]
pub struct LshOptions {
    #[pyo3(item)]
    k: i64,
    #[pyo3(item)]
    candidates: Option<i64>,
    #[pyo3(item)]
    probes: Option<i64>,
    #[pyo3(item)]
    threads: i64,
    #[pyo3(item)]
    inflight: i64,
}

impl LshOptions {
    fn params(&self) -> LshParams {
        let count = |x: i64| usize::try_from(x).unwrap_or(0);
        LshParams {
            k: count(self.k),
            candidates: self.candidates.map(|x| u64::try_from(x).unwrap_or(0)),
            // A negative number is more than there can be.
            probes: self.probes.map(|x| usize::try_from(x).unwrap_or(usize::MAX)),
            threads: count(self.threads),
            inflight: count(self.inflight),
        }
    }
}

#[pymethods]
impl LshIndex {
    /// Opens the index in directory `path`.
    #[staticmethod]
    #[pyo3(signature = (path, engine = "auto", vectors_in_memory = true, tables_in_memory = false))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        engine: &str,
        vectors_in_memory: bool,
        tables_in_memory: bool,
    ) -> PyResult<Self> {
        let held = InMemory { vectors: vectors_in_memory, tables: tables_in_memory };
        let opened = py.detach(|| CoreIndex::open(&path, engine, held));
        opened.map(|inner| LshIndex { inner }).map_err(|e| errors::to_python(py, &e))
    }

    #[getter]
    fn n_vectors(&self) -> u32 {
        self.inner.functions.n_vectors
    }

    #[getter]
    fn dim(&self) -> usize {
        self.inner.user_dim()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.vectors.dtype.name()
    }

    #[getter]
    fn query_dtype(&self) -> &'static str {
        self.inner.vectors.dtype.query_name()
    }

    #[getter]
    fn metric(&self) -> &'static str {
        self.inner.vectors.metric.name()
    }

    #[getter]
    fn n_functions(&self) -> usize {
        self.inner.functions.n_functions
    }

    #[getter]
    fn n_tables(&self) -> usize {
        self.inner.functions.n_tables
    }

    #[getter]
    fn candidates(&self) -> u64 {
        self.inner.functions.candidates
    }

    #[getter]
    fn probes(&self) -> usize {
        self.inner.functions.probes
    }

    #[getter]
    fn ratio(&self) -> f64 {
        self.inner.functions.ratio
    }

    #[getter]
    fn radii<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.inner.functions.radii)
    }

    #[getter]
    fn block_bytes(&self) -> usize {
        self.inner.functions.block_bytes
    }

    /// Bytes that the index holds between searches, by what they hold.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let LshMemory { vectors, functions, bitmap, tables, ids, buckets } = self.inner.memory();
        [
            ("vectors", vectors),
            ("functions", functions),
            ("bitmap", bitmap),
            ("tables", tables),
            ("ids", ids),
            ("buckets", buckets),
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
        options: LshOptions,
    ) -> PyResult<Bound<'py, PyDict>> {
        let params = options.params();
        let queries = Block::extract(py, queries, self.query_dtype())?;
        let (n, dim) = (queries.shape()[0], queries.shape()[1]);
        let queries = Queries { values: queries.values(py)?, n, dim };
        let output = unlocked(py, |stop| self.inner.search(&queries, &params, stop))?;
        let found = arrays_of!(
            py,
            &output.counters,
            table_reads,
            block_reads,
            blocks,
            vector_reads,
            bytes_read,
            radii,
            entries,
            candidates,
            distances,
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
        format!("<LshIndex {} of {} vectors>", &self.build_id()[..12], self.n_vectors())
    }
}
