//! A misbehaving server for S3, Azure, Google and plain HTTP.
//!
//! Responses are written byte by byte, without an HTTP library, so that any framing can be wrong.
//! The server holds a small bucket called `data` with known content. It ignores signatures.
//!
//! ```
//! use bowwave_testkit::hostile::{Dialect, HostileServer};
//!
//! let server = HostileServer::start(Dialect::S3).unwrap();
//! server.set_mode("status-503,calls=metadata,every=4".parse().unwrap());
//! assert_eq!(server.requests().total(), 0);
//! ```

mod answer;
mod bucket;
mod checksums;
mod faults;
mod framing;
mod honest;
mod line;
mod listing;
mod lists;
mod mode;
mod request;
mod shared;
#[cfg(test)]
mod tests;
mod time;

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

pub use self::bucket::content;
pub use self::checksums::Checksum;
pub use self::mode::{
    Calls, EndlessHead, ErrorBody, Fault, Framing, ListFault, Location, Mode, Place, Slow, UploadFault,
    VersionFault,
};

use self::shared::Shared;

/// The server's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// S3, with keys in the path.
    S3,
    /// Azure Blob Storage.
    Azure,
    /// Google Cloud Storage, XML API.
    Google,
    /// A web server with ranges and without listings.
    Http,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 4] = [Self::S3, Self::Azure, Self::Google, Self::Http];

    /// Scheme of its URLs.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "az",
            Self::Google => "gs",
            Self::Http => "http",
        }
    }
}

/// Requests so far, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// HEAD, and `GetObjectAttributes`.
    pub head: u64,
    /// GET of objects.
    pub get: u64,
    /// Listings of objects or uploads.
    pub list: u64,
    /// PUT: objects, parts, copies.
    pub put: u64,
    /// POST: start and completion of uploads.
    pub post: u64,
    /// DELETE: objects and uploads.
    pub delete: u64,
    /// Requests of any kind to the second host.
    pub other_host: u64,
}

impl Requests {
    /// Their sum.
    pub fn total(&self) -> u64 {
        self.head + self.get + self.list + self.put + self.post + self.delete + self.other_host
    }

    /// The requests since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            head: self.head - before.head,
            get: self.get - before.get,
            list: self.list - before.list,
            put: self.put - before.put,
            post: self.post - before.post,
            delete: self.delete - before.delete,
            other_host: self.other_host - before.other_host,
        }
    }
}

/// The host that a request was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The host of [`HostileServer::endpoint`].
    Own,
    /// The target of redirects.
    Other,
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Where it was sent.
    pub host: Host,
    /// Its method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Names, in lower case, and values.
    pub headers: Vec<(String, String)>,
}

/// The server; dropping it closes its connections.
#[derive(Debug)]
pub struct HostileServer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl HostileServer {
    /// Serves on two free loopback ports, the second at another address; correct until a mode is
    /// set.
    ///
    /// # Errors
    ///
    /// If no port or thread is available.
    pub fn start(dialect: Dialect) -> io::Result<Self> {
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let other = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0))?;
        let shared = Arc::new(Shared::new(dialect, own.local_addr()?, other.local_addr()?));
        let mut server = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        for (listener, host) in [(own, Host::Own), (other, Host::Other)] {
            let shared = Arc::clone(&shared);
            let listen = move || shared.listen(listener, host);
            server.threads.push(thread::Builder::new().name("hostile".to_owned()).spawn(listen)?);
        }
        Ok(server)
    }

    /// Base URL of the host, such as `http://127.0.0.1:4321`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// Base URL of the second host.
    pub fn other_endpoint(&self) -> String {
        format!("http://{}", self.shared.other)
    }

    /// URL to mount: `s3://data`, `az://data`, `gs://data`, or `http://…/data/`.
    pub fn url(&self) -> String {
        match self.shared.dialect {
            Dialect::Http => format!("{}{}/", self.endpoint(), honest::ROOT),
            dialect => format!("{}://data", dialect.scheme()),
        }
    }

    /// Switches to `mode`. Slow and endless responses of the previous mode end; silent connections
    /// stay silent.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.set_mode(mode);
    }

    /// The algorithm of S3 checksums, sent where a request asks for them; `None` for no checksums.
    /// Initially [`Checksum::Crc64Nvme`].
    pub fn set_checksum(&self, checksum: Option<Checksum>) {
        self.shared.inner().checksum = checksum;
    }

    /// Requests so far.
    pub fn requests(&self) -> Requests {
        self.shared.inner().requests
    }

    /// The first 10,000 requests.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.shared.inner().recorded.clone()
    }

    /// The bytes of each version of an object, oldest first; empty if it never existed.
    pub fn versions(&self, key: &str) -> Vec<Arc<[u8]>> {
        self.shared.inner().bucket.versions(key)
    }

    /// The current bytes of an object.
    pub fn object(&self, key: &str) -> Option<Arc<[u8]>> {
        self.shared.inner().bucket.get(key).map(|stored| Arc::clone(&stored.bytes))
    }

    /// Forgets all versions of an object but the newest.
    pub fn forget_versions(&self, key: &str) {
        self.shared.inner().bucket.forget_versions(key);
    }

    /// Stores an object.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        self.shared.inner().bucket.put(key, bytes);
    }

    /// Stores an object as a multipart upload with parts of `part` bytes.
    ///
    /// # Panics
    ///
    /// If `part` is 0.
    pub fn put_in_parts(&self, key: &str, bytes: &[u8], part: usize) {
        let bucket = &mut self.shared.inner().bucket;
        let id = bucket.begin(key);
        let put = |(number, part): (u32, &[u8])| Some((number, bucket.put_part(&id, number, part.to_vec())?));
        let parts: Vec<_> = (1..).zip(bytes.chunks(part)).filter_map(put).collect();
        let completed = bucket.complete(&id, &parts);
        debug_assert!(completed.is_ok(), "an honest upload completes");
    }

    /// Names in a directory (`""` for the root), sorted.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let inner = self.shared.inner();
        let below = inner.bucket.objects().filter_map(|(key, _)| key.strip_prefix(&prefix));
        let names: BTreeSet<_> =
            below.filter_map(|below| below.split('/').next()).map(str::to_owned).collect();
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A listener that panicked has ended, too.
            let _ended = thread.join();
        }
    }
}

/// Names that `list-10000` adds to a listing, in order.
pub fn added_names() -> impl Iterator<Item = String> {
    (0..lists::ADDED).map(|index| format!("added-{index:05}"))
}
