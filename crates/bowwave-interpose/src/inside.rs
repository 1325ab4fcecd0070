//! Threads whose calls are not served: those of bowwave itself, which does its work by the same C library.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "starts threads by the C library's function")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use crate::next::{self, ThreadMain};

thread_local! {
    /// How often this thread has entered.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// As long as it lives, this thread does bowwave's work.
#[derive(Debug)]
pub struct Inside(());

impl Inside {
    /// From now on.
    #[inline]
    #[must_use]
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }

    /// Whether this thread does bowwave's work.
    #[inline]
    #[must_use]
    pub fn is() -> bool {
        DEPTH.get() > 0
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// What a thread of ours is to do.
struct Own {
    main: ThreadMain,
    argument: *mut c_void,
}

/// Threads that bowwave starts do bowwave's work, all their lives.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    main: ThreadMain,
    argument: *mut c_void,
) -> c_int {
    if !Inside::is() {
        // SAFETY: as the caller says.
        return unsafe { next::pthread_create(thread, attributes, main, argument) };
    }
    let own = Box::into_raw(Box::new(Own { main, argument }));
    // SAFETY: as the caller says; the box is the thread's from now on.
    let result = unsafe { next::pthread_create(thread, attributes, begin, own.cast()) };
    if result != 0 {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(own) });
    }
    result
}

extern "C" fn begin(own: *mut c_void) -> *mut c_void {
    DEPTH.set(1);
    // SAFETY: from `pthread_create`, for this thread alone.
    let Own { main, argument } = *unsafe { Box::from_raw(own.cast::<Own>()) };
    main(argument)
}
