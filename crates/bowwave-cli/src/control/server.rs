//! The server side of the control channel, in a mount.

use std::fs;
use std::io::{self, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use log::debug;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use serde_json::{Value, json};

use super::directory::{Directory, own_user};
use super::{PATIENCE, REQUEST_BYTES_MAX, Request, Setting, read_line};
use crate::logging::CONTROL;

/// What a mount reports and lets clients change.
pub(crate) trait Subject: Send + Sync {
    /// Device number (major, minor).
    fn device(&self) -> (u32, u32);

    /// Its store, options and counters.
    fn status(&self) -> Value;

    /// All settings.
    fn settings(&self) -> Vec<Setting>;

    /// Validates `value` and changes a live setting.
    fn set(&self, key: &str, value: &str) -> Result<(), String>;

    /// Announces files, by their paths below the mount point.
    fn announce(&self, files: &[String], append: bool) -> Result<(), String>;
}

/// The control channel of a mount, until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    directory: Directory,
    name: String,
    listener: Arc<UnixListener>,
    ended: Arc<AtomicBool>,
    waiting: Waiting,
    thread: Option<JoinHandle<()>>,
}

/// Clients that wait for the end of the mount.
type Waiting = Arc<Mutex<Vec<UnixStream>>>;

impl Server {
    /// Listens for this user and root.
    pub(crate) fn start(subject: Arc<dyn Subject>) -> io::Result<Self> {
        let name = format!("mount-{}.sock", std::process::id());
        let (directory, listener) = match Self::listen(&name) {
            // The last mount has removed the directory meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::listen(&name)?,
            done => done?,
        };
        let listener = Arc::new(listener);
        let ended = Arc::new(AtomicBool::new(false));
        let waiting = Waiting::default();
        let thread = thread::Builder::new().name("control".to_owned()).spawn({
            let (listener, ended) = (Arc::clone(&listener), Arc::clone(&ended));
            let waiting = Arc::clone(&waiting);
            move || serve(&listener, &ended, &*subject, &waiting)
        })?;
        Ok(Self { directory, name, listener, ended, waiting, thread: Some(thread) })
    }

    /// Closes the channel and reports `outcome` to the clients that wait for the end.
    pub(crate) fn end(mut self, outcome: Result<(), String>) {
        self.stop();
        for stream in self.waiting.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Err(error) = send(&stream, outcome.clone().map(|()| Value::Null)) {
                debug!(target: CONTROL, "a client was not told of the end: {error}");
            }
            // Closed at process exit, which the client waits for.
            std::mem::forget(stream);
        }
    }

    fn stop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.directory.leave(&self.name);
        // Wakes the accepting thread.
        let _ends_it = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }

    fn listen(name: &str) -> io::Result<(Directory, UnixListener)> {
        let directory = Directory::own()?;
        // Left by a process with the same number.
        directory.remove(name);
        let path = directory.path(name);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok((directory, listener))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

fn serve(listener: &UnixListener, ended: &AtomicBool, subject: &dyn Subject, waiting: &Waiting) {
    while !ended.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, _)) if !ended.load(Ordering::Acquire) => {
                if let Err(error) = answer(stream, subject, waiting) {
                    debug!(target: CONTROL, "a request was not answered: {error}");
                }
            }
            Ok(_) => {}
            // For example out of descriptors, which may pass.
            Err(_) => thread::sleep(PATIENCE / 20),
        }
    }
}

/// Answers one request. Clients are served one at a time, each for at most two times `PATIENCE`.
fn answer(stream: UnixStream, subject: &dyn Subject, waiting: &Waiting) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if peer != own_user() && peer != 0 {
        return Err(io::Error::other(format!("user {peer} may not ask")));
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    match serde_json::from_str(&read_line(&mut stream, REQUEST_BYTES_MAX)?) {
        Ok(Request::End { device }) if device == subject.device() => await_end(stream.into_inner(), waiting),
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
                return Err(format!(
                    "{key} cannot be changed while mounted: unmount, and mount with the new value"
                ));
            }
            subject.set(key, value)?;
            log::info!(target: CONTROL, "{key} is now {}", find(key)?.value);
            Ok(json!(find(key)?))
        }
        Request::Plan { files, append } => subject.announce(files, *append).map(|()| Value::Null),
        Request::End { .. } => Err("this process serves another mount".to_owned()),
    }
}

/// Maximum clients waiting for the end of the mount; each takes a descriptor.
const WAITING_MAX: usize = 16;
