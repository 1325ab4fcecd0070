//! Common parts of the libraries that `bowwave run` loads into programs to serve C library calls:
//! `bowwave-preload` for files, `bowwave-heap` for memory.
//!
//! | module | content |
//! |---|---|
//! | `next` | [`next_in_line!`]: the interposed functions' next definitions |
//! | `inside` | [`Inside`]: threads whose calls are not served, bowwave's own |
//! | `end` | [`at_start_and_end!`], [`leave_counters`]: work at the start and end of a process |
//! | `fork` | [`fork_handlers!`]: locks held during a fork |
//! | `panics` | [`no_unwind`], [`say_panics`]: no panic leaves a function called by C |
//! | `say` | [`say()`]: messages that an error number cannot express |
//! | `version` | [`BOWWAVE_RUN_VERSION`]: checked by `bowwave run` before it loads a library |
//!
//! Each loaded library has its own copy of this crate, including statics: two loaded libraries are
//! independent. `pthread_create`, `_exit` and `_Exit` are interposed here for each of them.

mod end;
mod fork;
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
