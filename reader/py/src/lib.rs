//! `indexmill.reader._native`: the reader for Python.

use pyo3::prelude::*;

mod device;
mod errors;
mod index;
pub mod kernels;
mod queries;
mod results;

/// The native reader.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("simd", indexmill_core::distance::kernels().name)?;
    module.add_class::<index::Index>()?;
    module.add_class::<index::Filter>()?;
    module.add_function(wrap_pyfunction!(device::measure_device, module)?)?;
    module.add_function(wrap_pyfunction!(index::verify, module)?)
}
