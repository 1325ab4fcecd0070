//! bowwave fuse.
