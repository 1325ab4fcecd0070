//! State shared by all connections of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::bucket::Bucket;
use super::checksums::Checksum;
use super::line::{Line, Next, TICK};
use super::mode::{Fault, Mode, Slow};
use super::request::{Kind, Request};
use super::{Dialect, Host, Recorded, Requests, faults};

/// State of a server, except its listeners.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dialect: Dialect,
    pub(super) address: SocketAddr,
    pub(super) other: SocketAddr,
    pub(super) stopped: AtomicBool,
    pub(super) inner: Mutex<Inner>,
    epoch: AtomicU64,
    listening: Condvar,
}

/// State under the lock.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) bucket: Bucket,
    pub(super) mode: Mode,
    /// Requests in the mode's scope so far.
    matched: u64,
    /// Keys of objects that the mode has replaced.
    pub(super) replaced: BTreeSet<String>,
    pub(super) checksum: Option<Checksum>,
    pub(super) requests: Requests,
    pub(super) recorded: Vec<Recorded>,
    connections: BTreeMap<u64, TcpStream>,
    accepted: u64,
    is_listening: bool,
}

impl Shared {
    pub(super) fn new(dialect: Dialect, address: SocketAddr, other: SocketAddr) -> Self {
        let inner = Inner {
            bucket: Bucket::new(),
            mode: Mode::HONEST,
            matched: 0,
            replaced: BTreeSet::new(),
            checksum: Some(Checksum::Crc64Nvme),
            requests: Requests::default(),
            recorded: Vec::new(),
            connections: BTreeMap::new(),
            accepted: 0,
            is_listening: true,
        };
        Self {
            dialect,
            address,
            other,
            stopped: AtomicBool::new(false),
            inner: Mutex::new(inner),
            epoch: AtomicU64::new(0),
            listening: Condvar::new(),
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Switches to `mode`; returns once the port is open or closed accordingly.
    pub(super) fn set_mode(&self, mode: Mode) {
        let mut inner = self.inner();
        inner.mode = mode;
        inner.matched = 0;
        inner.replaced.clear();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let should_listen = mode.fault != Fault::Refused;
        if inner.is_listening && !should_listen {
            inner.disconnect();
            // Wakes the listener: it checks the mode after each connection.
            drop(TcpStream::connect(self.address));
        }
        self.listening.notify_all();
        while inner.is_listening != should_listen && !self.stopped.load(Ordering::Acquire) {
            inner = self.listening.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Closes all connections and both listeners.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.inner().disconnect();
        self.listening.notify_all();
        for address in [self.address, self.other] {
            // Wakes the listener; it may have ended.
            drop(TcpStream::connect(address));
        }
    }

    /// Accepts connections until the server stops.
    pub(super) fn listen(self: &Arc<Self>, mut listener: TcpListener, host: Host) {
        loop {
            let accepted = listener.accept();
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            if host == Host::Own && self.inner().mode.fault == Fault::Refused {
                drop((accepted, listener));
                let Some(again) = self.listen_again() else { return };
                listener = again;
                continue;
            }
            if let Ok((stream, _)) = accepted {
                self.spawn(stream, host);
            }
        }
    }

    /// Waits until the port may be open, and opens it; `None` if the server stops first.
    fn listen_again(&self) -> Option<TcpListener> {
        let mut inner = self.inner();
        inner.is_listening = false;
        self.listening.notify_all();
        while inner.mode.fault == Fault::Refused && !self.stopped.load(Ordering::Acquire) {
            inner = self.listening.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        while !self.stopped.load(Ordering::Acquire) {
            if let Ok(listener) = TcpListener::bind(self.address) {
                inner.is_listening = true;
                self.listening.notify_all();
                return Some(listener);
            }
            // The system has assigned the port to a connection meanwhile.
            thread::sleep(TICK);
        }
        None
    }

    fn spawn(self: &Arc<Self>, stream: TcpStream, host: Host) {
        let shared = Arc::clone(self);
        let serve = move || {
            let registered = stream.try_clone().map(|clone| {
                let mut inner = shared.inner();
                inner.accepted += 1;
                let id = inner.accepted;
                inner.connections.insert(id, clone);
                id
            });
            // An error is normal: a client may close its connection.
            let _ended = serve(&shared, &stream, host);
            if let Ok(id) = registered {
                // The connection closes or is reset with its last descriptor, `stream`.
                shared.inner().connections.remove(&id);
            }
        };
        // Without a thread the connection is closed, which clients must tolerate.
        let _spawned = thread::Builder::new().stack_size(256 << 10).spawn(serve);
    }

    /// Counts a request and decides whether the mode's fault applies.
    fn pick(&self, request: &Request, host: Host) -> (Mode, u64) {
        let mut inner = self.inner();
        let kind = request.kind();
        if inner.recorded.len() < RECORDED_MAX {
            let (method, target) = (request.method.clone(), request.target.clone());
            inner.recorded.push(Recorded { host, method, target, headers: request.headers.clone() });
        }
        if host == Host::Other {
            inner.requests.other_host += 1;
            return (Mode::HONEST, self.epoch());
        }
        let requests = &mut inner.requests;
        *match kind {
            Kind::Head => &mut requests.head,
            Kind::Get => &mut requests.get,
            Kind::List => &mut requests.list,
            Kind::Put => &mut requests.put,
            Kind::Post => &mut requests.post,
            Kind::Delete => &mut requests.delete,
        } += 1;
        let mode = inner.mode;
        if !mode.includes(kind) {
            return (Mode::HONEST, self.epoch());
        }
        inner.matched += 1;
        (if mode.strikes(inner.matched) { mode } else { Mode::HONEST }, self.epoch())
    }
}

impl Inner {
    fn disconnect(&self) {
        for stream in self.connections.values() {
            // It may be closed already.
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Serves the requests of one connection.
fn serve(shared: &Arc<Shared>, stream: &TcpStream, host: Host) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(mut request) = Request::read_head(&mut reader)? {
        let (mode, epoch) = shared.pick(&request, host);
        let line = Line { stream: stream.try_clone()?, shared: Arc::clone(shared), epoch };
        let half = request.length() / 2;
        let limit = match mode.fault {
            Fault::Slow(Slow::UnreadUpload) if half > 0 => 0,
            Fault::Slow(Slow::HalfUpload) if half > 0 => half,
            _ => usize::MAX,
        };
        request.read_body(&mut reader, limit)?;
        if limit < usize::MAX {
            line.hold()?;
            return Ok(());
        }
        let next = faults::respond(&line, &request, &mode)?;
        if next == Next::Close || request.header("connection") == Some("close") {
            return Ok(());
        }
    }
    Ok(())
}

/// Longest blocking write before the mode is checked again.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum requests recorded with headers; later ones are only counted.
const RECORDED_MAX: usize = 10_000;
