//! What a process leaves when it ends, by `exit`, by returning from `main`, or at once.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "ends the process")]

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use crate::next;

static LEAVE: OnceLock<fn()> = OnceLock::new();

/// Has `leave` called before the process ends at once (`_exit`, as children of forks often do). The library itself calls it at
/// the usual end. The first one counts.
pub fn at_end(leave: fn()) {
    let _first = LEAVE.set(leave);
}

/// Leaves a line of counters in the file at `path`, for `bowwave run --stats-on-exit`. If it cannot be written, who reads
/// the file misses a line.
pub fn leave_counters(path: &Path, counters: &[(&str, u64)]) {
    let words: Vec<String> = counters.iter().map(|(name, count)| format!("{name}={count}")).collect();
    let line = format!("pid={} {}\n", std::process::id(), words.join(" "));
    // One write to a file open for appending: lines of several processes do not mix.
    let _uncounted =
        OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(line.as_bytes()));
}

fn end(status: c_int) -> ! {
    if let Some(leave) = LEAVE.get() {
        // A panic there has been said, and the process ends as it is to.
        let _said = std::panic::catch_unwind(leave);
    }
    // SAFETY: ends the process, as the caller wants; the two below are one in the C library.
    unsafe { next::_exit(status) }
}

/// Ends the process at once.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

/// The same by its other name.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}
