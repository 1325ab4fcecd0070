//! Touches that the kernel tells of by `SIGBUS`: the thread that has touched serves itself, and no other is woken.
//!
//! ```text
//!   a touch ──► SIGBUS ──► whose the address is ──► Serves::serve_here ──► it goes on
//!                │ nobody's, or the page cannot be had
//!                └──► whoever handled the signal before
//! ```
//!
//! The signal comes where the program reads the memory of a region, so what the handler takes (the engine's locks, the
//! allocator) is free but if the program reads it with that in hand: an allocator whose own memory is a region, say.
#![allow(unsafe_code, reason = "handles a signal")]

use std::collections::BTreeMap;
use std::io;
use std::mem::{MaybeUninit, transmute};
use std::ops::Range;
use std::ptr;
use std::sync::{OnceLock, PoisonError, RwLock, Weak};

use crate::error::{Error, Result};

/// Who serves touches of some addresses.
pub(crate) trait Serves: Send + Sync {
    /// Serves a touch on the thread that has touched, to `write` if that is known; whether it may try again.
    fn serve_here(&self, address: usize, write: bool) -> bool;
}

/// Memory whose threads serve themselves, by its first address.
static REGIONS: RwLock<BTreeMap<usize, Watched>> = RwLock::new(BTreeMap::new());

/// Who handled the signal before; the number of the system's error if that could not be changed.
static BEFORE: OnceLock<std::result::Result<libc::sigaction, i32>> = OnceLock::new();

struct Watched {
    end: usize,
    server: Weak<dyn Serves>,
}

/// From now on touches of the addresses are served by the threads that touch.
///
/// # Errors
/// If the system does not let this process handle the signal.
pub(crate) fn watch(addresses: Range<usize>, server: Weak<dyn Serves>) -> Result<()> {
    // Known before it can be called.
    let before = BEFORE.get_or_init(|| current().and_then(|before| handle().map(|()| before)));
    if let Err(error) = before {
        let error = io::Error::from_raw_os_error(*error);
        return Err(Error::System { wanted: "handle SIGBUS", error, hint: "" });
    }
    let watched = Watched { end: addresses.end, server };
    REGIONS.write().unwrap_or_else(PoisonError::into_inner).insert(addresses.start, watched);
    Ok(())
}

/// Touches of the memory that begins there are no longer served.
pub(crate) fn forget(start: usize) {
    REGIONS.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
}

fn current() -> std::result::Result<libc::sigaction, i32> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the kernel writes the one structure, all of whose bytes are valid besides.
    let told = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: as above.
    if told == 0 { Ok(unsafe { action.assume_init() }) } else { Err(last_error()) }
}

fn handle() -> std::result::Result<(), i32> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    // SAFETY: zeros are a valid structure.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as usize;
    // On the thread's own stack: an alternate one is made for a few calls, not for an engine. A store may itself touch what
    // another region shows.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: a handler for this signal, as the flags say.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: this thread's own; what the program was at may look at it next.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    // SAFETY: the kernel hands what the flags ask for.
    let code = unsafe { (*info).si_code };
    // Of a missing page; others are of broken or poisoned memory, or come from a process and have no address.
    // SAFETY: as above.
    let served = code == libc::BUS_ADRERR
        && serve(unsafe { (*info).si_addr() } as usize, unsafe { is_write(context) });
    if !served {
        forward(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *errno = kept }
}

/// Whether the touch was to write, where the processor tells.
///
/// # Safety
/// What the kernel hands to a handler.
unsafe fn is_write(context: *mut libc::c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // The page fault's error code; its second bit is set for writes.
        // SAFETY: as the caller promises.
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0 }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _not_told = context;
        false
    }
}

/// Whether the touch is one of a region, and may be tried again.
fn serve(address: usize, write: bool) -> bool {
    let server = {
        let regions = REGIONS.read().unwrap_or_else(PoisonError::into_inner);
        let watched = regions.range(..=address).next_back().map(|(_, watched)| watched);
        watched.filter(|watched| address < watched.end).and_then(|watched| watched.server.upgrade())
    };
    server.is_some_and(|server| server.serve_here(address, write))
}

/// Leaves the signal to who handled it before.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(Ok(before)) = BEFORE.get() else { return };
    // SAFETY: the kernel hands what the flags ask for.
    let of_a_touch = matches!(unsafe { (*info).si_code }, 1..=libc::BUS_MCEERR_AR);
    match before.sa_sigaction {
        libc::SIG_IGN if !of_a_touch => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A touch is tried again, and ends the program, also where the signal is ignored; what was sent is sent again.
            // SAFETY: zeros are the default action.
            let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: as above.
            unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
            if !of_a_touch {
                // SAFETY: takes a number.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the flag says what it takes.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag it takes the signal alone.
            let handler: extern "C" fn(libc::c_int) = unsafe { transmute(handler) };
            handler(signal);
        }
    }
}
