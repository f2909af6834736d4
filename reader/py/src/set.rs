//! The class `GraphSet`.

use std::sync::Arc;

use indexmill_core::graph::GraphSet as CoreSet;
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::unlocked;
use crate::class::Held;
use crate::errors;
use crate::index::{Filter, Index, Options};
use crate::queries::with_queries;
use crate::results::found;

/// Opened indexes that are searched together; safe to search from several threads at once.
#[pyclass(frozen, module = "indexmill.reader._native")]
pub struct GraphSet {
    inner: Held<CoreSet>,
}

#[pymethods]
impl GraphSet {
    /// Puts opened indexes together, in this order.
    #[staticmethod]
    fn of(py: Python<'_>, indexes: Vec<PyRef<'_, Index>>) -> PyResult<Self> {
        let indexes = indexes.iter().map(|index| (*index.inner).clone()).collect();
        unlocked(py, |_| CoreSet::new(indexes)).map(|inner| GraphSet { inner: Held::new(inner) })
    }

    /// Puts filters together, one of each index in their order.
    fn filter(&self, py: Python<'_>, filters: Vec<PyRef<'_, Filter>>) -> PyResult<Filter> {
        let filters: Vec<_> = filters.iter().map(|filter| filter.inner.clone()).collect();
        let made = unlocked(py, |_| self.inner.filter(&filters))?;
        Ok(Filter { inner: Arc::new(made) })
    }

    /// Finds the k nearest vertices of each query in the indexes that it needs, those that are not 0 in its row of `routes`.
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        routes: PyReadonlyArray2<'py, u8>,
        options: Options<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let params = options.params().map_err(|e| errors::to_python(py, &e))?;
        let routes: Vec<bool> = routes.as_array().iter().map(|&is_needed| is_needed != 0).collect();
        let output = with_queries(py, queries, self.inner.query_dtype(), |queries, stop| {
            self.inner.search_unless(queries, &routes, &params, stop)
        })?;
        found(py, output)
    }

    fn __repr__(&self) -> String {
        format!("<GraphSet of {} vectors>", self.inner.n_vertices())
    }
}
