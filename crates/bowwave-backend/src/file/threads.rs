//! Requests by `preadv` and `pwritev` on a pool of threads.

use std::io;

use super::request::{After, Request};
use crate::Error;
use crate::pool::{Job, Pool};

/// The pool; requests in it finish even when it is dropped.
#[derive(Debug)]
pub(super) struct Threads {
    pool: Pool,
}

impl Threads {
    pub(super) fn start(threads: u32) -> io::Result<Self> {
        let pool = Pool::start("bowwave-file", threads.clamp(1, THREADS_MAX) as usize)?;
        Ok(Self { pool })
    }

    pub(super) fn add(&self, request: Request) {
        self.pool.add(Box::new(request));
    }
}

impl Job for Request {
    fn step(mut self: Box<Self>) -> Option<Box<dyn Job>> {
        if self.is_empty() {
            self.end_empty();
            return None;
        }
        let (result, direct) = self.carry_out();
        match self.advance(result, direct) {
            After::More(request) => Some(Box::new(request)),
            After::Ended => None,
        }
    }

    fn refuse(self: Box<Self>, error: Error) {
        self.end(Err(error));
    }
}

/// Most threads. More only compete for the device.
const THREADS_MAX: u32 = 64;
