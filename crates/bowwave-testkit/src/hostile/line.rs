//! A connection, with methods to misuse it.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::answer::Answer;
use super::request::Request;
use super::shared::Shared;

/// A connection of one client.
pub(super) struct Line {
    pub(super) stream: TcpStream,
    pub(super) shared: Arc<Shared>,
    /// The mode of the response: a slow or endless response ends with its mode.
    pub(super) epoch: u64,
}

/// Whether the connection can serve another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Request,
    Close,
}

impl Line {
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// If the client closes the connection, or the mode or the server ends.
    pub(super) fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&self.stream).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_timeout(&error) => self.check()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a correct response.
    pub(super) fn answer(&self, request: &Request, answer: &Answer) -> io::Result<Next> {
        self.send(&whole(request, answer))?;
        Ok(Next::Request)
    }

    /// Sends `count` bytes at a time, with pauses.
    pub(super) fn drip(&self, bytes: &[u8], count: usize, pause: Duration) -> io::Result<()> {
        for piece in bytes.chunks(count) {
            self.send(piece)?;
            self.pause(pause)?;
        }
        Ok(())
    }

    /// Sends `piece` endlessly, at about 60 MB/s: fast enough to fill memory, slow enough to leave
    /// the processor free.
    pub(super) fn flood(&self, piece: &[u8]) -> io::Result<Next> {
        let block = piece.repeat((BLOCK_BYTES / piece.len()).max(1));
        loop {
            self.send(&block)?;
            self.nap()?;
        }
    }

    /// Waits a millisecond, as endless responses do between two blocks.
    ///
    /// # Errors
    /// If the mode or the server ends.
    pub(super) fn nap(&self) -> io::Result<()> {
        self.check()?;
        thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    /// Stays silent until the client closes the connection or the server ends.
    pub(super) fn hold(&self) -> io::Result<Next> {
        self.stream.set_read_timeout(Some(TICK))?;
        while !self.shared.stopped.load(Ordering::Relaxed) {
            match self.stream.peek(&mut [0]) {
                Ok(0) => break,
                // Discards the bytes of an upload.
                Ok(_) => thread::sleep(TICK),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Next::Close)
    }

    /// Closes the connection with a reset.
    pub(super) fn reset(&self) -> io::Result<Next> {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))?;
        Ok(Next::Close)
    }

    /// Closes the connection in order: drains what the client still sends, so that no reset
    /// follows.
    pub(super) fn close(&self) -> io::Result<Next> {
        self.stream.shutdown(Shutdown::Write)?;
        self.stream.set_read_timeout(Some(TICK))?;
        let begun = Instant::now();
        let mut bytes = [0; 1024];
        while begun.elapsed() < 5 * TICK && (&self.stream).read(&mut bytes).is_ok_and(|count| count > 0) {}
        Ok(Next::Close)
    }

    fn pause(&self, pause: Duration) -> io::Result<()> {
        let end = Instant::now() + pause;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(TICK));
        }
    }

    /// Fails if the response must stop.
    fn check(&self) -> io::Result<()> {
        let is_over = self.shared.stopped.load(Ordering::Relaxed) || self.shared.epoch() != self.epoch;
        if is_over { Err(io::Error::other("the mode has ended")) } else { Ok(()) }
    }
}

/// Head and body of a response.
pub(super) fn whole(request: &Request, answer: &Answer) -> Vec<u8> {
    let mut bytes = answer.head().into_bytes();
    if has_body(request, answer) {
        bytes.extend_from_slice(&answer.body);
    }
    bytes
}

/// Whether the response has a body on the wire.
pub(super) fn has_body(request: &Request, answer: &Answer) -> bool {
    request.method != "HEAD" && !matches!(answer.status, 204 | 304) && !answer.body.is_empty()
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Poll interval for the end of a mode or of the server.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Bytes per write of an endless response.
const BLOCK_BYTES: usize = 64 << 10;
