//! Memory whose pages come from a store when they are touched.
pub mod uffd;
