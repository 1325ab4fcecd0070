//! Tests of the public face, in one program: every further one would link the whole crate again.

mod binary;
mod format;
mod generate;
mod import;
mod round_trip;
