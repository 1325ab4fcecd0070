//! Mapped files.
#![allow(unsafe_code, reason = "lends mapped memory to Python's buffers, maps it again in a child")]

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use bowwave_engine::Advice;
use bowwave_engine::backend::sync::Mutex;
use bowwave_region::{MapOptions, Protection};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice};

use crate::bytes::SIGNALS;
use crate::errors::region_raised;
use crate::handle::{counters, unsigned};
use crate::process::Owned;
use crate::store::Store;

/// A file as memory: pages come from the store when they are touched.
#[pyclass(frozen, weakref, module = "bowwave._bowwave")]
pub(crate) struct Region {
    current: Current,
    /// Address and length of the memory, the same in children.
    base: usize,
    len: usize,
    writable: bool,
    /// A child could not map it, which may have lost what was written.
    is_lost: AtomicBool,
}

/// Page faults that a map remembers, as `READS` of `_history.py`.
const FAULTS: usize = 1000;

/// Bytes that are copied between two checks whether the caller still waits, and populated between
/// two steps of a bar.
const STEP: usize = 8 << 20;

/// Begin, end, offset, length, outcome.
type Read = (f64, f64, u64, u64, &'static str);

type Mapped = Owned<Arc<bowwave_region::Region>>;

/// The region of this process. A child replaces the parent's region and leaks it, because a thread
/// of the parent may have been using it. The pointer is atomic: such a thread might have held a
/// lock.
struct Current(AtomicPtr<Mapped>);

impl Current {
    fn new(region: bowwave_region::Region) -> Self {
        Self(AtomicPtr::new(Self::owned(region)))
    }

    fn owned(region: bowwave_region::Region) -> *mut Mapped {
        Box::into_raw(Box::new(Owned::new(Arc::new(region))))
    }

    fn mapped(&self) -> &Mapped {
        // SAFETY: created by `owned`, and freed only with `self`.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    fn replace(&self, region: bowwave_region::Region) {
        self.0.store(Self::owned(region), Ordering::Release);
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: created by `owned`, and dropped only here.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}

#[pymethods]
impl Region {
    /// `retry_for` is in seconds.
    #[new]
    fn new(py: Python<'_>, store: &Store, path: &str, writable: bool, retry_for: f64) -> PyResult<Self> {
        let protection = if writable { Protection::CopyOnWrite } else { Protection::ReadOnly };
        let retry_for = Duration::try_from_secs_f64(retry_for).map_err(|error| {
            PyValueError::new_err(format!(
                "retry_for is {retry_for}, but must be seconds, 0 or more: {error}"
            ))
        })?;
        let options =
            MapOptions { protection, retry_for, remembered_faults: FAULTS, ..MapOptions::default() };
        let store = store.inner()?;
        let region = py
            .detach(|| bowwave_region::Region::map(store, Path::new(path), &options))
            .map_err(|error| region_raised(&error))?;
        region.keep_in_children();
        let (base, len) = (region.as_ptr().addr(), region.len());
        Ok(Self { current: Current::new(region), base, len, writable, is_lost: AtomicBool::new(false) })
    }

    fn __len__(&self) -> usize {
        self.len
    }

    /// Whether it may be written.
    #[getter]
    fn writable(&self) -> bool {
        self.writable
    }

    /// Entity tag and time of the last modification in nanoseconds, if the store has them.
    #[getter]
    fn identity(&self) -> PyResult<(Option<String>, Option<i128>)> {
        let identity = self.region()?.identity();
        Ok((identity.etag, identity.modified_ns))
    }

    /// In a child of `fork`, before it has other threads that use the memory: maps the region again
    /// from a store of the child. Not after an error, which may have lost what was written.
    #[pyo3(name = "_map_in_child")]
    fn map_in_child(&self, py: Python<'_>, store: &Store) -> PyResult<()> {
        let mapped = self.current.mapped();
        if mapped.get().is_ok() {
            return Ok(());
        }
        let store = store.inner()?;
        if self.is_lost.swap(true, Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err("the map is lost: an earlier call has failed"));
        }
        // SAFETY: the parent's region, which children keep and never use otherwise; `_map.py` calls
        // this before the child runs other code.
        let region = py.detach(|| unsafe { mapped.of_parent().map_in_child(store) });
        self.current.replace(region.map_err(|error| region_raised(&error))?);
        self.is_lost.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Fetches and maps a range, in a thread of its own: Ctrl-C does not wait for the store.
    /// `progress` shows a bar, if tqdm is installed.
    #[pyo3(signature = (offset, length, progress = false))]
    fn populate(&self, py: Python<'_>, offset: i64, length: i64, progress: bool) -> PyResult<()> {
        let region = Arc::clone(self.region()?);
        let (offset, length) = (unsigned("offset", offset)?, unsigned("length", length)?);
        let populate = |start: u64, length: u64| {
            let region = Arc::clone(&region);
            elsewhere(py, "bowwave-populate", move || region.populate(start, length))
        };
        if !progress || offset.saturating_add(length) > self.len as u64 {
            return populate(offset, length);
        }
        let bar = py.import("bowwave._progress")?.getattr("bar")?.call1((length, "B", true))?;
        let populated = (0..length).step_by(STEP).try_for_each(|at| {
            let count = (STEP as u64).min(length - at);
            // The next step is fetched meanwhile.
            let next = (STEP as u64).min(length - at - count);
            if next > 0 {
                let _a_hint = region.advise(offset + at + count, next, Advice::WillNeed);
            }
            populate(offset + at, count)?;
            bar.call_method1("update", (count,)).map(drop)
        });
        bar.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
        populated
    }

    /// The bytes of a slice, or one of them as a number. Fetches them first: raises the error of
    /// the store.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let indices = slice.indices(self.len.cast_signed())?;
            if indices.step != 1 {
                let what =
                    "a slice of a lazy map has a step of 1: use numpy.frombuffer(memory, 'u1') for others";
                return Err(PyValueError::new_err(what));
            }
            let (start, count) = (indices.start.cast_unsigned(), indices.slicelength);
            return Ok(self.copied(py, start, count)?.into_any());
        }
        let index: isize = key.extract()?;
        let at = if index < 0 { index + self.len.cast_signed() } else { index };
        if at < 0 || at.cast_unsigned() >= self.len {
            return Err(PyIndexError::new_err(format!("byte {index} of a map of {} bytes", self.len)));
        }
        let byte = self.copied(py, at.cast_unsigned(), 1)?.as_bytes()[0];
        Ok(byte.into_pyobject(py)?.into_any())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.copied(py, 0, self.len)
    }

    /// A region is not iterable: each byte would be a call. A `memoryview` of it is.
    #[classattr]
    fn __iter__() -> Option<Py<PyAny>> {
        None
    }

    #[classattr]
    fn __contains__() -> Option<Py<PyAny>> {
        None
    }

    /// Fetches a range without waiting for it.
    fn prefetch(&self, py: Python<'_>, offset: i64, length: i64) -> PyResult<()> {
        let region = self.region()?;
        let (offset, length) = (unsigned("offset", offset)?, unsigned("length", length)?);
        py.detach(|| region.advise(offset, length, Advice::WillNeed)).map_err(|error| region_raised(&error))
    }

    /// Pages that could not be fetched: offset and cause.
    fn failures(&self) -> PyResult<Vec<(u64, String)>> {
        Ok(self.region()?.failures())
    }

    /// The last 1000 page faults and populated ranges: begin and end in seconds of
    /// `time.monotonic`, offset and length in bytes.
    fn reads(&self, py: Python<'_>) -> PyResult<Vec<(f64, f64, u64, u64)>> {
        Ok(self.faults(py)?.into_iter().map(|(begin, end, at, length, _)| (begin, end, at, length)).collect())
    }

    /// As `reads`, with outcomes.
    #[pyo3(name = "_faults")]
    fn faults(&self, py: Python<'_>) -> PyResult<Vec<Read>> {
        let faults = self.region()?.last_faults();
        let now: f64 = py.import("time")?.call_method0("monotonic")?.extract()?;
        let here = Instant::now();
        let seconds = |time| now - here.saturating_duration_since(time).as_secs_f64();
        let reads = faults.into_iter().map(|fault| {
            let length = fault.bytes.end - fault.bytes.start;
            (seconds(fault.begun), seconds(fault.ended), fault.bytes.start, length, fault.outcome.name())
        });
        Ok(reads.collect())
    }

    /// A table of the counters and a picture of the last faults, for notebooks.
    #[pyo3(name = "_repr_html_")]
    fn html(slf: Bound<'_, Self>) -> PyResult<String> {
        slf.py().import("bowwave._html")?.call_method1("of_lazy_map", (slf,))?.extract()
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.region()?.stats();
        let all = counters(py, &stats.cache)?;
        all.set_item("faults", stats.faults)?;
        all.set_item("pages_mapped", stats.pages_mapped)?;
        Ok(all)
    }

    /// # Safety
    /// As Python calls it: `view` is valid.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if flags & ffi::PyBUF_WRITABLE != 0 && !this.writable {
            return Err(PyBufferError::new_err("the map is read-only; open it with writable=True"));
        }
        // In a child without the memory, an exception instead of a segmentation fault.
        this.region()?;
        let (len, readonly) = (this.len.cast_signed(), c_int::from(!this.writable));
        let memory = ptr::with_exposed_provenance_mut::<c_void>(this.base);
        // SAFETY: the memory lives as long as the region, which the view holds by `slf`.
        let code = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory, len, readonly, flags) };
        if code == -1 { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}

impl Region {
    fn region(&self) -> PyResult<&Arc<bowwave_region::Region>> {
        self.current.mapped().get()
    }

    fn copied<'py>(&self, py: Python<'py>, start: usize, count: usize) -> PyResult<Bound<'py, PyBytes>> {
        let region = Arc::clone(self.region()?);
        let fails =
            || PyMemoryError::new_err(format!("{count} bytes do not fit into memory; copy fewer at a time"));
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count).map_err(|_| fails())?;
        let waits = Arc::new(AtomicBool::new(true));
        let _waits = Waits(Arc::clone(&waits));
        let bytes = elsewhere(py, "bowwave-copy", move || {
            bytes.resize(count, 0);
            let mut at = start as u64;
            for part in bytes.chunks_mut(STEP).take_while(|_| waits.load(Ordering::Relaxed)) {
                region.copy(at, part)?;
                at += part.len() as u64;
            }
            Ok(bytes)
        })?;
        PyBytes::new_with(py, count, |all| {
            all.copy_from_slice(&bytes);
            Ok(())
        })
        .map_err(|_| fails())
    }
}

/// A caller that waits for a copy, until it is dropped: then the copy ends early.
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Runs a call in a thread of its own and waits for it: Ctrl-C does not wait for the store.
fn elsewhere<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    call: impl FnOnce() -> bowwave_region::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let run = move || {
        // After Ctrl-C, no caller waits.
        sender.send(call()).ok();
    };
    thread::Builder::new().name(name.into()).spawn(run)?;
    let receiver = Mutex::new(receiver);
    loop {
        let received = || receiver.lock().recv_timeout(SIGNALS);
        match py.detach(received) {
            Ok(done) => return done.map_err(|error| region_raised(&error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(format!("the thread {name} has ended")));
            }
        }
    }
}
