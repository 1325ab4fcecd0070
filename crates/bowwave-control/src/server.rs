//! The server side of the control channel.

use std::fs;
use std::io::{self, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowwave_engine::backend::descriptors::own;
use log::debug;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use serde_json::{Value, json};

use crate::LOG;
use crate::client::connect;
use crate::directory::{Directory, Name, own_user};
use crate::protocol::{PATIENCE, REQUEST_BYTES_MAX, Request, Setting, read_line};
use crate::system::{ClosedInChildren, Quiet, inode};

/// What a mount or a program reports and lets clients change.
pub trait Subject: Send + Sync {
    /// Device number (major, minor) of a mount; `None` for a program.
    fn device(&self) -> Option<(u32, u32)> {
        None
    }

    /// Its stores, options and counters.
    fn status(&self) -> Value;

    /// All settings.
    fn settings(&self) -> Vec<Setting>;

    /// Validates `value` and changes a live setting.
    ///
    /// # Errors
    /// A message with the valid values.
    fn set(&self, key: &str, value: &str) -> Result<(), String>;

    /// Announces files, by their paths below the mount point.
    ///
    /// # Errors
    /// A message why it does not read the files ahead.
    fn announce(&self, files: &[String], append: bool) -> Result<(), String>;
}

/// A control channel, until it is dropped.
///
/// Its thread gets no signals. In a child of a fork it does not exist, and the socket is closed.
#[derive(Debug)]
pub struct Server {
    directory: Directory,
    name: String,
    listener: Arc<UnixListener>,
    in_children: Option<ClosedInChildren>,
    ended: Arc<AtomicBool>,
    waiting: Waiting,
    thread: Option<JoinHandle<()>>,
    /// The process that listens: not a child with a copy of this.
    process: u32,
}

/// Clients that wait for the end of the mount.
type Waiting = Arc<Mutex<Vec<UnixStream>>>;

impl Server {
    /// Listens for this user and root.
    ///
    /// # Errors
    /// No directory can hold the socket, with the reasons, or there are no descriptors or threads.
    pub fn start(subject: Arc<dyn Subject>) -> io::Result<Self> {
        let name = Name { is_mount: subject.device().is_some(), process: std::process::id() };
        let (directory, name, listener) = match listen(name) {
            // Another process has removed the directory meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => listen(name)?,
            done => done?,
        };
        let listener = Arc::new(listener);
        let in_children = Some(ClosedInChildren::new(listener.as_fd()));
        let ended = Arc::new(AtomicBool::new(false));
        let waiting = Waiting::default();
        let quiet = Quiet::begin();
        let spawned = thread::Builder::new().name("control".to_owned()).spawn({
            let (listener, ended) = (Arc::clone(&listener), Arc::clone(&ended));
            let waiting = Arc::clone(&waiting);
            move || serve(&listener, &ended, &*subject, &waiting)
        });
        drop(quiet);
        let process = std::process::id();
        let (thread, failed) = match spawned {
            Ok(thread) => (Some(thread), None),
            Err(error) => (None, Some(error)),
        };
        let server = Self { directory, name, listener, in_children, ended, waiting, thread, process };
        // Dropping it removes the socket.
        failed.map_or(Ok(server), Err)
    }

    /// Closes the channel and reports `outcome` to the clients that wait for the end.
    pub fn end(mut self, outcome: Result<(), String>) {
        self.stop();
        for stream in self.waiting.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Err(error) = send(&stream, outcome.clone().map(|()| Value::Null)) {
                debug!(target: LOG, "a client was not told of the end: {error}");
            }
            // Closed at process exit, which the client waits for.
            std::mem::forget(stream);
        }
    }

    /// Removes the socket at the end of the process, without waiting for the thread. Does nothing
    /// in a child of the process that started it.
    pub fn leave(&self) {
        if self.process == std::process::id() && !self.ended.swap(true, Ordering::AcqRel) {
            self.directory.leave(&self.name);
        }
    }

    fn stop(&mut self) {
        self.leave();
        // Wakes the accepting thread.
        let _ends_it = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A child has neither the thread nor the descriptor.
        if self.process != std::process::id() {
            std::mem::forget((self.thread.take(), self.in_children.take(), Arc::clone(&self.listener)));
            return;
        }
        self.stop();
        // Before the descriptor is closed and its number reused.
        self.in_children = None;
    }
}

/// Clients remove sockets without a listener. So the socket gets its name only when it listens,
/// with mode 0600.
fn listen(name: Name) -> io::Result<(Directory, String, UnixListener)> {
    /// Each library of a process has its own copy. Its address makes the draft's name unique.
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let directory = Directory::own()?;
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let draft = format!(".{}-{:p}-{serial}", name.process, &raw const SERIAL);
    let path = directory.path(&draft);
    let listener = own(|| UnixListener::bind(&path))?;
    listener.set_nonblocking(true)?;
    let published = fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
        .and_then(|()| publish(&directory, &draft, name));
    match published {
        Ok(name) => Ok((directory, name, listener)),
        Err(error) => {
            directory.leave(&draft);
            Err(error)
        }
    }
}

/// Names the socket; returns the name.
fn publish(directory: &Directory, draft: &str, name: Name) -> io::Result<String> {
    for copy in 0..COPIES_MAX {
        let text = name.text(copy);
        match directory.publish(draft, &text) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            published => return published.map(|()| text),
        }
        // A full queue also shows that the process is alive.
        let connected = connect(&directory.path(&text), Duration::ZERO);
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            // Left by a process with the same number.
            directory.remove(&text);
            if directory.publish(draft, &text).is_ok() {
                return Ok(text);
            }
        }
    }
    Err(io::Error::other(format!("this process serves {COPIES_MAX} control channels already")))
}

fn serve(listener: &UnixListener, ended: &AtomicBool, subject: &dyn Subject, waiting: &Waiting) {
    let socket = inode(listener);
    while !ended.load(Ordering::Acquire) {
        let _interrupted = poll(&mut [PollFd::new(listener, PollFlags::IN)], None);
        if inode(listener) != socket {
            // The program closed the descriptor, and its number may be that of another socket.
            return;
        }
        match own(|| listener.accept().map(|(stream, _)| stream)) {
            Ok(stream) if !ended.load(Ordering::Acquire) => {
                if let Err(error) = answer(stream, subject, waiting) {
                    debug!(target: LOG, "a request was not answered: {error}");
                }
            }
            Ok(_) => {}
            // The client has gone.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // For example out of descriptors, which may pass.
            Err(_) => thread::sleep(PATIENCE / 20),
        }
    }
}

/// Answers one request. Clients are served one at a time, each for at most two times `PATIENCE`.
fn answer(stream: UnixStream, subject: &dyn Subject, waiting: &Waiting) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if peer != own_user() && peer != 0 {
        return Err(io::Error::other(format!("user {peer} may not control this program")));
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    match serde_json::from_str(&read_line(&mut stream, REQUEST_BYTES_MAX)?) {
        Ok(Request::End { device }) if Some(device) == subject.device() => {
            await_end(stream.into_inner(), waiting)
        }
        Ok(request) => send(stream.get_ref(), respond(&request, subject)),
        Err(error) => send(stream.get_ref(), Err(format!("not a request: {error}"))),
    }
}

/// Keeps the connection of a client that waits for the end of the mount.
fn await_end(stream: UnixStream, waiting: &Waiting) -> io::Result<()> {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.retain(is_connected);
    if waiting.len() == WAITING_MAX {
        return send(&stream, Err(format!("{WAITING_MAX} clients wait for the end of the mount already")));
    }
    send(&stream, Ok(Value::Null))?;
    waiting.push(stream);
    Ok(())
}

/// Whether the client still waits: it closes its connection if its unmount failed.
fn is_connected(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(stream, &mut [0], flags), Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
}

/// Sends a response, or a refusal, as one line.
fn send(mut stream: &UnixStream, response: Result<Value, String>) -> io::Result<()> {
    let response = match response {
        Ok(value) => json!({ "ok": value }),
        Err(refusal) => json!({ "error": refusal }),
    };
    stream.write_all(format!("{response}\n").as_bytes())
}

fn respond(request: &Request, subject: &dyn Subject) -> Result<Value, String> {
    let find = |key: &str| {
        let known = subject.settings();
        let found = known.iter().find(|setting| setting.key == key).cloned();
        found.ok_or_else(|| {
            let keys: Vec<_> = known.into_iter().map(|setting| setting.key).collect();
            format!("there is no setting '{key}'; there are {}", keys.join(", "))
        })
    };
    match request {
        Request::Status => Ok(subject.status()),
        Request::List => Ok(json!(subject.settings())),
        Request::Get { key } => Ok(json!(find(key)?)),
        Request::Set { key, value } => {
            if !find(key)?.live {
                return Err(match subject.device() {
                    Some(_) => format!(
                        "{key} cannot be changed while mounted: unmount, and mount with the new value"
                    ),
                    None => {
                        format!("{key} cannot be changed while the program runs: start it with the new value")
                    }
                });
            }
            subject.set(key, value)?;
            log::info!(target: LOG, "{key} is now {}", find(key)?.value);
            Ok(json!(find(key)?))
        }
        Request::Plan { files, append } => subject.announce(files, *append).map(|()| Value::Null),
        Request::End { .. } => Err("this process serves another mount".to_owned()),
    }
}

/// Maximum clients waiting for the end of the mount; each takes a descriptor.
const WAITING_MAX: usize = 16;
/// Maximum servers of one process: a library for files, one for memory, and the program's own.
const COPIES_MAX: u32 = 16;
