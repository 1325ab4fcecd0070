//! Random numbers from a seed: those of the trace generators.

pub use bowwave_trace::generate::Random;
