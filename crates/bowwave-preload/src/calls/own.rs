//! Functions by which the libraries below bowwave create descriptors.

use std::ffi::{c_char, c_int, c_uint};
use std::thread;

use bowwave_interpose::Inside;
use libc::addrinfo;

use crate::errno::{errno, set_errno};
use crate::real::own_number;

/// Defines functions that create a descriptor. Bowwave's own lie above the low numbers.
macro_rules! own {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            bowwave_interpose::next_in_line! { fn next($($argument: $kind),*) -> c_int = $name; }
            // SAFETY: the arguments are those of the C library's function.
            let create = || unsafe { next($($argument),*) };
            if Inside::is() { own_number(create) } else { create() }
        }
    )*};
}

own! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int);
    fn epoll_create1(flags: c_int);
    fn eventfd(count: c_uint, flags: c_int);
}

/// Arguments of `getaddrinfo`, for another thread.
#[derive(Clone, Copy)]
struct Query(*const c_char, *const c_char, *const addrinfo, *mut *mut addrinfo);

// SAFETY: the caller waits for that thread.
unsafe impl Send for Query {}

/// Looks up a host. The C library opens sockets and files for it by calls that cannot be
/// interposed. So bowwave's own lookups run on a thread with its own descriptor table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    host: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    bowwave_interpose::next_in_line! {
        fn next(
            host: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo
        ) -> c_int = getaddrinfo;
    }
    // SAFETY: the arguments are those of the C library's function.
    let look_up = |Query(host, service, hints, found): Query| unsafe { next(host, service, hints, found) };
    let query = Query(host, service, hints, found);
    if !Inside::is() {
        return look_up(query);
    }
    let apart = move || {
        // SAFETY: the new table is this thread's alone, and it uses no other descriptor.
        unsafe { unshare_descriptors() };
        let result = look_up(query);
        (result, errno())
    };
    let found = thread::scope(|scope| {
        let thread = thread::Builder::new().name("bowwave-host".to_owned()).spawn_scoped(scope, apart);
        thread.ok().map(|thread| thread.join().unwrap_or((libc::EAI_FAIL, 0)))
    });
    let Some((result, number)) = found else { return look_up(query) };
    set_errno(number);
    result
}

/// Gives this thread its own descriptor table with only 0, 1 and 2, so that it keeps no file of the
/// program open. Linux before 5.9 cannot: then nothing changes.
///
/// # Safety
/// The thread uses no other descriptor.
unsafe fn unshare_descriptors() {
    // SAFETY: guaranteed by the caller. A system call, because glibc has the function since 2.34.
    unsafe { libc::syscall(libc::SYS_close_range, 3, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
}
