//! bowwave engine.
