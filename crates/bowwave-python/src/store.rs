//! Engines and stores.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowwave_engine::backend::{Credentials, Entry, Profile, Rename, WillRead};
use bowwave_engine::{EntryKind, ManyFiles, NamedFile, Namespace as _, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors::{raised, store_raised};
use crate::fetcher::{Failures, Fetcher};
use crate::handle::{Handle, counters};
use crate::process::Owned;

/// Best request of an object store; see its profile.
const FAR_REQUEST: u64 = 16 << 20;
/// Typical time to first byte of a remote store.
const FAR_LATENCY: Duration = Duration::from_millis(30);

/// Owners between whom stores divide what readahead across files may take of their cache. If there
/// are more stores, they may take more together.
const SHARES: u64 = 2;

/// A cache over any number of stores.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Engine {
    engine: Owned<bowwave_engine::Engine>,
}

#[pymethods]
impl Engine {
    /// `settings` are `KEY=VALUE` pairs; `far` tells whether its stores have a latency worth large
    /// windows.
    #[new]
    fn new(py: Python<'_>, settings: &str, far: bool) -> PyResult<Self> {
        let settings = parsed(settings)?;
        let mut profile = Profile::read_only("python");
        if far {
            profile.request_bytes_best = FAR_REQUEST;
            profile.latency = FAR_LATENCY;
        }
        let engine = py.detach(|| settings.engine([&profile])).map_err(|error| raised(&error))?;
        Ok(Self { engine: Owned::new(engine) })
    }

    /// Opens the store at `url`. `keys` are names and values of a cloud's keys, in place of those
    /// in the environment.
    #[pyo3(signature = (url, settings, keys=None))]
    fn store(
        &self,
        py: Python<'_>,
        url: &str,
        settings: &str,
        keys: Option<BTreeMap<String, String>>,
    ) -> PyResult<Store> {
        let mut settings = parsed(settings)?;
        settings.options.store.credentials = keys.map(credentials).transpose()?;
        let engine = self.engine.get()?;
        let open = {
            let (engine, url) = (engine.clone(), url.to_owned());
            move || Ok(engine.store_of(settings.backend(&url)?))
        };
        let store = py.detach(&open).map_err(|error: bowwave_engine::Error| raised(&error))?;
        Ok(Store { files: Owned::new(ManyFiles::new(store, SHARES, open)), failures: None })
    }

    /// A store with one object of `size` bytes, which `fetch(start, end)` reads. It may be called
    /// by several threads at once.
    fn fetcher(&self, name: &str, size: u64, tag: Option<String>, fetch: Py<PyAny>) -> PyResult<Store> {
        let failures = Failures::default();
        let backend = Fetcher::new(name, size, tag, fetch, failures.clone());
        let store = self.engine.get()?.store_of(Arc::new(backend));
        let again = || Err(bowwave_engine::Error::Options("a fetcher has one file".to_owned()));
        let files = ManyFiles::new(store, SHARES, again);
        Ok(Store { files: Owned::new(files), failures: Some(failures) })
    }

    /// Counters: pages, requests and bytes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.engine.get()?;
        let stats = py.detach(|| engine.stats());
        let all = counters(py, &stats.cache)?;
        for (name, value) in [
            ("page_bytes", stats.page_bytes),
            ("frames", stats.frames),
            ("frames_used", stats.frames_used),
            ("metadata_bytes", stats.metadata_bytes),
        ] {
            all.set_item(name, value)?;
        }
        add_requests(&all, &stats.store)?;
        Ok(all)
    }
}

/// The keys of the cloud that the names belong to.
fn credentials(mut keys: BTreeMap<String, String>) -> PyResult<Credentials> {
    let mut take = |name| keys.remove(name);
    if let Some(service_account_key) = take("service_account") {
        return Ok(Credentials::Google { service_account_key });
    }
    if let Some(account_name) = take("account_name") {
        return Ok(Credentials::Azure {
            account_name,
            account_key: take("account_key"),
            sas_token: take("sas_token"),
        });
    }
    let (Some(access_key_id), Some(secret_access_key)) = (take("key"), take("secret")) else {
        return Err(PyValueError::new_err("keys are key and secret, account_name, or service_account"));
    };
    Ok(Credentials::Amazon { access_key_id, secret_access_key, session_token: take("token") })
}

/// A tree of objects, read through an engine.
#[pyclass(frozen, module = "bowwave._bowwave")]
pub(crate) struct Store {
    files: Owned<ManyFiles>,
    failures: Option<Failures>,
}

impl Store {
    pub(crate) fn inner(&self) -> PyResult<&bowwave_engine::Store> {
        Ok(self.files.get()?.store())
    }

    /// The store, through which the program changes a path.
    fn changing(&self, path: &str) -> PyResult<&bowwave_engine::Store> {
        let files = self.files.get()?;
        files.changed(Path::new(path));
        Ok(files.store())
    }
}

#[pymethods]
impl Store {
    /// Whether the policy reads ahead other files of a directory.
    #[getter]
    fn reads_siblings(&self) -> PyResult<bool> {
        Ok(self.inner()?.reads_siblings())
    }

    /// Bytes of the cache.
    #[getter]
    fn cache_bytes(&self) -> PyResult<u64> {
        Ok(self.inner()?.cache_bytes())
    }

    /// Opens an object for reading; the empty path is the root. `first` is the range that will be
    /// read first, as a start and an end in bytes. An end of `None` is the end of the object. A
    /// start of -N means the last N bytes. `by_name`: if the program opens many files, a small one
    /// may be the version of a listing.
    #[pyo3(signature = (path, first=None, by_name=false))]
    fn open(
        &self,
        py: Python<'_>,
        path: &str,
        first: Option<(i64, Option<u64>)>,
        by_name: bool,
    ) -> PyResult<Handle> {
        let files = self.files.get()?;
        let will_read = match first {
            None => WillRead::Any,
            Some((start, end)) => match u64::try_from(start) {
                Ok(start) => WillRead::First { start, end: end.unwrap_or(u64::MAX) },
                Err(_) => WillRead::Last { bytes: start.unsigned_abs() },
            },
        };
        let opened = py.detach(|| match by_name {
            true => files.open(Path::new(path), will_read),
            false => files.store().open_to_read(Path::new(path), will_read).map(NamedFile::from),
        });
        let file = opened.map_err(|error| raised(&error))?;
        Ok(Handle::new(file, self.failures.clone()))
    }

    /// The program changes an object, or all below a directory, through another way: from now on,
    /// each open of it asks the store.
    fn changed(&self, path: &str) -> PyResult<()> {
        self.changing(path).map(drop)
    }

    /// Creates or truncates an object, and opens it for writing.
    fn create(&self, py: Python<'_>, path: &str) -> PyResult<Handle> {
        let store = self.changing(path)?;
        let file = py.detach(|| store.create(Path::new(path), 0o644)).map_err(|error| raised(&error))?;
        Ok(Handle::new(NamedFile::from(file), self.failures.clone()))
    }

    /// Describes an entry: name, kind, size, time of modification in nanoseconds, entity tag.
    fn stat<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyTuple>> {
        let store = self.inner()?;
        let entry = py.detach(|| store.stat(Path::new(path))).map_err(|error| store_raised(&error))?;
        described(py, &entry)
    }

    /// Lists a directory, in byte order of names.
    fn list<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let store = self.inner()?;
        let entries = py.detach(|| store.list(Path::new(path))).map_err(|error| store_raised(&error))?;
        entries.iter().map(|entry| described(py, entry)).collect()
    }

    /// Removes an object.
    fn remove(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let store = self.changing(path)?;
        py.detach(|| store.remove_file(Path::new(path))).map_err(|error| store_raised(&error))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let store = self.inner()?;
        py.detach(|| store.remove_directory(Path::new(path))).map_err(|error| store_raised(&error))
    }

    /// Creates a directory.
    fn mkdir(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let store = self.inner()?;
        py.detach(|| store.create_directory(Path::new(path), 0o755, None))
            .map_err(|error| store_raised(&error))
    }

    /// Renames an entry.
    fn rename(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        self.changing(from)?;
        let store = self.changing(to)?;
        py.detach(|| store.rename(Path::new(from), Path::new(to), Rename::Replace))
            .map_err(|error| store_raised(&error))
    }

    /// Counters of requests.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.inner()?;
        let all = PyDict::new(py);
        add_requests(&all, &py.detach(|| store.stats()))?;
        Ok(all)
    }
}

fn add_requests(all: &Bound<'_, PyDict>, stats: &bowwave_engine::StoreStats) -> PyResult<()> {
    for (name, value) in [
        ("requests", stats.requests),
        ("requests_failed", stats.requests_failed),
        ("retries", stats.retries),
        ("bytes_fetched", stats.bytes_fetched),
        ("bytes_written", stats.bytes_written),
        ("in_flight_max", stats.in_flight_max),
    ] {
        all.set_item(name, value)?;
    }
    Ok(())
}

fn described<'py>(py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyTuple>> {
    let name = entry.name.to_string_lossy().into_owned();
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        _ => "other",
    };
    let since = |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).ok();
    let modified = entry.modified.and_then(since).map(|time| time.as_nanos());
    let etag = entry.identity.as_ref().and_then(|identity| identity.etag.clone());
    (name, kind, entry.size, modified, etag).into_pyobject(py)
}

fn parsed(settings: &str) -> PyResult<Settings> {
    settings.parse().map_err(|error: bowwave_engine::Error| PyValueError::new_err(error.to_string()))
}

/// Every setting: its key and its meaning.
#[pyfunction]
pub(crate) fn settings() -> Vec<(&'static str, &'static str)> {
    bowwave_engine::SETTINGS.iter().map(|setting| (setting.key, setting.meaning)).collect()
}
