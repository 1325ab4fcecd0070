//! Tests of the public face, in one program: every further one would link the whole crate again.

mod ahead;
mod checked;
mod dispatcher;
mod instant;
mod instant_device;
mod map_model;
mod maps;
mod pager;
mod parts;
mod plans;
mod port;
mod random_events;
mod random_writes;
mod range;
mod rng;
mod scenarios;
mod schedule;
mod schedule_gain;
mod schedule_model;
mod schedule_random;
mod stream_waste;
mod writes;
