//! `indexmill.reader._native`: the reader for Python.

use pyo3::prelude::*;

mod calls;
mod class;
mod device;
mod errors;
mod finding;
mod index;
mod ivf;
pub mod kernels;
mod lsh;
mod mailbox;
mod queries;
mod results;
mod store;

/// The native reader.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(calls::unit, module)?)?;
    calls::unit(module.py())?; // a wrong INDEXMILL_ISA is told at once
    module.add_class::<index::Index>()?;
    module.add_class::<index::Filter>()?;
    module.add_class::<ivf::IvfIndex>()?;
    module.add_class::<lsh::LshIndex>()?;
    module.add_class::<mailbox::Mailbox>()?;
    module.add_class::<mailbox::Ticket>()?;
    module.add_class::<store::Errands>()?;
    module.add_function(wrap_pyfunction!(device::measure_device, module)?)?;
    module.add_function(wrap_pyfunction!(calls::index_kind, module)?)?;
    module.add_function(wrap_pyfunction!(calls::verify, module)?)
}
