//! Tests of the public face, in one program: every further one would link the whole crate again.

mod devices;
mod experiment;
mod fast;
mod replay_paths;
