//! What the classes of all kinds of indexes have in common.

use std::ops::Deref;
use std::sync::Arc;

use pyo3::Python;

/// An index of the core. Whoever lets go of it last closes it, which waits for its search threads and gives its memory
/// back: other Python threads go on meanwhile.
pub struct Held<I: Send + Sync>(Option<Arc<I>>);

impl<I: Send + Sync> Held<I> {
    /// An index that was opened.
    pub fn new(index: I) -> Self {
        Held(Some(Arc::new(index)))
    }
}

impl<I: Send + Sync> Deref for Held<I> {
    type Target = Arc<I>;

    fn deref(&self) -> &Arc<I> {
        self.0.as_ref().expect("an index is there until it is dropped")
    }
}

impl<I: Send + Sync> Drop for Held<I> {
    fn drop(&mut self) {
        let index = self.0.take();
        // Without an interpreter there is no lock either, and the index goes with this closure.
        let _ = Python::try_attach(|py| py.detach(|| drop(index)));
    }
}

/// Defines the methods of a class around an index of the core, its field `inner`: those of every kind, getters
/// `name: type = value` (of which the first counts the vectors), and other methods. pyo3 takes them in one piece.
macro_rules! index_class {
    (
        $class:ident($index:ident) {
            $count:ident: $count_type:ty = $count_value:expr;
            $($getter:ident: $type:ty = $value:expr;)*
        }
        $($method:tt)*
    ) => {
        #[pymethods]
        impl $class {
            #[getter]
            fn $count(&self) -> $count_type {
                let $index = &self.inner;
                $count_value
            }

            $(
                #[getter]
                fn $getter(&self) -> $type {
                    let $index = &self.inner;
                    $value
                }
            )*

            #[getter]
            fn n_deleted(&self) -> u32 {
                self.inner.living.as_ref().map_or(0, |living| living.n_deleted())
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
                let file = self.inner.manifest.file(indexmill_core::manifest::METADATA_FILE);
                file.map(|file| file.sha256.as_str())
            }

            /// A descriptor of metadata.parquet, the caller's to close; None if there is none.
            fn open_metadata(&self) -> PyResult<Option<std::os::fd::RawFd>> {
                let Some(file) = &self.inner.metadata else { return Ok(None) };
                Ok(Some(std::os::fd::IntoRawFd::into_raw_fd(file.try_clone()?)))
            }

            /// Reads the ids that searches look up into memory.
            fn hold_ids(&self, py: Python<'_>) -> PyResult<()> {
                $crate::calls::unlocked(py, |stop| self.inner.ids.hold_unless(stop))
            }

            /// Vector ids of user ids, -1 for ids that no vector has.
            fn find_ids<'py>(
                &self,
                py: Python<'py>,
                ids: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, numpy::PyArray1<i64>>> {
                $crate::finding::find(py, &self.inner.ids, ids)
            }

            /// User ids of a 1-D int64 array of slots.
            fn user_ids<'py>(
                &self,
                py: Python<'py>,
                slots: numpy::PyReadonlyArray1<'py, i64>,
            ) -> PyResult<Vec<Bound<'py, PyAny>>> {
                $crate::results::user_ids(py, &self.inner.ids, self.$count(), slots)
            }

            fn __repr__(&self) -> String {
                format!("<{} {} of {} vectors>", stringify!($class), &self.build_id()[..12], self.$count())
            }

            $($method)*
        }
    };
}
pub(crate) use index_class;
