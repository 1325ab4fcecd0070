//! Page faults reported by `SIGBUS`: the faulting thread serves itself, and no other thread is
//! woken.
//!
//! ```text
//!   page fault ──► SIGBUS ──► server of the address ──► Serves::serve_here ──► thread continues
//!                   │ no server, or the page cannot be fetched
//!                   └──► previous handler of the signal
//! ```
//!
//! The signal arrives where the program reads the region. So the locks that the handler takes (the
//! engine's, the allocator's) are free, unless the program reads while it holds one: for example,
//! an allocator whose own memory is a region.
//!
//! A `SIGBUS` that is no region's goes to the previous handler, as the kernel would deliver it:
//! with that handler's mask, once if it has `SA_RESETHAND`, with system calls restarted if it has
//! `SA_RESTART`. Only `SA_ONSTACK` has no effect.
#![allow(unsafe_code, reason = "handles a signal")]

use std::collections::BTreeMap;
use std::io;
use std::mem::{MaybeUninit, transmute};
use std::ops::Range;
use std::ptr;
use std::sync::Weak;
use std::sync::atomic::{AtomicPtr, Ordering};

use bowwave_engine::backend::sync::{Mutex, RwLock};

use crate::error::{Error, Result};

/// Serves page faults of a range of addresses.
pub(crate) trait Serves: Send + Sync {
    /// Serves a fault on the faulting thread; `write` if it is known to be a write. Returns whether
    /// the access may be retried.
    fn serve_here(&self, address: usize, write: bool) -> bool;
}

/// Memory served by the faulting threads, by its first address.
static REGIONS: RwLock<BTreeMap<usize, Watched>> = RwLock::new(BTreeMap::new());

/// The action to which signals are forwarded; null before the handler is installed. The pointee is
/// never freed, because a handler may be reading it.
static PREDECESSOR: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// `SIG_DFL`.
// SAFETY: all zeros are valid and mean the default action.
static DEFAULT: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };

/// Whether the handler is installed.
static INSTALLED: Mutex<bool> = Mutex::new(false);

struct Watched {
    end: usize,
    /// Upgraded by the handler to a reference that is never the last one: an
    /// [`Owner`](crate::reap::Owner) holds that.
    server: Weak<dyn Serves>,
}

/// Lets faulting threads serve the addresses from now on.
///
/// # Errors
/// If the system does not let this process handle the signal.
pub(crate) fn watch(addresses: Range<usize>, server: Weak<dyn Serves>) -> Result<()> {
    install(|| {}).map_err(|error| Error::System { wanted: "handle SIGBUS", error, hint: "" })?;
    let watched = Watched { end: addresses.end, server };
    REGIONS.write().insert(addresses.start, watched);
    Ok(())
}

/// Stops serving the memory that starts at this address.
pub(crate) fn forget(start: usize) {
    REGIONS.write().remove(&start);
}

/// Installs the handler if it is not installed, then runs `installed` (a hook for tests).
fn install(installed: impl FnOnce()) -> io::Result<()> {
    let mut is_installed = INSTALLED.lock();
    if *is_installed {
        return Ok(());
    }
    // Published first: a signal may arrive as soon as the handler is installed.
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
    // Publish the action that was really replaced: another thread may have changed it meanwhile.
    // Keep the default instead, if a signal has consumed the published action (`SA_RESETHAND`).
    let _used_up = PREDECESSOR.compare_exchange(expected, replaced, Ordering::AcqRel, Ordering::Relaxed);
    *is_installed = true;
    Ok(())
}

/// Returns the signal's action, and sets it to `new` if given.
fn exchange(new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: null or a valid action; the kernel writes the other structure, valid for any bytes.
    let done = unsafe { libc::sigaction(libc::SIGBUS, new, old.as_mut_ptr()) };
    // SAFETY: as above.
    if done == 0 { Ok(unsafe { old.assume_init() }) } else { Err(io::Error::last_os_error()) }
}

/// The action that runs our handler instead of a predecessor.
fn handler(predecessor: &libc::sigaction) -> libc::sigaction {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    let mut action = DEFAULT;
    action.sa_sigaction = handler as usize;
    // No SA_ONSTACK: an alternate stack may be too small for an engine. SA_NODEFER: serving a fault
    // may itself fault on another region.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // An ignored signal does not interrupt system calls.
    let restarts = predecessor.sa_flags & libc::SA_RESTART != 0 || predecessor.sa_sigaction == libc::SIG_IGN;
    if restarts {
        action.sa_flags |= libc::SA_RESTART;
    }
    action
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: this thread's own `errno`, which the interrupted code may read next.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    // SAFETY: the kernel passes valid data because of SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // A missing page. Other codes mean broken or poisoned memory, or a signal from a process, which
    // has no address. SAFETY: as above.
    let served = code == libc::BUS_ADRERR
        && serve(unsafe { (*info).si_addr() } as usize, unsafe { is_write(context) });
    // SAFETY: as above. Restored before the previous handler runs, which may read or change it.
    unsafe { *errno = kept };
    if !served {
        forward(signal, info, context);
    }
}

/// Whether the access was a write, if the processor reports it.
///
/// # Safety
/// `context` is the kernel's argument to a signal handler.
unsafe fn is_write(context: *mut libc::c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // Bit 1 of the page fault's error code is set for writes. SAFETY: guaranteed by the caller.
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0 }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _not_told = context;
        false
    }
}

/// Serves the fault if its address is a region's. Returns whether the access may be retried.
fn serve(address: usize, write: bool) -> bool {
    let server = {
        let regions = REGIONS.read();
        let watched = regions.range(..=address).next_back().map(|(_, watched)| watched);
        watched.filter(|watched| address < watched.end).and_then(|watched| watched.server.upgrade())
    };
    server.is_some_and(|server| server.serve_here(address, write))
}

/// Delivers the signal to the previous handler.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: never null once this handler is installed, and never freed.
    let predecessor = unsafe { &*take_predecessor() };
    // SAFETY: the kernel passes valid data because of SA_SIGINFO.
    let is_fault = matches!(unsafe { (*info).si_code }, 1..=libc::BUS_MCEERR_AR);
    match predecessor.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // With the default action installed, the faulting access is retried and ends the
            // program, as the kernel does even if SIGBUS is ignored. A signal sent by a process is
            // raised again.
            // SAFETY: installs the default action.
            unsafe { libc::sigaction(signal, &raw const DEFAULT, ptr::null_mut()) };
            if !is_fault {
                // SAFETY: takes a number.
                unsafe { libc::raise(signal) };
            }
        }
        _ => call(predecessor, signal, info, context),
    }
}

/// The previous action, for this delivery. As in the kernel, SA_RESETHAND then resets it to the
/// default.
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

/// Calls a handler like the kernel: its mask, and the signal itself without `SA_NODEFER`, are
/// blocked until it returns.
fn call(
    action: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let mut mask = action.sa_mask;
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: a local set.
        unsafe { libc::sigaddset(&raw mut mask, signal) };
    }
    let mut outer = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: reads one set and writes the other.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, outer.as_mut_ptr()) };
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: SA_SIGINFO determines the handler's type.
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { transmute(action.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: without SA_SIGINFO the handler takes only the signal.
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

    /// A server whose fault lasts until the test ends it.
    struct Slow {
        touched: mpsc::SyncSender<()>,
        go_on: Mutex<mpsc::Receiver<()>>,
        dropped: mpsc::SyncSender<ThreadId>,
    }

    impl Serves for Slow {
        fn serve_here(&self, _address: usize, _write: bool) -> bool {
            self.touched.send(()).expect("the test waits");
            self.go_on.lock().recv().is_ok()
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
        // Not an address of this process: nothing else is registered for it.
        REGIONS.write().insert(1 << 60, Watched { end: (1 << 60) + 1, server });
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
        assert_ne!(is_dropped.recv().expect("the last owner drops it"), handler_id, "dropped in the handler");
    }
}
