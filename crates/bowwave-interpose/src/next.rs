//! The functions that would be called without us: the next ones in line, mostly the C library's own.
#![allow(unsafe_code, reason = "calls C functions that are found by name")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address of the next function called `name`; looked up once, and `kept`. Ends the process if there is none: whoever calls
/// it is linked with it, so that cannot be.
pub fn find(kept: &AtomicUsize, name: &CStr) -> usize {
    let known = kept.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: a string that ends; the dynamic linker does the rest.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if found == 0 {
        std::process::abort();
    }
    kept.store(found, Ordering::Relaxed);
    found
}

/// Declares functions, each of which calls the next one in line of its name, looked up when first called.
///
/// `fn LOCAL(…) -> … = NAME;` declares one, the next in line of `NAME`, for the scope that it stands in.
///
/// With `look_up;` before them there is a function of that name, which looks all of them up.
#[macro_export]
macro_rules! next_in_line {
    (look_up; $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $crate::next_in_line! { $(fn $name($($argument: $kind),*) $(-> $result)?;)* }

        /// Looks all of them up: later that could wait for a lock of the dynamic linker's, whose holder may wait for us.
        pub(crate) fn look_up() {
            $($crate::find(&addresses::$name, names::$name);)*
        }
    };
    (fn $local:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty = $name:ident;) => {
        /// # Safety
        /// As the C library's.
        unsafe fn $local($($argument: $kind),*) -> $result {
            static ADDRESS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
            const NAME: &str = concat!(stringify!($name), "\0");
            let name = std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()).expect("a name holds no zero");
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($kind),*) -> $result =
                unsafe { std::mem::transmute($crate::find(&ADDRESS, name)) };
            // SAFETY: as the caller says.
            unsafe { function($($argument),*) }
        }
    };
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            /// The next in line.
            ///
            /// # Safety
            /// As the C library's.
            pub(crate) unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                let address = $crate::find(&addresses::$name, names::$name);
                // SAFETY: the C library's function of this name has this type.
                let function: unsafe extern "C" fn($($kind),*) $(-> $result)? = unsafe { std::mem::transmute(address) };
                // SAFETY: as the caller says.
                unsafe { function($($argument),*) }
            }
        )*

        /// Where they are.
        #[allow(non_upper_case_globals, reason = "by the functions' names")]
        mod addresses {
            $(pub(super) static $name: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);)*
        }

        /// What they are called.
        #[allow(non_upper_case_globals, reason = "by the functions' names")]
        mod names {
            use std::ffi::CStr;
            $(pub(super) const $name: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("names hold no zero"),
            };)*
        }
    };
}

/// A thread's work.
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

/// Looks up what is next in line of the functions that this crate answers itself.
pub fn look_up() {
    ours::look_up();
}
