//! Actors on a mount that will be killed; each knows what must survive.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// One program at work on its own kind of files in a directory.
///
/// It records an operation before it starts, and its completion after the reply. So its record
/// holds every possible state whenever it is stopped.
pub(crate) trait Actor: Send {
    /// One operation or a few.
    fn step(&mut self) -> io::Result<()>;

    /// The last or current operation, for a message.
    fn doing(&self) -> String;

    /// The faults in `root`, the underlying directory.
    fn faults(&self, root: &Path) -> Vec<String>;
}

/// Timeout for all actors' operations: far more than any device needs.
const STUCK: Duration = Duration::from_secs(60);

/// Runs all actors concurrently until they have done `steps` together, then calls `end` and stops
/// them.
///
/// `end` receives the flag that excuses errors from then on; it may kill the mount.
///
/// # Errors
///
/// A failure before `end`, or a hanging actor.
pub(crate) fn work(actors: &mut [Box<dyn Actor>], steps: u64, end: impl FnOnce()) -> Result<(), String> {
    let (done, excused, stopped) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let failed = Mutex::new(None);
    let main = thread::current();
    let act = |actor: &mut Box<dyn Actor>| {
        while !stopped.load(Ordering::Acquire) {
            if let Err(error) = actor.step() {
                if !excused.load(Ordering::Acquire) {
                    let what = format!("{}: {error}", actor.doing());
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
                    done.fetch_add(steps, Ordering::AcqRel);
                    main.unpark();
                }
                return;
            }
            if done.fetch_add(1, Ordering::AcqRel) + 1 == steps {
                main.unpark();
            }
        }
    };
    let late = thread::scope(|scope| {
        for actor in actors {
            scope.spawn(|| act(actor));
        }
        let deadline = Instant::now() + STUCK;
        while done.load(Ordering::Acquire) < steps && Instant::now() < deadline {
            thread::park_timeout(Duration::from_millis(100));
        }
        let late = done.load(Ordering::Acquire) < steps;
        excused.store(true, Ordering::Release);
        end();
        stopped.store(true, Ordering::Release);
        late
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(format!("an operation failed before the kill: {error}")),
        None if late => Err(format!("{} of {steps} steps within {STUCK:?}", done.into_inner())),
        None => Ok(()),
    }
}
