//! Mapped files.
#![allow(unsafe_code, reason = "lends mapped memory to Python's buffers")]

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bowwave_engine::Advice;
use bowwave_region::{MapOptions, Protection};
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bytes::SIGNALS;
use crate::errors::region_raised;
use crate::handle::{counters, unsigned};
use crate::process::Owned;
use crate::store::Store;

/// A file as memory: pages come from the store when they are touched.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Region {
    region: Owned<Arc<bowwave_region::Region>>,
    writable: bool,
}

#[pymethods]
impl Region {
    #[new]
    fn new(py: Python<'_>, store: &Store, path: &str, writable: bool) -> PyResult<Self> {
        let protection = if writable { Protection::CopyOnWrite } else { Protection::ReadOnly };
        let options = MapOptions { protection, ..MapOptions::default() };
        let store = store.inner()?;
        let region = py
            .detach(|| bowwave_region::Region::map(store, Path::new(path), &options))
            .map_err(|error| region_raised(&error))?;
        Ok(Self { region: Owned::new(Arc::new(region)), writable })
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.region.get()?.len())
    }

    /// Fetches and maps a range, in a thread of its own: Ctrl-C does not wait for the store.
    fn populate(&self, py: Python<'_>, offset: i64, length: i64) -> PyResult<()> {
        let region = Arc::clone(self.region.get()?);
        let (offset, length) = (unsigned("offset", offset)?, unsigned("length", length)?);
        let (sender, receiver) = sync_channel(1);
        let populate = move || {
            // After Ctrl-C, no caller waits.
            sender.send(region.populate(offset, length)).ok();
        };
        thread::Builder::new().name("bowwave-populate".into()).spawn(populate)?;
        let receiver = Mutex::new(receiver);
        loop {
            let received = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNALS);
            match py.detach(received) {
                Ok(populated) => return populated.map_err(|error| region_raised(&error)),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("the thread that populates has ended"));
                }
            }
        }
    }

    /// Fetches a range without waiting for it.
    fn prefetch(&self, py: Python<'_>, offset: i64, length: i64) -> PyResult<()> {
        let region = self.region.get()?;
        let (offset, length) = (unsigned("offset", offset)?, unsigned("length", length)?);
        py.detach(|| region.advise(offset, length, Advice::WillNeed)).map_err(|error| region_raised(&error))
    }

    /// Pages that could not be fetched: offset and cause.
    fn failures(&self) -> PyResult<Vec<(u64, String)>> {
        Ok(self.region.get()?.failures())
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.region.get()?.stats();
        let all = counters(py, &stats.cache)?;
        all.set_item("faults", stats.faults)?;
        all.set_item("pages_mapped", stats.pages_mapped)?;
        Ok(all)
    }

    /// # Safety
    /// As Python calls it: `view` is valid.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let region = this.region.get()?;
        if flags & ffi::PyBUF_WRITABLE != 0 && !this.writable {
            return Err(PyBufferError::new_err("the map is read-only; open it with writable=True"));
        }
        let len = region.len().cast_signed();
        let readonly = c_int::from(!this.writable);
        // SAFETY: the memory lives as long as the region, which the view holds by `slf`.
        let code = unsafe {
            let memory = region.as_ptr().cast_mut().cast::<c_void>();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory, len, readonly, flags)
        };
        if code == -1 { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}
