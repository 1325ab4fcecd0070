//! Fork support. A child does not have its parent's swapped memory: it lacks the handler threads,
//! and a copy could fill the disk. In the child an access is a segmentation fault, a free does
//! nothing, and new allocations use the child's own swap.
#![allow(unsafe_code, reason = "registers fork handlers")]

use crate::heap::{self, Held};

bowwave_interpose::fork_handlers!(Held, heap::hold, heap::reset);
