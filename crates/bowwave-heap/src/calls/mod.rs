//! The C library's functions: each checks first whether bowwave serves the call.
//!
//! Their names are exported, so the dynamic linker gives them to the program and its libraries
//! instead of the C library's.
#![allow(unreachable_pub, reason = "exported to the dynamic linker, by name")]
#![allow(unsafe_code, reason = "functions called by C with its pointers")]

mod allocate;
mod memory;
