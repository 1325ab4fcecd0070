//! The library's version, for `bowwave run`: both must agree on the format of the environment.
#![allow(unsafe_code, reason = "names a section of the library")]

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Read from the library file, by section name. Exported, so that the linker keeps it.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".bowwave_version")]
pub static BOWWAVE_RUN_VERSION: [u8; VERSION.len()] = {
    let mut bytes = [0; VERSION.len()];
    bytes.copy_from_slice(VERSION.as_bytes());
    bytes
};
