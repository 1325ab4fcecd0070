//! Open files.

use std::ops::Range;
use std::sync::Arc;

use bowwave_engine::{Advice, File, NamedFile};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::bytes::{Buffer, filled, wait};
use crate::errors::raised;
use crate::fetcher::Failures;
use crate::process::Owned;
use crate::reads::{Reads, now};

/// An open file. Any number of threads may use it.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Handle {
    file: Owned<Arc<NamedFile>>,
    /// Exceptions of a Python fetcher.
    failures: Option<Failures>,
}

impl Handle {
    pub(crate) fn new(file: NamedFile, failures: Option<Failures>) -> Self {
        Self { file: Owned::new(Arc::new(file)), failures }
    }

    pub(crate) fn named(&self) -> PyResult<&Arc<NamedFile>> {
        self.file.get()
    }

    pub(crate) fn file(&self) -> PyResult<&File> {
        Ok(self.named()?.file())
    }

    pub(crate) fn raised(&self, py: Python<'_>, error: &bowwave_engine::Error) -> PyErr {
        let behind = self.failures.as_ref().and_then(|failures| failures.behind(py, error));
        behind.unwrap_or_else(|| raised(error))
    }
}

#[pymethods]
impl Handle {
    /// Size in bytes.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.file()?.size())
    }

    /// Entity tag and time of the last modification in nanoseconds, if the store has them.
    #[getter]
    fn identity(&self) -> PyResult<(Option<String>, Option<i128>)> {
        let identity = self.file()?.identity();
        Ok((identity.etag, identity.modified_ns))
    }

    /// Whether its version may be that of a listing. If not, the store was asked at the open.
    #[getter]
    fn may_be_listed(&self) -> PyResult<bool> {
        Ok(self.named()?.may_be_listed())
    }

    /// Up to `length` bytes from `offset`; fewer only at the end of the file. Remembered in
    /// `reads`.
    #[pyo3(signature = (offset, length, reads = None))]
    fn pread<'py>(
        &self,
        py: Python<'py>,
        offset: i64,
        length: i64,
        reads: Option<&Bound<'py, Reads>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let reads = reads.map(|reads| (reads.get(), now()));
        let (file, offset, length) =
            (self.named()?, unsigned("offset", offset)?, unsigned("length", length)?);
        let left = file.file().size().saturating_sub(offset).min(length);
        let len = usize::try_from(left).unwrap_or(usize::MAX);
        let data = filled(py, len, file.file(), |bytes| {
            wait(py, len, file.to_read(offset, left).read_at_async(offset, bytes))?
                .map_err(|error| self.raised(py, &error))
        })?;
        if let Some((reads, begin)) = reads {
            reads.end(py, self, begin, offset, data.as_bytes().len())?;
        }
        Ok(data)
    }

    /// Reads into a buffer; returns how many bytes. Remembered in `reads`.
    #[pyo3(signature = (offset, buffer, reads = None))]
    fn readinto(
        &self,
        py: Python<'_>,
        offset: i64,
        buffer: &Bound<'_, PyAny>,
        reads: Option<&Bound<'_, Reads>>,
    ) -> PyResult<usize> {
        let reads = reads.map(|reads| (reads.get(), now()));
        let (file, offset) = (self.named()?, unsigned("offset", offset)?);
        let mut buffer = Buffer::writable(buffer)?;
        let bytes = buffer.as_mut_slice();
        let file = file.to_read(offset, bytes.len() as u64);
        let count = wait(py, bytes.len(), file.read_at_async(offset, bytes))?
            .map_err(|error| self.raised(py, &error))?;
        if let Some((reads, begin)) = reads {
            reads.end(py, self, begin, offset, count)?;
        }
        Ok(count)
    }

    /// The bytes of several ranges, all of them in flight at once; an exception in place of the
    /// bytes of a range that failed.
    fn read_ranges<'py>(&self, py: Python<'py>, ranges: Vec<(i64, i64)>) -> PyResult<Bound<'py, PyList>> {
        self.plan(py, ranges.clone())?;
        let read = PyList::empty(py);
        for (start, end) in ranges {
            match self.pread(py, start, end - start, None) {
                Ok(bytes) => read.append(bytes)?,
                Err(error) if error.is_instance_of::<pyo3::exceptions::PyException>(py) => {
                    read.append(error.into_value(py))?;
                }
                Err(interrupt) => return Err(interrupt),
            }
        }
        Ok(read)
    }

    /// Advises how `length` bytes from `offset` will be read; a `length` of 0 is to the end.
    fn advise(&self, py: Python<'_>, advice: &str, offset: i64, length: i64) -> PyResult<()> {
        let (offset, length) = (unsigned("offset", offset)?, unsigned("length", length)?);
        let known = [
            ("normal", Advice::Normal),
            ("sequential", Advice::Sequential),
            ("random", Advice::Random),
            ("willneed", Advice::WillNeed),
            ("dontneed", Advice::DontNeed),
            ("noreuse", Advice::NoReuse),
        ];
        let Some((_, advice)) = known.into_iter().find(|(name, _)| *name == advice) else {
            let names = known.map(|(name, _)| name).join(", ");
            return Err(PyValueError::new_err(format!(
                "{advice:?} is not an advice value; give one of {names}"
            )));
        };
        let file = self.file()?;
        py.detach(|| file.advise(offset, length, advice));
        Ok(())
    }

    /// Appends ranges `(start, end)` to the read plan.
    fn plan(&self, py: Python<'_>, ranges: Vec<(i64, i64)>) -> PyResult<()> {
        let file = self.file()?;
        let ranges = ranges.into_iter().map(range).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| file.plan(ranges)).map_err(|error| raised(&error))
    }

    /// Ends the read plan.
    fn end_plan(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.end_plan());
        Ok(())
    }

    /// Writes `data` at `offset`; returns how many bytes.
    fn write(&self, py: Python<'_>, offset: i64, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (file, data, offset) = (self.file()?, Buffer::readable(data)?, unsigned("offset", offset)?);
        let bytes = data.as_slice();
        py.detach(|| file.write_at(offset, bytes)).map_err(|error| raised(&error))
    }

    /// Completes all writes.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.sync(false)).map_err(|error| raised(&error))
    }

    /// Counters of the file: pages, requests and requested bytes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let file = self.file()?;
        let all = counters(py, &py.detach(|| file.stats()))?;
        let (requests, bytes) = file.fetched();
        all.set_item("requests", requests)?;
        all.set_item("bytes_fetched", bytes)?;
        Ok(all)
    }
}

/// The bytes from a start to an end.
fn range((start, end): (i64, i64)) -> PyResult<Range<u64>> {
    match unsigned("start", start)?..unsigned("end", end)? {
        range if range.start <= range.end => Ok(range),
        Range { start, end } => Err(PyValueError::new_err(format!(
            "the range ({start}, {end}) ends before it starts; a range is (start, end), not (start, length)"
        ))),
    }
}

/// Checks an offset or a length from Python.
pub(crate) fn unsigned(what: &str, value: i64) -> PyResult<u64> {
    u64::try_from(value).map_err(|_| {
        PyValueError::new_err(format!("{what} is {value}, but must be 0 or more: bytes count from the start"))
    })
}

/// Counters of a cache as a dictionary.
pub(crate) fn counters<'py>(py: Python<'py>, stats: &bowwave_engine::Stats) -> PyResult<Bound<'py, PyDict>> {
    let counters = PyDict::new(py);
    for (name, value) in [
        ("reads", stats.reads),
        ("accesses", stats.accesses),
        ("hits", stats.hits),
        ("late", stats.late),
        ("misses", stats.misses),
        ("pages_filled", stats.pages_filled),
        ("pages_readahead", stats.pages_readahead),
        ("pages_used", stats.pages_used),
        ("pages_planned", stats.pages_planned),
        ("pages_abandoned", stats.pages_abandoned),
        ("pages_evicted", stats.pages_evicted),
        ("pages_wasted", stats.pages_wasted),
    ] {
        counters.set_item(name, value)?;
    }
    Ok(counters)
}
