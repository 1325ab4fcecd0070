//! bowwave core.
