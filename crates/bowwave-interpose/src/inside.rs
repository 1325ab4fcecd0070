//! Marks threads that do bowwave's own work. It uses the same C library, but these calls are not
//! served.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "starts threads by the C library's function")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use crate::next::{self, ThreadMain};

thread_local! {
    /// Nesting depth of `Inside` in this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, this thread does bowwave's own work.
#[derive(Debug)]
pub struct Inside(());

impl Inside {
    /// Enters bowwave's own work.
    #[inline]
    #[must_use]
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }

    /// Whether this thread does bowwave's own work.
    #[inline]
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

/// Start routine of a thread of bowwave, and its argument.
struct Own {
    main: ThreadMain,
    argument: *mut c_void,
}

/// Marks threads that bowwave starts as its own for their whole life.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    main: ThreadMain,
    argument: *mut c_void,
) -> c_int {
    if !Inside::is() {
        // SAFETY: guaranteed by the caller.
        return unsafe { next::pthread_create(thread, attributes, main, argument) };
    }
    let own = Box::into_raw(Box::new(Own { main, argument }));
    // SAFETY: guaranteed by the caller; the thread owns the box from now on.
    let result = unsafe { next::pthread_create(thread, attributes, begin, own.cast()) };
    if result != 0 {
        // SAFETY: no thread owns it.
        drop(unsafe { Box::from_raw(own) });
    }
    result
}

extern "C" fn begin(own: *mut c_void) -> *mut c_void {
    DEPTH.set(1);
    // SAFETY: from `pthread_create`, owned by this thread.
    let Own { main, argument } = *unsafe { Box::from_raw(own.cast::<Own>()) };
    main(argument)
}
