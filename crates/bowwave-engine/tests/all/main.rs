//! Tests of the public face, in one program: every further one would link the whole crate again.

mod ahead;
mod common;
mod deadlines;
mod hedging;
mod lost_buffers;
mod odd_stores;
mod plans;
mod pressure;
mod reads;
mod regressions;
mod scheduling;
mod siblings;
mod stores;
mod tuning;
mod uploads;
mod write_back;
mod write_model;
mod writes;
