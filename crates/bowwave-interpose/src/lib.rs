//! What the libraries have in common that `bowwave run` loads into programs, to answer the C library's calls in its place:
//! `bowwave-preload` for files, `bowwave-heap` for memory.
//!
//! | module | what it is |
//! |---|---|
//! | `next` | [`next_in_line!`]: the functions of the same names that would be called without us |
//! | `inside` | [`Inside`]: threads whose calls are not to be served, bowwave's own |
//! | `end` | [`at_end`], [`leave_counters`]: what a process leaves when it ends, however it does |
//! | `panics` | [`no_unwind`], [`say_panics`]: no panic leaves a function that C calls |
//! | `say` | [`say()`]: what an error number cannot tell |
//! | `version` | [`BOWWAVE_RUN_VERSION`]: what `bowwave run` checks before it loads a library |
//!
//! Each library that is loaded has its own copy of all this, statics and all: where two are loaded they know nothing of each
//! other. `pthread_create`, `_exit` and `_Exit` are answered here, for whichever library this is linked into.

mod end;
mod inside;
mod next;
mod panics;
mod say;
mod version;

pub use end::{at_end, leave_counters};
pub use inside::Inside;
pub use next::{find, look_up};
pub use panics::{no_unwind, say_panics};
pub use say::say;
pub use version::BOWWAVE_RUN_VERSION;
