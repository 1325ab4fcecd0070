//! Work at the start and the end of a process: by `exit`, by returning from `main`, or by `_exit`.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "ends the process")]

use std::ffi::c_int;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::next;

static LEAVE: OnceLock<fn()> = OnceLock::new();

/// Makes the dynamic linker call `$start` at the program's start, as bowwave's own work, and
/// `$leave` at a normal end. `$leave` also runs before `_exit`, which children of forks often call.
#[macro_export]
macro_rules! at_start_and_end {
    ($start:ident, $leave:ident) => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static START: extern "C" fn() = {
            extern "C" fn at_start() {
                let _inside = $crate::Inside::enter();
                $crate::say_panics();
                $crate::at_end($leave);
                $start();
            }
            at_start
        };

        #[used]
        #[unsafe(link_section = ".fini_array")]
        static END: extern "C" fn() = {
            extern "C" fn at_exit() {
                $leave();
            }
            at_exit
        };
    };
}

/// Registers `leave` to run before `_exit`. Only the first registration counts.
pub fn at_end(leave: fn()) {
    let _first = LEAVE.set(leave);
}

/// Appends a line of counters to the file at `path`, for `bowwave run --stats-on-exit`, once a
/// process. If that fails, the line is missing.
pub fn leave_counters(path: &Path, counters: impl FnOnce() -> Vec<(&'static str, u64)>) {
    /// The process whose line is written. A child of a fork writes its own.
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    if WRITTEN.swap(process, Ordering::Relaxed) == process {
        return;
    }
    let words: Vec<String> = counters().iter().map(|(name, count)| format!("{name}={count}")).collect();
    let line = format!("pid={process} {}\n", words.join(" "));
    // A single append, so that lines of several processes do not mix.
    let _uncounted =
        OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(line.as_bytes()));
}

fn end(status: c_int) -> ! {
    if let Some(leave) = LEAVE.get() {
        // The panic has been reported; the process still exits.
        let _said = std::panic::catch_unwind(leave);
    }
    // SAFETY: ends the process as requested; the C library implements the two functions below as
    // one.
    unsafe { next::_exit(status) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "C's name")]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}
