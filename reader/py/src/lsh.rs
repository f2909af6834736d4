//! The class `LshIndex`.

use std::path::PathBuf;

use indexmill_core::LshIndex as CoreIndex;
use indexmill_core::lsh::{InMemory, LshOutput, LshParams};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::calls::{count, unlocked};
use crate::class::{Held, index_class};
use crate::mailbox::{Mailbox, Ticket};
use crate::queries::{copied, with_queries};
use crate::results::{arrays_of, with_found};

/// An opened index of kind "lsh"; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct LshIndex {
    inner: Held<CoreIndex>,
}

/// Arguments of a search besides the queries; negative numbers become 0, which the core refuses.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct LshOptions {
    k: i64,
    candidates: Option<i64>,
    probes: Option<i64>,
    threads: i64,
    inflight: i64,
}

impl LshOptions {
    fn params(&self) -> LshParams {
        // A negative number of probes is more than there can be.
        LshParams::new(count(self.k))
            .candidates(self.candidates.map(|x| u64::try_from(x).unwrap_or(0)))
            .probes(self.probes.map(|x| usize::try_from(x).unwrap_or(usize::MAX)))
            .threads(count(self.threads))
            .inflight(count(self.inflight))
    }
}

/// The answers of a search.
fn found(py: Python<'_>, output: LshOutput) -> PyResult<Bound<'_, PyDict>> {
    let counters = arrays_of!(
        py,
        &output.counters,
        table_reads,
        block_reads,
        blocks,
        vector_reads,
        bytes_read,
        id_pages_read,
        radii,
        entries,
        candidates,
        distances,
        latency_us,
        io_wait_us
    );
    with_found(counters, output)
}

index_class! {
    LshIndex(index) {
        n_vectors: u32 = index.functions.n_vectors;
        dim: usize = index.user_dim();
        dtype: &'static str = index.vectors.dtype().name();
        query_dtype: &'static str = index.vectors.dtype().query_name();
        metric: &'static str = index.vectors.metric.name();
        n_functions: usize = index.functions.n_functions;
        n_tables: usize = index.functions.n_tables;
        candidates: u64 = index.functions.candidates;
        probes: usize = index.functions.probes;
        ratio: f64 = index.functions.ratio;
        block_bytes: usize = index.functions.block_bytes;
    }

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
        let held = InMemory::default().vectors(vectors_in_memory).tables(tables_in_memory);
        unlocked(py, |stop| CoreIndex::open_unless(&path, engine, held, stop)).map(|inner| LshIndex { inner: Held::new(inner) })
    }

    #[getter]
    fn radii<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.inner.functions.radii)
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
        options: LshOptions,
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
        options: LshOptions,
    ) -> PyResult<Ticket> {
        let (params, queries) = (options.params(), copied(py, queries, self.query_dtype())?);
        let done = mailbox.get().slot(token, found);
        Ticket::begin(py, || self.inner.search_later(queries, params, done))
    }
}
