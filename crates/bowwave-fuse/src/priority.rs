//! The I/O priority of a process, as `ionice` sets it.
#![allow(unsafe_code, reason = "a system call without a safe wrapper")]

use bowwave_engine::Priority;

/// `IOPRIO_WHO_PROCESS`: the number is that of a process or thread.
const PROCESS: libc::c_int = 1;
/// Bits of the level below the class.
const CLASS_SHIFT: libc::c_long = 13;

/// The class of a process or of one of its threads. The default if it has ended, has set none, or
/// is unknown here (0). Takes some 0.1 µs.
pub(crate) fn of_process(process: u32) -> Priority {
    let Some(process) = libc::pid_t::try_from(process).ok().filter(|&process| process > 0) else {
        return Priority::default();
    };
    // SAFETY: the call takes two numbers and accesses no memory of ours.
    let found = unsafe { libc::syscall(libc::SYS_ioprio_get, PROCESS, process) };
    match found >> CLASS_SHIFT {
        1 => Priority::RealTime,
        3 => Priority::Idle,
        _ => Priority::BestEffort,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_class_is_that_of_ionice() {
        for (class, priority) in [("3", Priority::Idle), ("2", Priority::BestEffort)] {
            let mut sleep =
                Command::new("ionice").args(["-c", class, "sleep", "60"]).spawn().expect("ionice");
            let begun = std::time::Instant::now();
            while of_process(sleep.id()) != priority && begun.elapsed().as_secs() < 20 {
                std::thread::yield_now();
            }
            assert_eq!(of_process(sleep.id()), priority);
            sleep.kill().expect("it runs");
            sleep.wait().expect("it was started");
        }
        assert_eq!([of_process(0), of_process(u32::MAX)], [Priority::default(); 2]);
    }
}
