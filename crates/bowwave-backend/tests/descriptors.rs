//! Replaced descriptors. Alone in its process: other tests would take the numbers.
#![allow(unsafe_code, reason = "replaces descriptors by number")]

use std::fs::File;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bowwave_backend::descriptors::{hold, keep_low_numbers_free, own};
use rustix::fs::fstat;

#[test]
fn bowwaves_threads_close_no_number_that_the_program_has_replaced() {
    let program = tempfile::tempfile().expect("a file");
    let inode = fstat(&program).expect("it is open").st_ino;
    keep_low_numbers_free();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let file = own(|| File::open("/dev/null")).expect("it is there");
                    assert!(file.as_raw_fd() >= 512, "{file:?}");
                }
            });
        }
        for _ in 0..20_000 {
            // The lowest free number: that of the next file that a thread opens.
            let lowest = rustix::io::dup(&program).expect("few are open").as_raw_fd();
            let held = hold();
            // SAFETY: it has just been closed and has no owner, and threads of bowwave have
            // only higher ones.
            let mut replaced = unsafe { OwnedFd::from_raw_fd(lowest) };
            rustix::io::dup2(&program, &mut replaced).expect("a number in range");
            drop(held);
            // SAFETY: as above.
            let found = fstat(unsafe { BorrowedFd::borrow_raw(lowest) }).expect("no thread closed it");
            assert_eq!(found.st_ino, inode);
        }
        ended.store(true, Ordering::Relaxed);
    });
}
