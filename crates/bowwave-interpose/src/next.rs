//! The next definitions of interposed functions, in the dynamic linker's order: mostly the C
//! library's own.
#![allow(unsafe_code, reason = "calls C functions looked up by name")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address of the next function called `name`; looked up once and cached in `cache`. Aborts if
/// there is none, which cannot happen: the caller is linked against it.
pub fn find(cache: &AtomicUsize, name: &CStr) -> usize {
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: a NUL-terminated string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if found == 0 {
        std::process::abort();
    }
    cache.store(found, Ordering::Relaxed);
    found
}

/// Declares functions that call the next definition of their name, looked up on first use.
///
/// `fn LOCAL(…) -> … = NAME;` declares one in the current scope that calls the next `NAME`.
///
/// A leading `look_up;` adds a function of that name that looks all of them up.
#[macro_export]
macro_rules! next_in_line {
    (look_up; $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $crate::next_in_line! { $(fn $name($($argument: $kind),*) $(-> $result)?;)* }

        /// Looks all of them up early: a later lookup could wait for a dynamic linker lock whose
        /// holder waits for us.
        pub(crate) fn look_up() {
            $($crate::find(&addresses::$name, names::$name);)*
        }
    };
    (fn $local:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty = $name:ident;) => {
        /// # Safety
        /// As for the C library's function.
        unsafe fn $local($($argument: $kind),*) -> $result {
            static ADDRESS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
            const NAME: &str = concat!(stringify!($name), "\0");
            let name = std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()).expect("a name holds no zero");
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($kind),*) -> $result =
                unsafe { std::mem::transmute($crate::find(&ADDRESS, name)) };
            // SAFETY: guaranteed by the caller.
            unsafe { function($($argument),*) }
        }
    };
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            /// The next definition.
            ///
            /// # Safety
            /// As for the C library's function.
            pub(crate) unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                let address = $crate::find(&addresses::$name, names::$name);
                // SAFETY: the C library's function of this name has this type.
                let function: unsafe extern "C" fn($($kind),*) $(-> $result)? = unsafe { std::mem::transmute(address) };
                // SAFETY: guaranteed by the caller.
                unsafe { function($($argument),*) }
            }
        )*

        /// Cached addresses.
        #[allow(non_upper_case_globals, reason = "named after the functions")]
        mod addresses {
            $(pub(super) static $name: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);)*
        }

        /// Symbol names.
        #[allow(non_upper_case_globals, reason = "named after the functions")]
        mod names {
            use std::ffi::CStr;
            $(pub(super) const $name: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("names hold no zero"),
            };)*
        }
    };
}

/// A thread's start routine.
pub(crate) type ThreadMain = extern "C" fn(*mut c_void) -> *mut c_void;

mod ours {
    use super::{ThreadMain, c_int, c_void};

    next_in_line! {
        look_up;
        fn pthread_create(
            thread: *mut libc::pthread_t,
            attributes: *const libc::pthread_attr_t,
            main: ThreadMain,
            argument: *mut c_void,
        ) -> c_int;
        fn _exit(status: c_int) -> !;
    }
}

pub(crate) use ours::{_exit, pthread_create};

/// Looks up the next definitions of the functions that this crate interposes.
pub fn look_up() {
    ours::look_up();
}
