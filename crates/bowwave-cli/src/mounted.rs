//! Failed file system calls with their causes, which an errno cannot carry.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bowwave_backend::Error;
use bowwave_engine::backend::sync::Mutex;
use bowwave_fuse::{Listener, Told};
use log::warn;

use crate::commands::mount::ReadTrace;
use crate::logging::CALLS;

/// libc constants with their names.
macro_rules! named {
    ($($name:ident)*) => { [$((libc::$name, stringify!($name))),*] };
}

/// Failed calls of a mount: logged at a limited rate, because a store that is down fails every
/// call. The last ones are kept for `status`.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failed: u64,
    last: VecDeque<Call>,
    /// Calls logged since `since`, with the number of later identical failures on the same file.
    logged: Vec<(PathBuf, i32, u64)>,
    others: u64,
    since: Option<Instant>,
}

/// Consecutive identical failures on one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// Time of the last one.
    pub(crate) time: SystemTime,
    /// The file's path in the mount.
    pub(crate) path: PathBuf,
    /// The errno returned.
    pub(crate) errno: i32,
    /// The store's reason for the last one.
    pub(crate) reason: String,
    /// Their number.
    pub(crate) count: u64,
}

impl Calls {
    /// A listener for failed calls, and for reads, which go to `trace`.
    pub(crate) fn listener(self: &Arc<Self>, trace: Option<Arc<ReadTrace>>) -> Listener {
        let calls = Arc::clone(self);
        Box::new(move |path: &Path, told: Told<'_>| match told {
            Told::Failed(error) => calls.failed(path, error),
            Told::Unversioned(why) => warn!(
                target: CALLS,
                "{}: the store gives {why} (--require-version refuses such files); said once",
                path.display()
            ),
            Told::Read(call) => {
                if let Some(trace) = &trace {
                    trace.write(path, call);
                }
            }
        })
    }

    /// The number of failed calls, and the last of them, latest last.
    pub(crate) fn recent(&self) -> (u64, Vec<Call>) {
        let state = self.0.lock();
        (state.failed, state.last.iter().cloned().collect())
    }

    /// Logs how many calls were only counted, if due or if `now`.
    pub(crate) fn flush(&self, now: bool) {
        let mut state = self.0.lock();
        if now || state.since.is_some_and(|since| since.elapsed() >= WINDOW) {
            state.flush();
        }
    }

    fn failed(&self, path: &Path, error: &Error) {
        let (errno, reason) = (error.program_errno(), cut(error.to_string()));
        let mut state = self.0.lock();
        if state.since.is_some_and(|since| since.elapsed() >= WINDOW) {
            state.flush();
        }
        state.since.get_or_insert_with(Instant::now);
        state.failed += 1;
        let alike = |logged: &&mut (PathBuf, i32, u64)| logged.0 == path && logged.1 == errno;
        if let Some((.., count)) = state.logged.iter_mut().find(alike) {
            *count += 1;
        } else if state.logged.len() < LINES_MAX {
            // Reasons may differ in a request id, so they do not distinguish calls.
            warn!(target: CALLS, "{}: {}: {reason}", shown(path), name(errno));
            state.logged.push((path.to_owned(), errno, 0));
        } else {
            state.others += 1;
        }
        let time = SystemTime::now();
        match state.last.back_mut() {
            Some(last) if last.path == path && last.errno == errno => {
                (last.time, last.count, last.reason) = (time, last.count + 1, reason);
            }
            _ => {
                if state.last.len() == CALLS_MAX {
                    state.last.pop_front();
                }
                state.last.push_back(Call { time, path: path.to_owned(), errno, reason, count: 1 });
            }
        }
    }
}

impl State {
    fn flush(&mut self) {
        for (path, errno, count) in std::mem::take(&mut self.logged) {
            if count > 0 {
                warn!(target: CALLS, "{}: {}: {count} more times", shown(&path), name(errno));
            }
        }
        let others = std::mem::take(&mut self.others);
        if others > 0 {
            warn!(target: CALLS, "{others} more calls failed");
        }
        self.since = None;
    }
}

/// A path in the mount; the root's is empty.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.display().to_string() }
}

/// The name of an error number.
pub(crate) fn name(errno: i32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

/// Truncates a reason: a store may send any length.
fn cut(mut reason: String) -> String {
    if reason.len() > REASON_MAX {
        let end = (0..=REASON_MAX).rev().find(|&end| reason.is_char_boundary(end)).unwrap_or(0);
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

/// Errnos of store errors, with their names.
const NAMES: [(i32, &str); 22] = named! {
    EPERM ENOENT EIO EACCES EBUSY EEXIST EXDEV ENOTDIR EISDIR EINVAL EMFILE ENOMEM EFBIG ENOSPC EROFS
    ENAMETOOLONG ENOTEMPTY ENODATA EDQUOT ENOTSUP ETIMEDOUT ESTALE
};

/// Maximum different lines …
const LINES_MAX: usize = 5;
/// … per this time; further and repeated failures are only counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum failed calls kept for `status`.
const CALLS_MAX: usize = 32;
/// Maximum bytes of a reason.
const REASON_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use bowwave_backend::ErrorKind;

    #[test]
    fn calls_that_fail_in_the_same_way_are_counted_and_the_last_ones_are_kept() {
        let calls = Arc::new(Calls::default());
        let listener = calls.listener(None);
        for _ in 0..3 {
            listener(Path::new("a"), Told::Failed(&Error::new(ErrorKind::Unavailable, "it is down")));
        }
        let (failed, last) = calls.recent();
        assert_eq!((failed, last.len(), last[0].count, last[0].errno), (3, 1, 3, libc::EIO));
        for number in 0..100 {
            let error = Error::new(ErrorKind::Changed, "y".repeat(1 << 20));
            listener(Path::new(&number.to_string()), Told::Failed(&error));
        }
        let (failed, last) = calls.recent();
        assert_eq!((failed, last.len(), last[31].path.clone()), (103, CALLS_MAX, PathBuf::from("99")));
        assert!(last[31].reason.len() <= REASON_MAX + 4 && name(last[31].errno) == "ESTALE");
        assert_eq!(calls.0.lock().logged.len(), LINES_MAX);
    }
}
