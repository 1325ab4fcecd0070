//! Tests of the public face, in one program: every further one would link the whole crate again.

mod attributes;
mod columns;
mod common;
mod lifecycle;
mod names;
mod objects;
mod publishing;
mod reading;
mod trouble;
mod versions;
mod writing;
