//! `bytes` objects that are read into, buffers of other objects, and waits that Ctrl-C ends.
#![allow(unsafe_code, reason = "memory of Python's objects")]

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use bowwave_engine::File;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::gil;

/// How often a waiting thread looks for signals.
pub(crate) const SIGNALS: Duration = Duration::from_millis(100);

/// A new `bytes` that no one else has yet. A read writes it, which may end in another thread.
pub(crate) struct NewBytes {
    object: Py<PyBytes>,
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to the object, which is owned here and moves with it.
unsafe impl Send for NewBytes {}

impl NewBytes {
    /// Memory for `len` bytes of a file, whose size is what a server claims, and may be absurd.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn new(py: Python<'_>, len: usize, file: &File) -> PyResult<Self> {
        let fails = || {
            let place = file.name();
            PyMemoryError::new_err(format!(
                "{place}: {len} bytes do not fit into memory; read fewer at a time"
            ))
        };
        let size = isize::try_from(len).map_err(|_| fails())?;
        // SAFETY: a new object of `size` bytes, owned here; null raises.
        let object = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))
        }
        .map_err(|_| fails())?;
        // SAFETY: a `bytes`, as created above.
        let (start, object) = unsafe {
            (ffi::PyBytes_AsString(object.as_ptr()).cast::<u8>(), object.cast_into_unchecked::<PyBytes>())
        };
        Ok(Self { object: object.unbind(), start, len })
    }

    /// The memory, for the time of a read.
    ///
    /// # Safety
    /// The caller drops the slice before `self`, and has one at a time.
    pub(crate) unsafe fn memory<'a>(&self) -> &'a mut [u8] {
        // SAFETY: `len` new bytes, not shared yet. They are written before they are read: `ended`
        // has how many, and cuts off the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// The object, of which `count` bytes were written.
    pub(crate) fn ended(self, py: Python<'_>, count: usize) -> Bound<'_, PyBytes> {
        let object = self.object.into_bound(py);
        if count == self.len { object } else { PyBytes::new(py, &object.as_bytes()[..count]) }
    }
}

/// A new `bytes` of `len` bytes of a file, which `fill` writes; it returns how many of them it
/// wrote.
///
/// # Errors
/// `MemoryError`, and those of `fill`.
pub(crate) fn filled<'py>(
    py: Python<'py>,
    len: usize,
    file: &File,
    fill: impl FnOnce(&mut [u8]) -> PyResult<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = NewBytes::new(py, len, file)?;
    // SAFETY: dropped at the end of `fill`.
    let count = fill(unsafe { bytes.memory() })?;
    Ok(bytes.ended(py, count))
}

/// A contiguous buffer of another object, held until it is dropped.
pub(crate) struct Buffer(Box<ffi::Py_buffer>);

// SAFETY: the buffer is held, so its memory stays; only a thread with the interpreter releases it.
unsafe impl Send for Buffer {}

impl Buffer {
    /// The bytes of a writable object.
    ///
    /// # Errors
    /// `BufferError` or `TypeError` if it is not writable or not contiguous.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of(object, ffi::PyBUF_WRITABLE)
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of(object, ffi::PyBUF_SIMPLE)
    }

    fn of(object: &Bound<'_, PyAny>, flags: std::ffi::c_int) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: a valid object and an empty view.
        let code = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) };
        if code == -1 { Err(PyErr::fetch(object.py())) } else { Ok(Self(view)) }
    }

    /// The bytes, of an object that no other thread writes meanwhile.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self.0.len {
            0 => &[],
            // SAFETY: simple buffers are contiguous, and held.
            len => unsafe { std::slice::from_raw_parts(self.0.buf.cast(), len.cast_unsigned()) },
        }
    }

    /// The bytes, of a writable object.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.0.len {
            0 => &mut [],
            // SAFETY: as above; requested as writable. Other threads that use the memory meanwhile
            // see old and new bytes mixed, as with every file's `readinto`.
            len => unsafe { std::slice::from_raw_parts_mut(self.0.buf.cast(), len.cast_unsigned()) },
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: held since `of`; the caller has the interpreter.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    /// Whether the last read of this thread waited for bytes.
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Bytes of the shortest read that is copied from the cache without the GIL while other threads
/// read. Smaller: moving the GIL and what it guards between processors takes longer than the copy.
const RELEASED_MIN: usize = 64 << 10;
/// Bytes of the longest read that is copied with the GIL held if no other thread reads. Smaller: a
/// read loses the GIL to threads that compute, for 5 ms; larger: these wait for the copy.
const ALONE_MAX: usize = 256 << 10;

/// Whether the last read of this thread waited for bytes that were not cached.
#[pyfunction]
pub(crate) fn waited() -> bool {
    WAITED.get()
}

/// Waits for a read of `len` bytes without the GIL.
///
/// # Errors
/// `KeyboardInterrupt`, and what other signal handlers raise; the future is then dropped.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    len: usize,
    future: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let waker = WAKER.with(Waker::clone);
    WAITED.set(false);
    let mut future = pin!(future);
    let held = if !gil::is_free() && gil::is_shared() { len < RELEASED_MIN } else { len <= ALONE_MAX };
    if held && let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
        return Ok(value);
    }
    gil::released(py, move || {
        let mut context = Context::from_waker(&waker);
        let mut looked = None;
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Ok(value);
            }
            WAITED.set(true);
            let since: &mut Instant = looked.get_or_insert_with(Instant::now);
            thread::park_timeout(SIGNALS);
            if since.elapsed() >= SIGNALS {
                Python::attach(|py| py.check_signals())?;
                *since = Instant::now();
            }
        }
    })
}
