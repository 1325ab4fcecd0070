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
//!
//! Other signals are forwarded as the kernel would have delivered them: with the predecessor's mask, once if it has
//! `SA_RESETHAND`, with system calls restarted if it has `SA_RESTART`. Only `SA_ONSTACK` has no effect.
#![allow(unsafe_code, reason = "handles a signal")]

use std::collections::BTreeMap;
use std::io;
use std::mem::{MaybeUninit, transmute};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, Weak};

use crate::error::{Error, Result};

/// Who serves touches of some addresses.
pub(crate) trait Serves: Send + Sync {
    /// Serves a touch on the thread that has touched, to `write` if that is known; whether it may try again.
    fn serve_here(&self, address: usize, write: bool) -> bool;
}

/// Memory whose threads serve themselves, by its first address.
static REGIONS: RwLock<BTreeMap<usize, Watched>> = RwLock::new(BTreeMap::new());

/// The action that signals are forwarded to; null before the handler is installed. What it points to is never freed, because
/// a handler may be reading it.
static PREDECESSOR: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// `SIG_DFL`.
// SAFETY: zeros are a valid structure, of the default action.
static DEFAULT: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };

/// Whether the handler is installed.
static INSTALLED: Mutex<bool> = Mutex::new(false);

struct Watched {
    end: usize,
    /// What the handler upgrades it to is never the last reference: that one is an [`Owner`](crate::reap::Owner)'s.
    server: Weak<dyn Serves>,
}

/// From now on touches of the addresses are served by the threads that touch.
///
/// # Errors
/// If the system does not let this process handle the signal.
pub(crate) fn watch(addresses: Range<usize>, server: Weak<dyn Serves>) -> Result<()> {
    install(|| {}).map_err(|error| Error::System { wanted: "handle SIGBUS", error, hint: "" })?;
    let watched = Watched { end: addresses.end, server };
    REGIONS.write().unwrap_or_else(PoisonError::into_inner).insert(addresses.start, watched);
    Ok(())
}

/// Touches of the memory that begins there are no longer served.
pub(crate) fn forget(start: usize) {
    REGIONS.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
}

/// Installs the handler, once. Runs `installed` right after that; tests send a signal there.
fn install(installed: impl FnOnce()) -> io::Result<()> {
    let mut is_installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_installed {
        return Ok(());
    }
    // Published first: a signal may come as soon as the handler is there.
    let expected = Box::into_raw(Box::new(exchange(None)?));
    PREDECESSOR.store(expected, Ordering::Release);
    // SAFETY: never freed.
    let replaced = match exchange(Some(&handler(unsafe { &*expected }))) {
        Ok(replaced) => Box::into_raw(Box::new(replaced)),
        Err(error) => {
            PREDECESSOR.store(ptr::null_mut(), Ordering::Release);
            return Err(error);
        }
    };
    installed();
    // The action that the handler has in fact replaced: another thread may have changed it meanwhile. Unless a signal has used
    // up the action that was published (`SA_RESETHAND`).
    let _used_up = PREDECESSOR.compare_exchange(expected, replaced, Ordering::AcqRel, Ordering::Relaxed);
    *is_installed = true;
    Ok(())
}

/// The action of the signal, which becomes `new` if there is one.
fn exchange(new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: null or a valid action; the kernel writes the other structure, all of whose bytes are valid besides.
    let done = unsafe { libc::sigaction(libc::SIGBUS, new, old.as_mut_ptr()) };
    // SAFETY: as above.
    if done == 0 { Ok(unsafe { old.assume_init() }) } else { Err(io::Error::last_os_error()) }
}

/// The action that runs our handler in place of a predecessor.
fn handler(predecessor: &libc::sigaction) -> libc::sigaction {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    let mut action = DEFAULT;
    action.sa_sigaction = handler as usize;
    // On the thread's own stack: an alternate one is made for a few calls, not for an engine. A store may itself touch what
    // another region shows.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // An ignored signal interrupts no system call.
    let restarts = predecessor.sa_flags & libc::SA_RESTART != 0 || predecessor.sa_sigaction == libc::SIG_IGN;
    if restarts {
        action.sa_flags |= libc::SA_RESTART;
    }
    action
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
    // SAFETY: as above. Before the predecessor runs, which may look at it or change it.
    unsafe { *errno = kept };
    if !served {
        forward(signal, info, context);
    }
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

/// Delivers the signal to the predecessor.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: never null once this handler is installed, and never freed.
    let predecessor = unsafe { &*take_predecessor() };
    // SAFETY: the kernel hands what the flags ask for.
    let of_a_touch = matches!(unsafe { (*info).si_code }, 1..=libc::BUS_MCEERR_AR);
    match predecessor.sa_sigaction {
        libc::SIG_IGN if !of_a_touch => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A touch is tried again, and ends the program, also where the signal is ignored; what was sent is sent again.
            // SAFETY: the default action.
            unsafe { libc::sigaction(signal, &raw const DEFAULT, ptr::null_mut()) };
            if !of_a_touch {
                // SAFETY: takes a number.
                unsafe { libc::raise(signal) };
            }
        }
        _ => call(predecessor, signal, info, context),
    }
}

/// The predecessor, for one signal: one with `SA_RESETHAND` gives way to the default action, as in the kernel.
fn take_predecessor() -> *const libc::sigaction {
    loop {
        let known = PREDECESSOR.load(Ordering::Acquire);
        // SAFETY: never null once the handler is installed, and never freed.
        let (handler, flags) = unsafe { ((*known).sa_sigaction, (*known).sa_flags) };
        let is_once = flags & libc::SA_RESETHAND != 0 && !matches!(handler, libc::SIG_DFL | libc::SIG_IGN);
        let default = (&raw const DEFAULT).cast_mut();
        if !is_once
            || PREDECESSOR.compare_exchange(known, default, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return known;
        }
    }
}

/// Calls a handler as the kernel does: with its mask, and the signal itself unless `SA_NODEFER`, blocked until it returns.
fn call(
    action: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let mut mask = action.sa_mask;
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: a set of our own.
        unsafe { libc::sigaddset(&raw mut mask, signal) };
    }
    let mut outer = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: reads one set and writes the other.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, outer.as_mut_ptr()) };
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the flag says what it takes.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { transmute(action.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it takes the signal alone.
        let handler: extern "C" fn(libc::c_int) = unsafe { transmute(action.sa_sigaction) };
        handler(signal);
    }
    // SAFETY: the set written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, outer.as_ptr(), ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::{Arc, mpsc};
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::reap::Owner;

    static CAUGHT: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn catch(_signal: libc::c_int) {
        CAUGHT.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_signal_right_after_the_handler_is_installed_reaches_the_predecessor() {
        let mut action = DEFAULT;
        action.sa_sigaction = catch as extern "C" fn(libc::c_int) as usize;
        exchange(Some(&action)).expect("a valid action");
        install(|| {
            // SAFETY: takes a number.
            unsafe { libc::raise(libc::SIGBUS) };
            assert_eq!(CAUGHT.load(Ordering::Relaxed), 1, "the signal was swallowed");
        })
        .expect("a valid action");
    }

    /// A server whose touch lasts until the test says so.
    struct Slow {
        touched: mpsc::SyncSender<()>,
        go_on: Mutex<mpsc::Receiver<()>>,
        dropped: mpsc::SyncSender<ThreadId>,
    }

    impl Serves for Slow {
        fn serve_here(&self, _address: usize, _write: bool) -> bool {
            self.touched.send(()).expect("the test waits");
            self.go_on.lock().expect("one touch").recv().is_ok()
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            self.dropped.send(thread::current().id()).expect("the test waits");
        }
    }

    #[test]
    fn a_handler_never_drops_the_last_reference_to_a_region() {
        let (touched, is_touched) = mpsc::sync_channel(1);
        let (go_on, may_go_on) = mpsc::sync_channel(1);
        let (dropped, is_dropped) = mpsc::sync_channel(1);
        let owner = Owner::new(Arc::new(Slow { touched, go_on: Mutex::new(may_go_on), dropped }));
        let server: Weak<dyn Serves> = Arc::downgrade(&*owner) as _;
        // No address of this process: nothing else is watched in it.
        REGIONS
            .write()
            .expect("no test panics with it")
            .insert(1 << 60, Watched { end: (1 << 60) + 1, server });
        let served = Arc::new(AtomicBool::new(false));
        let handler = thread::spawn({
            let served = Arc::clone(&served);
            move || served.store(serve(1 << 60, false), Ordering::Relaxed)
        });
        is_touched.recv().expect("it touches");
        forget(1 << 60);
        drop(owner);
        let handler_id = handler.thread().id();
        go_on.send(()).expect("it waits");
        handler.join().expect("it does not panic");
        assert!(served.load(Ordering::Relaxed));
        assert_ne!(is_dropped.recv().expect("somebody drops it"), handler_id, "dropped in the handler");
    }
}
