//! What a mount says on standard error that an errno cannot.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bowwave_backend::Error;
use bowwave_fuse::{Listener, Told};

use crate::output;

/// How much was said lately: a store that is down fails every request, and one line says as much as a thousand.
#[derive(Debug)]
struct Complaints {
    since: Instant,
    said: u32,
    unsaid: u64,
}

/// Says errors on standard error, though not all of them if there are many.
#[must_use]
pub fn complaints() -> Listener {
    let complaints = Mutex::new(Complaints { since: Instant::now(), said: 0, unsaid: 0 });
    Box::new(move |path: &Path, told: Told<'_>| match told {
        Told::Failed(error) => complaints.lock().unwrap_or_else(PoisonError::into_inner).hear(error),
        Told::Unversioned(why) => output::note(format_args!(
            "{}: the store gives {why} (--require-version refuses such files); said once",
            path.display()
        )),
    })
}

impl Complaints {
    fn hear(&mut self, error: &Error) {
        if self.since.elapsed() >= COMPLAINTS_EVERY {
            let unsaid = std::mem::take(&mut self.unsaid);
            if unsaid > 0 {
                output::note(format_args!("{unsaid} more requests failed meanwhile"));
            }
            self.since = Instant::now();
            self.said = 0;
        }
        if self.said < COMPLAINTS_MAX {
            self.said += 1;
            output::note(format_args!("a program was told of an error: {error}"));
        } else {
            self.unsaid += 1;
        }
    }
}

/// So many complaints …
const COMPLAINTS_MAX: u32 = 5;
/// … in so much time; the rest are counted.
const COMPLAINTS_EVERY: Duration = Duration::from_secs(10);
