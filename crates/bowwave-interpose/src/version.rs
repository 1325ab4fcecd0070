//! The version of a library, for `bowwave run`: program and library talk by the environment and must agree on its form.
#![allow(unsafe_code, reason = "names a section of the library")]

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Read out of the library's file, by the name of its section. Exported, so that the linker keeps it.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".bowwave_version")]
pub static BOWWAVE_RUN_VERSION: [u8; VERSION.len()] = {
    let mut bytes = [0; VERSION.len()];
    bytes.copy_from_slice(VERSION.as_bytes());
    bytes
};
