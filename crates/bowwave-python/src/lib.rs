//! `bowwave._bowwave`, the extension module of the Python package in `python/bowwave`.
//!
//! It has no logic of its own: engine and region do the work, and the package decides how Python
//! sees it. Every blocking call releases the interpreter.
//!
//! ```text
//!   python/bowwave     files, fsspec, formats, reports
//!     Engine, Store, Handle     engine, store, open file
//!     Fetcher                   a store over a Python callable
//!     Reads                     the last reads of a file
//!     Completions               reads for an event loop
//!     Region                    a mapped file
//!     Siblings                  which files a program opens next
//!     Trails                    files that are read alike
//! ```
#![allow(missing_docs, reason = "the reference is python/bowwave/_bowwave.pyi")]

mod bytes;
mod completions;
mod errors;
mod fetcher;
mod gil;
mod handle;
mod process;
mod reads;
mod region;
mod siblings;
mod store;
mod trails;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _bowwave {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::bytes::waited;
    #[pymodule_export]
    use crate::completions::Completions;
    #[pymodule_export]
    use crate::fetcher::end_fetches;
    #[pymodule_export]
    use crate::handle::Handle;
    #[pymodule_export]
    use crate::process::{Forked, forked};
    #[pymodule_export]
    use crate::reads::Reads;
    #[pymodule_export]
    use crate::region::Region;
    #[pymodule_export]
    use crate::siblings::Siblings;
    #[pymodule_export]
    use crate::store::{Engine, Store, settings};
    #[pymodule_export]
    use crate::trails::Trails;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::gil::look(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
