//! A proxy between a client and a server on loopback that counts bytes and limits the rate.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::common::until;

/// Listens until the test ends.
pub(crate) struct Wire {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Bytes from the server, and to it.
    down: AtomicU64,
    up: AtomicU64,
    /// Bytes per second and direction of all connections; 0 for no limit.
    rate: AtomicU64,
    turn: [Mutex<()>; 2],
    /// Open directions of connections.
    open: AtomicU64,
}

impl Wire {
    /// A wire to the server at `url`, such as `http://127.0.0.1:80/`.
    pub(crate) fn to(url: &str) -> Self {
        let server = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let all = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let both = [(client.try_clone(), server.try_clone(), 0), (Ok(server), Ok(client), 1)];
                for (from, to, direction) in both {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let shared = Arc::clone(&all);
                    shared.open.fetch_add(1, Ordering::Relaxed);
                    thread::spawn(move || shared.carry(from, to, direction));
                }
            }
        });
        Self { address, shared }
    }

    /// The server's URL through the wire, without a trailing slash.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Limits the bytes per second of each direction; 0 for no limit.
    pub(crate) fn limit(&self, rate: u64) {
        self.shared.rate.store(rate, Ordering::Relaxed);
    }

    /// Waits until no connection is open: bytes of a killed client may still be in flight.
    pub(crate) fn settle(&self) {
        until("all connections are closed", || self.shared.open.load(Ordering::Relaxed) == 0);
    }

    /// Bytes sent by the server so far.
    pub(crate) fn received(&self) -> u64 {
        self.shared.down.load(Ordering::Relaxed)
    }

    /// Bytes sent to the server so far.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.up.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, direction: usize) {
        let mut block = [0; 32 << 10];
        while let Ok(count @ 1..) = from.read(&mut block) {
            let rate = self.rate.load(Ordering::Relaxed);
            if rate > 0 {
                let turn = self.turn[direction].lock().unwrap_or_else(PoisonError::into_inner);
                thread::sleep(Duration::from_secs_f64(count as f64 / rate as f64));
                drop(turn);
            }
            if to.write_all(&block[..count]).is_err() {
                break;
            }
            let counted = if direction == 0 { &self.up } else { &self.down };
            counted.fetch_add(count as u64, Ordering::Relaxed);
        }
        // The other end may have closed first.
        to.shutdown(Shutdown::Both).ok();
        from.shutdown(Shutdown::Both).ok();
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
