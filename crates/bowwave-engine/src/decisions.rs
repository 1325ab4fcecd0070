//! Writes decisions to a file as they are made, one JSON object a line.
//!
//! The decisions are handed to a thread that formats and writes them, so no reader waits for the
//! file. At most [`WAITING_MAX`] of them wait; if the file is slower, the others are lost and
//! counted.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bowwave_backend::descriptors::own;
use bowwave_backend::sync::{Condvar, Mutex};
use bowwave_core::explain::Added;
use rustix::fs::OFlags;

/// A file that gets the decisions of a running cache. Clones write to the same file.
///
/// Lines are those of `bowwave explain --json`, with more members at the end: the time, the name of
/// the policy, and the store of a file. Two other objects may appear: `{"lost":N,...}` where `N`
/// decisions are missing, and `{"full":BYTES,...}` as the last line at the limit.
#[derive(Clone)]
pub struct DecisionLog(Arc<Shared>);

/// A decision: how to format it, apart from what [`Added`] has.
type Format = Box<dyn FnOnce() -> String + Send>;

struct Waiting {
    time: SystemTime,
    policy: &'static str,
    store: Option<String>,
    line: Format,
}

struct Shared {
    queue: Arc<Queue>,
    accesses: AtomicU64,
}

/// Lines on the way to the thread.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Lines wait, or no more will come.
    more: Condvar,
    /// All lines are written, or cannot be.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Decisions that are neither written nor reported as lost in the file.
    lost: u64,
    /// The thread writes.
    is_busy: bool,
    /// The limit is reached: decisions are ignored.
    is_full: bool,
    is_closing: bool,
}

impl DecisionLog {
    /// Appends to the file at `path`, which is created if it is missing, until it has `bytes_max`
    /// bytes.
    ///
    /// # Errors
    /// The file cannot be opened, or has that many bytes already.
    pub fn append(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // Names of files are private. A pipe without a reader must not block.
        options.append(true).create(true).mode(0o600);
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = own(|| options.custom_flags(flags).open(path))?;
        let len = file.metadata()?.len();
        if len >= bytes_max {
            return Err(io::Error::other(format!(
                "it has {len} bytes already, and {bytes_max} are allowed; remove it or allow more"
            )));
        }
        Self::start(Target { file, written: 0, is_partial: false, bytes_max })
    }

    /// The arguments of [`append`](Self::append) as text, for the environment of a program.
    pub fn text(path: &Path, bytes_max: u64) -> OsString {
        let mut text = OsString::from(format!("{bytes_max} "));
        text.push(path);
        text
    }

    /// As [`append`](Self::append), with its arguments as [`text`](Self::text).
    ///
    /// # Errors
    /// As `append`, with the name of the file; or the text cannot be parsed.
    pub fn from_text(text: &OsStr) -> io::Result<Self> {
        let bad = || io::Error::other(format!("{}: not a size and a path", text.display()));
        let space = text.as_bytes().iter().position(|&byte| byte == b' ').ok_or_else(bad)?;
        let (bytes_max, path) = text.as_bytes().split_at(space);
        let bytes_max = std::str::from_utf8(bytes_max).ok().and_then(|number| number.parse().ok());
        let path = Path::new(OsStr::from_bytes(&path[1..]));
        let named = |error| io::Error::other(format!("the journal {}: {error}", path.display()));
        Self::append(path, bytes_max.ok_or_else(bad)?).map_err(named)
    }

    fn start(target: impl Sink + Send + 'static) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let theirs = Arc::clone(&queue);
        thread::Builder::new().name("bowwave-journal".to_owned()).spawn(move || theirs.run(target))?;
        Ok(Self(Arc::new(Shared { queue, accesses: AtomicU64::new(0) })))
    }

    /// A number for an access that leads to decisions, from 0.
    pub fn next_access(&self) -> u64 {
        self.0.accesses.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a decision of a policy, for a file of the store with this URL if one was read. `line`
    /// runs in another thread. Never waits for the file.
    pub fn add(
        &self,
        policy: &'static str,
        store: Option<String>,
        line: impl FnOnce() -> String + Send + 'static,
    ) {
        let queue = &self.0.queue;
        let mut state = queue.state.lock();
        if state.is_full {
            return;
        }
        if state.waiting.len() >= WAITING_MAX {
            state.lost += 1;
            return;
        }
        state.waiting.push_back(Waiting { time: SystemTime::now(), policy, store, line: Box::new(line) });
        drop(state);
        queue.more.notify_one();
    }

    /// Waits until all decisions so far are written, at most this long. Returns the number of
    /// decisions that are missing without a line that says so.
    fn flush(&self, patience: Duration) -> u64 {
        let queue = &self.0.queue;
        let until = Instant::now() + patience;
        let mut state = queue.state.lock();
        while state.is_busy || !state.waiting.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = queue.idle.wait_timeout(state, left);
        }
        state.lost + state.waiting.len() as u64
    }

    /// Flushes at the end of a program. Returns a warning if decisions are missing.
    pub fn finish(&self) -> Option<String> {
        let lost = self.flush(PATIENCE);
        (lost > 0).then(|| format!("the journal lacks {lost} decisions: its disk is full or too slow"))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.state.lock().is_closing = true;
        self.queue.more.notify_one();
    }
}

impl fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionLog").finish_non_exhaustive()
    }
}

/// Clones are equal.
impl PartialEq for DecisionLog {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DecisionLog {}

/// Where lines go.
trait Sink {
    /// Writes whole lines; returns whether there is space for more.
    fn write(&mut self, lines: &str) -> io::Result<bool>;
}

struct Target {
    file: File,
    /// Bytes that this process has written.
    written: u64,
    /// The last write failed, so the file may end within a line.
    is_partial: bool,
    bytes_max: u64,
}

impl Sink for Target {
    fn write(&mut self, lines: &str) -> io::Result<bool> {
        // Other processes may append, too.
        let len = self.file.metadata()?.len().max(self.written);
        let space = self.bytes_max.saturating_sub(len);
        if space == 0 {
            return Ok(false);
        }
        let mut text = String::from(if self.is_partial { "\n" } else { "" });
        let fits = lines.len() as u64 <= space;
        if fits {
            text.push_str(lines);
        } else {
            let end = lines.as_bytes()[..space as usize].iter().rposition(|&byte| byte == b'\n');
            text.push_str(&lines[..end.map_or(0, |at| at + 1)]);
            let last = format!(r#"{{"full":{},{}}}"#, self.bytes_max, from());
            // Up to the limit, so that no other process finds space behind the last line.
            let width = (space as usize).saturating_sub(text.len());
            text.push_str(&format!("{last:<width$}\n"));
        }
        // One call, so that lines of several processes do not mix.
        let result = self.file.write_all(text.as_bytes());
        self.is_partial = result.is_err();
        self.written += text.len() as u64;
        result.map(|()| fits)
    }
}

impl Queue {
    /// Writes lines until no more come.
    fn run(&self, mut sink: impl Sink) {
        let mut lines = String::new();
        loop {
            let mut state = self.state.lock();
            state.is_busy = false;
            self.idle.notify_all();
            while state.waiting.is_empty() || state.is_full {
                if state.is_closing {
                    return;
                }
                state = self.more.wait(state);
            }
            let (batch, lost) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.lost));
            state.is_busy = true;
            drop(state);
            lines.clear();
            let count = batch.len() as u64;
            for Waiting { time, policy, store, line } in batch {
                let mut line = line();
                Added { time_ns: nanos(time), policy, store: store.as_deref() }.append_to(&mut line);
                lines.push_str(&line);
                lines.push('\n');
            }
            if lost > 0 {
                lines.push_str(&format!("{{\"lost\":{lost},{}}}\n", from()));
            }
            let written = sink.write(&lines);
            let mut state = self.state.lock();
            match written {
                Ok(has_space) => state.is_full = !has_space,
                // It may work again later, such as after a disk was full.
                Err(_) => state.lost += lost + count,
            }
            if state.is_full {
                state.waiting.clear();
            }
        }
    }
}

/// Time and process of a line that is no decision.
fn from() -> String {
    format!(r#""time_ns":{},"pid":{}"#, nanos(SystemTime::now()), std::process::id())
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

thread_local! {
    /// The process on whose behalf this thread works; 0 for our own.
    static PROCESS: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, this thread works on behalf of another process, which decisions then name.
#[derive(Debug)]
pub struct ActingFor(u32);

impl ActingFor {
    /// Starts to work for a process; 0 for our own.
    #[must_use]
    pub fn process(process: u32) -> Self {
        Self(PROCESS.replace(process))
    }

    /// The process on whose behalf this thread works.
    pub fn current() -> u64 {
        match PROCESS.get() {
            0 => std::process::id().into(),
            process => process.into(),
        }
    }
}

impl Drop for ActingFor {
    fn drop(&mut self) {
        PROCESS.set(self.0);
    }
}

/// Longest queue, in decisions: 0.1 s at 10,000 decisions a second. Shorter: more are lost. Longer:
/// more memory.
const WAITING_MAX: usize = 1024;
/// Longest wait for the file at the end of a program. Longer: a slow disk delays the end.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A disk that writes only when it is told to, and says what it was given.
    struct Slow {
        may: Receiver<io::Result<bool>>,
        given: SyncSender<String>,
    }

    impl Sink for Slow {
        fn write(&mut self, lines: &str) -> io::Result<bool> {
            let result = self.may.recv().unwrap_or(Ok(true));
            let _the_test_has_ended = self.given.send(lines.to_owned());
            result
        }
    }

    fn slow() -> (DecisionLog, SyncSender<io::Result<bool>>, Receiver<String>) {
        let ((may, permission), (given, taken)) = (sync_channel(9), sync_channel(9));
        let log = DecisionLog::start(Slow { may: permission, given }).expect("a thread");
        (log, may, taken)
    }

    fn add(log: &DecisionLog, count: usize) {
        (0..count).for_each(|number| log.add("none", None, move || format!("{{\"access\":{number}}}")));
    }

    #[test]
    fn a_slow_disk_makes_no_reader_wait_and_lost_decisions_are_counted() {
        let (log, may, taken) = slow();
        add(&log, 1);
        // The thread has it, and waits for the disk: nothing else is taken meanwhile.
        while !log.0.queue.state.lock().is_busy {
            thread::yield_now();
        }
        add(&log, WAITING_MAX + 10);
        assert_eq!(log.flush(Duration::ZERO), WAITING_MAX as u64 + 10, "none is written yet");
        may.send(Ok(true)).and_then(|()| may.send(Ok(true))).expect("the thread lives");
        assert_eq!(taken.recv().expect("lines").lines().count(), 1);
        let rest = taken.recv().expect("lines");
        assert_eq!(rest.lines().count(), WAITING_MAX + 1);
        assert!(
            rest.lines().last().is_some_and(|line| line.starts_with(r#"{"lost":10,"time_ns":"#)),
            "{rest}"
        );
        assert_eq!(log.flush(Duration::from_secs(20)), 0);
    }

    #[test]
    fn decisions_that_a_failing_disk_does_not_take_are_reported_when_it_works_again() {
        let (log, may, taken) = slow();
        may.send(Err(io::Error::other("full"))).expect("the thread lives");
        add(&log, 1);
        assert_eq!(taken.recv().expect("lines").lines().count(), 1);
        assert_eq!(log.flush(Duration::from_secs(20)), 1, "it is missing");
        may.send(Ok(true)).expect("the thread lives");
        add(&log, 1);
        let lines = taken.recv().expect("lines");
        assert!(lines.lines().nth(1).is_some_and(|line| line.starts_with(r#"{"lost":1,"#)), "{lines}");
        assert_eq!(log.flush(Duration::from_secs(20)), 0);
    }

    #[test]
    fn two_processes_end_a_journal_at_its_size_with_one_last_line() {
        let directory = tempfile::tempdir().expect("writable");
        let path = directory.path().join("decisions");
        let open = || DecisionLog::from_text(&DecisionLog::text(&path, 1000)).expect("writable");
        let logs = [open(), open()];
        for _ in 0..20 {
            for log in &logs {
                add(log, 1);
                log.flush(Duration::from_secs(20));
            }
        }
        let text = std::fs::read_to_string(&path).expect("created");
        let full: Vec<_> = text.lines().filter(|line| line.contains("full")).collect();
        assert!(full.len() == 1 && text.lines().last() == Some(full[0]), "{text}");
        assert!((1000..1200).contains(&text.len()) && text.ends_with('\n'), "{text}");
        let refusal = DecisionLog::append(&path, 1000).expect_err("full").to_string();
        assert!(refusal.contains("remove it or allow more"), "{refusal}");
        assert!(DecisionLog::from_text("no size".as_ref()).is_err());
    }
}
