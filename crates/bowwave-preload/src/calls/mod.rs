//! The C library's functions, each asked first whether it is for us.
//!
//! Their names are exported, so the dynamic linker gives them to the program, and to every library that it loads, in place
//! of the C library's.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "functions that C calls, with pointers that C gives")]

/// Defines functions by the names and types of the C library: `ours => |it| work` does `work` with what `ours` finds;
/// where that is nothing, the next function of the name is called.
macro_rules! interpose {
    ($(
        #[$doc:meta]
        fn [$($name:ident)*] $arguments:tt -> $result:ty, $ours:expr => |$it:pat_param| $work:expr;
    )*) => {
        $($(interpose! { @one #[$doc] $name $arguments $result, $ours, $it, $work })*)*
    };
    (@one
        #[$doc:meta]
        $name:ident ($($argument:ident: $kind:ty),* $(,)?)
        $result:ty, $ours:expr, $it:pat_param, $work:expr
    ) => {
        #[$doc]
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            bowwave_interpose::next_in_line! { fn next($($argument: $kind),*) -> $result = $name; }
            // SAFETY: the arguments are what the C library's function takes.
            unsafe {
                match $ours {
                    Some($it) => $work,
                    None => next($($argument),*),
                }
            }
        }
    };
}

mod descriptors;
mod directories;
mod look;
mod memory;
mod open;
mod read;
mod streams;

use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;

use bowwave_interpose::{Inside, no_unwind};

use crate::setup::{Place, setup};
use crate::table;

pub(crate) use streams::take_standard_input;

/// Held while a process forks: what the program has open by pointers.
pub(crate) struct Held(#[allow(dead_code, reason = "held, not read")] (streams::Guard, directories::Guard));

/// Locks both tables.
pub(crate) fn hold() -> Held {
    Held((streams::lock(), directories::lock()))
}

/// The place of a path, if it is ours. `directory` is where a relative one begins.
///
/// # Safety
/// NULL, or a string that ends with a zero byte.
unsafe fn place(directory: c_int, path: *const c_char) -> Option<Place> {
    if path.is_null() || Inside::is() || setup().maps.is_empty() {
        return None;
    }
    // SAFETY: as the caller says.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let _inside = Inside::enter();
    no_unwind(|| setup().place(path, || beginning(directory)))
}

/// The directory of a relative path: the working one, or one of ours that is open. What is open elsewhere is the kernel's.
fn beginning(directory: c_int) -> Option<PathBuf> {
    if directory == libc::AT_FDCWD {
        return std::env::current_dir().ok();
    }
    table::get(directory).map(|open| setup().shown(&open.place))
}
