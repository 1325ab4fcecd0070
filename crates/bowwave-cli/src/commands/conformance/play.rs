//! Plays the script to the kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bowwave_core::{Advice, PageRange};
use rustix::fs::{Advice as FileAdvice, fadvise};

use super::ours::Expected;
use super::script::{Op, Script, Target};
use super::sys::{Mapping, PAGE};
use super::tracing::Tracing;
use crate::interrupt::Interrupt;

/// Longest wait for pages in flight; the device is a local file.
const PATIENCE: Duration = Duration::from_secs(3);

/// An open file: its handles, and a mapping for `mincore`.
#[derive(Debug)]
pub(super) struct Player<'a> {
    path: &'a Path,
    target: Target,
    handles: Vec<Handle>,
    /// A mapping that is never touched.
    look: Mapping,
    buffer: Vec<u8>,
    /// How long to wait for pages in flight.
    patience: Duration,
}

#[derive(Debug)]
struct Handle {
    file: File,
    /// Created on first use.
    mapping: Option<Mapping>,
}

impl<'a> Player<'a> {
    /// Opens the file with none of it cached.
    pub(super) fn cold(path: &'a Path, target: Target) -> io::Result<Self> {
        let file = File::open(path)?;
        let look = Mapping::new(&file, target.pages())?;
        let all = PageRange::new(0, target.pages());
        let deadline = Instant::now() + PATIENCE;
        loop {
            file.sync_all()?;
            fadvise(&file, 0, None, FileAdvice::DontNeed)?;
            match look.resident(all)? {
                0 => break,
                left if Instant::now() > deadline => {
                    return Err(io::Error::other(format!("{left} pages of the file stay in memory")));
                }
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(Self { path, target, handles: Vec::new(), look, buffer: Vec::new(), patience: PATIENCE })
    }

    /// Gives up waiting: the two sides are known to differ.
    pub(super) fn hurry(&mut self) {
        self.patience = Duration::ZERO;
    }

    /// Plays a script, marking each step in the trace. Stops early on an interrupt.
    pub(super) fn play(
        &mut self,
        script: &Script,
        expected: &[Expected],
        tracing: &mut Tracing,
        interrupt: &Interrupt,
    ) -> io::Result<()> {
        tracing.watch(&File::open(self.path)?)?;
        for (number, (&op, expected)) in script.ops.iter().zip(expected).enumerate() {
            if interrupt.is_set() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if let Some((range, count)) = expected.settle {
                self.settle(range, count)?;
            }
            tracing.step(number)?;
            self.step(op)?;
        }
        Ok(())
    }

    /// Resident pages, after waiting for the expected ones.
    pub(super) fn resident(&mut self, expected: u64) -> io::Result<u64> {
        let all = PageRange::new(0, self.target.pages());
        self.settle(all, expected)?;
        self.look.resident(all)
    }

    /// Waits until `count` pages of a range are up to date. After one timeout the two sides differ
    /// already, so later steps wait no more.
    fn settle(&mut self, range: PageRange, count: u64) -> io::Result<()> {
        let deadline = Instant::now() + self.patience;
        while self.look.resident(range)? < count {
            if Instant::now() > deadline {
                self.patience = Duration::from_millis(1);
                break;
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn step(&mut self, op: Op) -> io::Result<()> {
        match op {
            Op::Read { handle, offset, length } => {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                let mut buffer = std::mem::take(&mut self.buffer);
                buffer.resize(buffer.len().max(length), 0);
                let got = self.handle(handle)?.file.read_at(&mut buffer[..length], offset)?;
                self.buffer = buffer;
                let left = self.target.bytes().saturating_sub(offset);
                if got as u64 != left.min(length as u64) {
                    return Err(io::Error::other(format!("{got} of {length} bytes were read")));
                }
            }
            Op::Advise { handle, pages, advice } => {
                let advice = match advice {
                    Advice::Normal => FileAdvice::Normal,
                    Advice::Sequential => FileAdvice::Sequential,
                    Advice::Random => FileAdvice::Random,
                    Advice::WillNeed => FileAdvice::WillNeed,
                    Advice::DontNeed => FileAdvice::DontNeed,
                    Advice::NoReuse => FileAdvice::NoReuse,
                };
                let (offset, length) = (pages.start.0 * PAGE, pages.count().0 * PAGE);
                fadvise(&self.handle(handle)?.file, offset, std::num::NonZeroU64::new(length), advice)?;
            }
            Op::Touch { handle, page } => self.mapping(handle)?.touch(page),
            Op::MapAdvise { handle, pattern } => self.mapping(handle)?.advise(pattern)?,
        }
        Ok(())
    }

    fn mapping(&mut self, handle: usize) -> io::Result<&mut Mapping> {
        let pages = self.target.pages();
        let handle = self.handle(handle)?;
        if handle.mapping.is_none() {
            handle.mapping = Some(Mapping::new(&handle.file, pages)?);
        }
        Ok(handle.mapping.as_mut().expect("made above"))
    }

    fn handle(&mut self, number: usize) -> io::Result<&mut Handle> {
        while self.handles.len() <= number {
            self.handles.push(Handle { file: File::open(self.path)?, mapping: None });
        }
        Ok(&mut self.handles[number])
    }
}
