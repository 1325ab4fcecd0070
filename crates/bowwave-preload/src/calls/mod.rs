//! The C library's functions: each checks first whether bowwave serves the call.
//!
//! Their names are exported, so the dynamic linker gives them to the program and its libraries
//! instead of the C library's.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "functions called by C with its pointers")]

/// Defines functions with the C library's names and types. `ours => |it| work` runs `work` with the
/// result of `ours`; if that is `None`, it calls the next function of the name.
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
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            bowwave_interpose::next_in_line! { fn next($($argument: $kind),*) -> $result = $name; }
            // SAFETY: the arguments are those of the C library's function.
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
mod lookup;
mod memory;
mod open;
mod own;
mod read;
mod streams;

use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;

use bowwave_interpose::{Inside, no_unwind};

use crate::setup::{Place, setup};
use crate::table;

pub(crate) use streams::take_standard_input;

/// Locked during a fork: directories and streams open in the program.
pub(crate) struct Held(#[allow(dead_code, reason = "held, not read")] (streams::Guard, directories::Guard));

/// Locks both tables.
pub(crate) fn hold() -> Held {
    Held((streams::lock(), directories::lock()))
}

/// The served place of a path, if any. `directory` is the start of a relative path.
///
/// # Safety
/// NULL, or a NUL-terminated string.
unsafe fn place(directory: c_int, path: *const c_char) -> Option<Place> {
    if path.is_null() || Inside::is() || setup().maps.is_empty() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let _inside = Inside::enter();
    no_unwind(|| setup().place(path, || base_directory(directory)))
}

/// The start of a relative path: the working directory, or a served open directory. The kernel
/// handles other open directories.
fn base_directory(directory: c_int) -> Option<PathBuf> {
    if directory == libc::AT_FDCWD {
        return std::env::current_dir().ok();
    }
    table::get(directory).map(|open| setup().visible_path(&open.place))
}
