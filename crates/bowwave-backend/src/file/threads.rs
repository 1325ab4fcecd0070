//! File reads by `preadv` on a pool of threads.

use std::io;

use super::{After, Request};
use crate::Error;
use crate::pool::{Job, Pool};

/// The pool; reads in it finish even when it is dropped.
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
        let (part, file) = (self.part(), self.file.clone());
        let offset = self.offset + self.done as u64;
        let (descriptor, direct) = file.descriptor(offset, &self.buf);
        let result = self.buf.read_from(descriptor, offset, part);
        match self.advance(result, direct) {
            After::More(request) => Some(Box::new(request)),
            After::Ended => None,
        }
    }

    fn refuse(self: Box<Self>, error: Error) {
        self.end(Err(error));
    }
}

/// More threads than this only fight over the device.
const THREADS_MAX: u32 = 64;
