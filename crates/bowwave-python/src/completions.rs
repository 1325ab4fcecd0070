//! Reads for an event loop. The loop waits for one descriptor, then polls the reads that woke it.

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use bowwave_engine::backend::sync::Mutex;

use crate::bytes::NewBytes;
use crate::handle::{Handle, unsigned};
use crate::process::Owned;

type Read = Pin<Box<dyn Future<Output = bowwave_engine::Result<usize>> + Send>>;

/// Reads in progress of one event loop.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Completions {
    inner: Owned<Inner>,
}

struct Inner {
    woken: Arc<Woken>,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    next: u64,
    /// A read is dropped before the bytes that it writes.
    reads: HashMap<u64, (Read, NewBytes, Py<Handle>)>,
}

/// Tokens of reads to poll, and the eventfd that wakes the loop for them.
struct Woken {
    tokens: Mutex<Vec<u64>>,
    event: File,
}

struct Wakes {
    woken: Arc<Woken>,
    token: u64,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let mut tokens = self.woken.tokens.lock();
        tokens.push(self.token);
        drop(tokens);
        // Fails only if 2^64 wake-ups are unread.
        let _full = (&self.woken.event).write(&1u64.to_ne_bytes());
    }
}

impl Inner {
    /// Polls a read; `None` while it waits.
    fn poll(&self, py: Python<'_>, token: u64, read: &mut Read) -> Option<bowwave_engine::Result<usize>> {
        let waker = Waker::from(Arc::new(Wakes { woken: Arc::clone(&self.woken), token }));
        let polled = py.detach(|| read.as_mut().poll(&mut Context::from_waker(&waker)));
        match polled {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Self> {
        #[allow(unsafe_code, reason = "eventfd(2)")]
        // SAFETY: a system call without pointers; the descriptor is new, and owned by the file.
        let event = unsafe {
            let event = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if event < 0 {
                return Err(PyOSError::new_err(std::io::Error::last_os_error().to_string()));
            }
            File::from_raw_fd(event)
        };
        let woken = Arc::new(Woken { tokens: Mutex::default(), event });
        Ok(Self { inner: Owned::new(Inner { woken, tasks: Mutex::default() }) })
    }

    /// The descriptor to wait for.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.inner.get()?.woken.event.as_raw_fd())
    }

    /// Starts a read; returns its bytes if they are cached, otherwise a token.
    fn submit<'py>(
        &self,
        py: Python<'py>,
        handle: &Bound<'py, Handle>,
        offset: i64,
        length: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (offset, length) = (unsigned("offset", offset)?, unsigned("length", length)?);
        let inner = self.inner.get()?;
        let file = Arc::clone(handle.get().named()?);
        let len =
            usize::try_from(file.file().size().saturating_sub(offset).min(length)).unwrap_or(usize::MAX);
        let bytes = NewBytes::new(py, len, file.file())?;
        #[allow(unsafe_code, reason = "memory that is lent to a read")]
        // SAFETY: the read is dropped before the bytes, here and in the table.
        let memory = unsafe { bytes.memory() };
        let mut read: Read =
            Box::pin(async move { file.to_read(offset, len as u64).read_at_async(offset, memory).await });
        let token = {
            let mut tasks = inner.tasks.lock();
            tasks.next += 1;
            tasks.next
        };
        match inner.poll(py, token, &mut read) {
            Some(Ok(count)) => {
                drop(read);
                Ok(bytes.ended(py, count).into_any())
            }
            Some(Err(error)) => Err(handle.get().raised(py, &error)),
            None => {
                inner.tasks.lock().reads.insert(token, (read, bytes, handle.clone().unbind()));
                // A wake-up may have come before the read was in the table.
                let woken = inner.woken.tokens.lock().contains(&token);
                if woken {
                    let _full = (&inner.woken.event).write(&1u64.to_ne_bytes());
                }
                Ok(token.into_pyobject(py)?.into_any())
            }
        }
    }

    /// Drops a read.
    fn cancel(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        let dropped = self.inner.get()?.tasks.lock().reads.remove(&token);
        if let Some((read, _bytes, _handle)) = dropped {
            py.detach(|| drop(read));
        }
        Ok(())
    }

    /// The reads that ended: token, and bytes or exception.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u64, Bound<'py, PyAny>)>> {
        let inner = self.inner.get()?;
        // Nothing to read if another poll was first.
        let _empty = (&inner.woken.event).read(&mut [0; 8]);
        let tokens = std::mem::take(&mut *inner.woken.tokens.lock());
        let mut ended = Vec::new();
        for token in tokens {
            let Some((mut read, bytes, handle)) = inner.tasks.lock().reads.remove(&token) else { continue };
            match inner.poll(py, token, &mut read) {
                Some(Ok(count)) => {
                    drop(read);
                    ended.push((token, bytes.ended(py, count).into_any()));
                }
                Some(Err(error)) => {
                    drop(read);
                    let exception = handle.get().raised(py, &error).into_value(py);
                    ended.push((token, exception.into_bound(py).into_any()));
                }
                None => {
                    inner.tasks.lock().reads.insert(token, (read, bytes, handle));
                }
            }
        }
        Ok(ended)
    }
}
