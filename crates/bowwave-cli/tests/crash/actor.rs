//! Who works on a mount that will be killed, and knows afterwards what must be there.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// One program at work in a folder of its own kind of files.
///
/// It notes what it is about to do before it does it, and that it is done only after the answer: whenever it is
/// stopped, what it has noted is what may be there.
pub(crate) trait Actor: Send {
    /// One operation or a few.
    fn step(&mut self) -> io::Result<()>;

    /// What the last step did or was about to do, for a message.
    fn doing(&self) -> String;

    /// What is not as it must be in `root`, the folder that it worked in seen from below.
    fn faults(&self, root: &Path) -> Vec<String>;
}

/// How long all actors together may take for their operations: far more than any device needs.
const STUCK: Duration = Duration::from_secs(60);

/// Has all actors work at once until they have done `steps` together, then calls `end` and stops them.
///
/// `end` is given what excuses errors from then on; it may take away what the actors stand on.
///
/// # Errors
/// What failed before `end`, or who hangs.
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
