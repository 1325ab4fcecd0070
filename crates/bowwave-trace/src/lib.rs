//! bowwave trace.
